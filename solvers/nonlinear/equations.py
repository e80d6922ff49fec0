"""A user's function on rows `(systems, n)`, the equations F(x) = 0, and their linearisation."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...backends import Array, Backend
from ...sparse import Layout, UnsupportedOperation
from ...sparse.tracing.front_end import front_end_for

Linear = Callable[[Array], Array]  # of rows
DENSE = 200  # unknowns of one system, up to which the Jacobian is computed column by column and factorised
_NUMBERS = (int, float, complex, np.ndarray, np.generic)
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class UserFunction:
    """A user's `f(x, *args)`, and compiled programs of it where the library compiles.

    Attributes:
        function: f, for arrays in the form of x0.
        layout: of x.
        dtype: of all computations.
        is_traced: whether f is a traced program, whose `args` are all arrays on which it depends.
    """

    bk: Backend
    function: Callable[..., Any]
    args: Sequence[Any]
    layout: Layout
    dtype: np.dtype
    is_traced: bool = False

    def __call__(self, rows: Array) -> Any:
        return self.bk.call_user(self.function, self.layout.unflatten(self.bk, rows), self.args)

    def with_constants(self) -> UserFunction:
        """Copy without derivatives with respect to `args`."""
        arrays, rebuild = self.bk.flatten(self.args)
        return replace(self, args=rebuild([self.bk.constant(a) for a in arrays]))

    def traced(self, rows: Array) -> UserFunction:
        """Copy with all arrays on which f depends as `args`, if the library can find them; x is like rows."""
        bk = self.bk
        if self.is_traced or not bk.compiles_solves:
            return self
        found = bk.trace(self.function, self.layout.unflatten(bk, rows), self.args)
        return self if found is None else replace(self, function=found[0], args=tuple(found[1]), is_traced=True)

    def program(self, run: Callable[..., T], known: Hashable, rows: Array) -> Callable[..., T]:
        """`(*arrays) -> run(self, known, *arrays)`, compiled once for all functions with the same program."""
        user = self.traced(rows)
        key = _Program(run, known, self.bk, user.function, self.layout, self.dtype)
        if not user.is_traced or self.bk.in_program() or not key.is_hashable:
            return partial(run, user, known)
        return partial(self.bk.compile(_run, ("key",)), user.args, key=key)


@dataclass(frozen=True)
class _Program:
    """Cache key of a compiled program: everything on which it depends, except arrays."""

    run: Callable[..., Any]
    known: Any
    bk: Backend
    function: Callable[..., Any]
    layout: Layout
    dtype: np.dtype

    @property
    def is_hashable(self) -> bool:
        try:
            hash(self)
        except TypeError:  # a setting of the user is an array, or a dictionary
            return False
        return True


def _run(args: Sequence[Array], *arrays: Array, key: _Program) -> Any:
    user = UserFunction(key.bk, key.function, args, key.layout, key.dtype, True)
    return key.run(user, key.known, *arrays)


@dataclass(frozen=True, eq=False)
class NonlinearEquations:
    """F(x) = 0 on rows `(systems, n)` of independent systems.

    Attributes:
        residual: F, differentiable, rows to rows.
        layout: of x and F(x).
        reverse: whether products with the Jacobian need a reverse derivative.
    """

    bk: Backend
    residual: Callable[[Array], Array]
    layout: Layout
    reverse: bool = False

    @property
    def is_dense(self) -> bool:
        return self.layout.size <= DENSE

    def linearised(self, rows: Array) -> Linear:
        """Product with the Jacobian at x, for rows."""
        if not self.reverse:
            return front_end_for(rows).forward_derivative(self.residual, rows, (), {})[0]
        bk = self.bk

        def backward(cotangent: Array) -> Array:
            product: Array = bk.jacobian(lambda x: bk.sum(self.residual(x) * cotangent, (0, 1)), get_output=False)(rows)
            return product

        return bk.transpose_function(backward, rows)

    def jacobian(self, rows: Array, residual: Array) -> Array:
        """Jacobian of each system, `(systems, n, n)`, at rows with this residual."""
        bk = self.bk
        if not bk.has_derivatives:
            return by_differences(self.residual, rows, residual)
        # The derivative of a sum over systems is that of each system with respect to its own unknowns.
        by_rows = bk.jacobian(lambda x: bk.sum(self.residual(x), 0), get_output=False)(rows)
        return bk.permute_dims(by_rows, (1, 0, 2))

    def with_rule(self, rows: Array) -> NonlinearEquations:
        """Copy with forward products, or with those of the reverse derivative if f has no forward one."""
        if self.is_dense:
            return self
        if not self.bk.has_derivatives:
            raise UnsupportedOperation(
                f"{self.bk.name} has no derivatives of functions, and for {self.layout.size} unknowns differences "
                f"take too many calls of f (there may be {DENSE}). Write f with JAX, PyTorch or TensorFlow, and "
                "give x0 as its array."
            )
        try:
            self.linearised(rows)(rows)
        except (TypeError, UnsupportedOperation) as error:
            if not front_end_for(rows).has_only_reverse_rule(error):
                raise
            return replace(self, reverse=True)
        return self


def by_differences(function: Callable[[Array], Array], rows: Array, image: Array) -> Array:
    """Jacobian of each system by forward differences of NumPy arrays; `image` is `function(rows)`."""
    systems, n = rows.shape
    matrix = np.empty((systems, image.shape[1], n), rows.dtype)
    step = np.sqrt(np.finfo(rows.dtype).eps) * np.maximum(np.abs(rows), 1)
    for i in range(n):
        moved = rows.copy()
        moved[:, i] += step[:, i]
        matrix[:, :, i] = (function(moved) - image) / (moved[:, i] - rows[:, i])[:, None]
    return matrix


def residual_of(user: UserFunction) -> Callable[[Array], Array]:
    """F on rows for a user's `f(x, *args)`, which raises an error unless f returns real arrays in the shape of x0."""
    bk, layout = user.bk, user.layout

    def residual(rows: Array) -> Array:
        image = user(rows)
        _check(bk, layout, image)
        # f may return the same array in each call.
        return bk.copy(layout.flatten(bk, image, user.dtype, "f(x)"))

    return residual


def _check(bk: Backend, layout: Layout, image: Any) -> None:
    leaves, structure = ([image], None) if bk.is_array(image) else bk.leaves(image)
    for leaf in leaves:
        check_real_array(bk, leaf)
    shapes = [tuple(np.shape(leaf) if isinstance(leaf, _NUMBERS) else leaf.shape) for leaf in leaves]
    expected = [(*layout.batch, *shape) for shape in layout.shapes]
    if shapes != expected or structure != layout.structure:
        raise ValueError(
            f"f returned {_described(shapes)}; expected {_described(expected)}, like x0: one equation for each "
            "unknown. For more equations than unknowns, minimise the sum of squares with krylix.minimize."
        )


def check_real_array(bk: Backend, x: Any) -> None:
    """Raise TypeError unless f returned an array of real numbers of the library."""
    if not bk.is_array(x) and not (bk.on_host and isinstance(x, _NUMBERS)):
        raise TypeError(
            f"f returned a {type(x).__module__}.{type(x).__qualname__} for an x of {bk.name}; expected an array of "
            f"{bk.name}. Give x0 as an array of the library that f computes with. A number that was extracted, "
            "for example by float(x), has no derivatives."
        )
    dtype = np.dtype(bk.dtype(x)) if bk.is_array(x) else np.asarray(x).dtype
    if dtype.kind == "c":
        raise TypeError(
            "f returned complex numbers; expected real ones. Make the real and imaginary parts unknowns of their own, "
            "on a new axis of x0."
        )


def dense_of(bk: Backend, product: Linear, rows: Array) -> Array:
    """Matrices `(systems, n, n)` of a linear function of rows of independent systems."""
    systems, n = int(rows.shape[0]), int(rows.shape[1])
    units = bk.reshape(bk.asarray(np.eye(n, dtype=bk.dtype(rows)), like=rows), (n, 1, n))
    return bk.permute_dims(bk.map_columns(product, bk.broadcast_to(units, (n, systems, n))), (1, 2, 0))


def _described(shapes: list[tuple[int, ...]]) -> str:
    return f"an array of shape {shapes[0]}" if len(shapes) == 1 else f"arrays of shapes {shapes}"
