"""Function transformations of an array library: derivatives, of solves too, compilation, vectorisation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import compress
from threading import RLock
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .arrays import Array
from .containers import Container, flatten


class Transformations(ABC):
    """Backend methods that transform functions."""

    name: str
    is_array: Callable[[Any], bool]
    copy: Callable[[Array], Array]
    stack: Callable[[Sequence[Array]], Array]
    asarray: Callable[..., Array]
    zeros: Callable[..., Array]
    dtype: Callable[[Array], Any]
    leaves: Callable[[Any], tuple[list[Any], Any]]
    unleaves: Callable[[Any, Sequence[Array]], Any]

    has_derivatives: ClassVar[bool] = True  # can the library transpose a linear function?
    derivatives: ClassVar[str] = ""  # how users take derivatives, for messages
    explicit_derivatives: ClassVar[bool] = False  # are its derivative rules functions of explicit arguments?
    has_root_rule: ClassVar[bool] = False  # has it a rule for derivatives of roots, to every order?
    compiles_solves: ClassVar[bool] = False  # does an eager solve gain from `compile`?

    def __init__(self) -> None:
        self.containers: dict[type, Container] = {}
        self._registering = RLock()

    # --- derivatives --------------------------------------------------------------------------------------------------

    def implicit_solve(self, system: LinearSystem, b: Array) -> tuple[Array, tuple[Array, ...]]:
        """`system.solve(b)`, with exact derivatives of x where the library has them."""
        return system.solve(b)

    def implicit_root(
        self, f: Callable[[Array], Array], x: Array, solve: Callable[[Callable[[Array], Array], Array], Array]
    ) -> Array:
        """The root x of f, with derivatives to every order with respect to what f depends on, where `has_root_rule`.

        Args:
            solve: `solve(g, y)` returns v with `g(v) = y` for a linear function g, and its derivatives.
        """
        return x

    def tracks(self, x: Any) -> bool:
        """Does `x` depend on something whose derivatives are being recorded?"""
        return False

    def constant(self, x: Array) -> Array:
        """`x` as a constant to derivatives (`stop_gradient`, `detach`)."""
        return x

    def refuse_derivatives(
        self, x: Array, why: str, error: type[Exception] = TypeError, sources: Sequence[Array] = ()
    ) -> Array:
        """`x`; asking for its derivative raises `error(why)`, where the library has derivatives at all.

        `sources`: the arrays that x was computed from, if that was not recorded; without them it would be silent.
        """
        return x

    def owned(self, x: Array) -> Array:
        """A private copy of `x` with its derivatives, also where none are recorded now."""
        return self.copy(x)

    def without_derivatives(self, x: Array, failed: Array) -> Array:
        """Rows x `(batch, n)`; derivatives of those that have `failed` `(batch, 1)` are NaN, but for those that are 0.

        Forward and backward, to every order; a row whose cotangent is 0, as it was left out of a sum, adds nothing.
        """
        return x

    def host_view(self, x: Array) -> np.ndarray | None:
        """NumPy's view of an array in memory of the host, to be read now, where nobody can tell: no derivative of what
        is done to it is recorded, no transformation or mode runs, and its kind has no rules of its own. Else None.
        """
        return None

    def in_program(self) -> bool:
        """Is a program being traced that runs later? Transformations alone may run eagerly."""
        return False

    def _leniently(self) -> AbstractContextManager[Any]:
        """Context for krylix's own code, in which strict modes that a user has set do not apply."""
        return nullcontext()

    def _outside_compilers(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, not read by a compiler of Python source that reads the caller now."""
        return function

    def with_auto_axes(self, function: Callable[[Any], Any], tree: Any, like: Any = None) -> Any:
        """`function(tree)`; where shardings are part of types (Explicit axes), the compiler infers them inside.

        `like`: results with the shape of this array, or of its first axes, get its sharding.
        """
        return function(tree)

    def _differentiated(
        self, function: Callable[..., tuple[Array, Sequence[Array]]], arrays: Sequence[Array]
    ) -> Differentiated:
        """`function(*arrays)`, which returns a loss and other arrays, with the derivatives of the loss."""
        raise TypeError(
            f"{self.name} has no derivatives of functions; expected arrays of JAX, PyTorch or TensorFlow. Convert the "
            'arguments with krylix.convert(x, "jax"), say, and take the backend of these.'
        )

    def _with_rule(
        self, rule: Callable[..., Sequence[Array | None]], inputs: Sequence[Array], outputs: Sequence[Array],
        linear: bool = False,
    ) -> Sequence[Array]:  # fmt: skip
        """The outputs, whose derivatives by the inputs are those of a rule, beside the ones that they have.

        `rule(inputs, outputs, cotangents)` returns the cotangents of the inputs, None for 0. Cotangents are d/dRe +
        i d/dIm of real and complex numbers.

        `linear`: the rule does with the cotangents only what JAX can transpose, so that it has a forward mode, too.
        """
        return outputs

    def _with_no_derivative(self, inputs: Sequence[Array], outputs: Sequence[Array], why: str) -> Sequence[Array]:
        """The outputs; asking for a derivative by the inputs raises `TypeError(why)`."""

        def rule(*_: Any) -> Any:
            raise TypeError(why)

        return self._with_rule(rule, inputs, outputs)

    # --- whole functions ----------------------------------------------------------------------------------------------

    def compile_if_faster(self, function: Callable[..., Any], static: tuple[str, ...]) -> Callable[..., Any]:
        """`function` compiled once for each value of its `static` arguments, where the library gains from it."""
        return function

    def trace(
        self, function: Callable[..., Any], x: Any, args: Sequence[Any]
    ) -> tuple[Callable[..., Any], Sequence[Array]] | None:
        """`f(x, *arrays)` that computes `function(x, *args)`, and the arrays: of args, and closed over. None: not here.

        In JAX f has value equality: it equals another one with the same program.
        """
        return None

    def recorded(self, function: Callable[..., Any], x: Any, args: Sequence[Any]) -> Any:
        """`function(x, *args)` traced once for all its uses in the program that is being traced, or None.

        It takes containers like x that it `fits`, has a `program`, `is_known` where nothing else has its value later,
        and `by_lines` computes the same with the lines of the user's source in what a front end makes of it.
        """
        return None

    def hiding_constants(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function` of arrays, in which a compiler does not see that large arrays are constant that it closes over:
        it would fold them, number by number.
        """
        return function

    def one_by_one(
        self, function: Callable[..., Sequence[Array]], arrays: Sequence[Array], axes: int
    ) -> Sequence[Array]:
        """`function` of each element along the first `axes` axes, of possibly unknown lengths, in a loop."""
        raise TypeError("This library has no arrays of unknown size.")

    def map_columns(self, function: Callable[[Array], Array], columns: Array) -> Array:
        """`function` of each `columns[i]`, stacked along a new first axis."""
        # copied, as a function may return the same memory every time
        return self.stack([self.copy(function(columns[i, ...])) for i in range(columns.shape[0])])

    def transpose_function(self, function: Callable[[Array], Array], like: Array) -> Callable[[Array], Array]:
        """The transpose (not conjugated) of a linear function of arrays shaped as `like`."""
        raise TypeError(
            f"The transpose of a function on arrays of {self.name} is not known, as the library has no derivatives. "
            "Give the matrix, or for arrays of NumPy a scipy.sparse.linalg.LinearOperator with rmatvec, or use JAX, "
            "PyTorch or TensorFlow arrays."
        )

    def register(
        self,
        cls: type,
        flatten: Callable[[Any], tuple[Sequence[Array], Hashable]],
        unflatten: Callable[[Any, Sequence[Array]], Any],
    ) -> None:
        """Make `cls` a container of arrays that `flatten` and this library's transformations see through.

        Once: libraries refuse a second time. Several threads may meet a class first.
        """
        if cls in self.containers:
            return
        with self._registering:
            if cls not in self.containers:
                self._register(cls, flatten, unflatten)
                self.containers[cls] = Container(flatten, unflatten)

    def _register(
        self,
        cls: type,
        flatten: Callable[[Any], tuple[Sequence[Array], Hashable]],
        unflatten: Callable[[Any, Sequence[Array]], Any],
    ) -> None:
        """Register the class with the library, where it has a registry."""
        return None

    def flatten(self, tree: Any) -> tuple[list[Array], Callable[[Sequence[Array]], Any]]:
        """Arrays of a container, and the function that rebuilds it from other arrays."""
        return flatten(tree, self.is_array, self.containers)

    # --- functions of one element -------------------------------------------------------------------------------------

    def vmap(self, function: Callable[..., Any], axes: Sequence[int | None] | None = None) -> Callable[..., Any]:
        """`function` of each element along the first axis of its arguments, with the results stacked.

        Arguments are arrays or containers of them. One whose entry in `axes` is None is shared, and so is one of size 1
        beside larger ones; the others have entry 0. Without `axes` all have.
        """

        def mapped(*args: Any) -> Any:
            own = tuple(axes) if axes is not None else (0,) * len(args)
            sizes = self._mapped_sizes(args, own)
            if len(set(sizes.values())) > 1:
                alone = [i for i, size in sizes.items() if size == 1]
                args = tuple(self._first(x) if i in alone else x for i, x in enumerate(args))
                own = tuple(None if i in alone else axis for i, axis in enumerate(own))
            return self._vmap(function, own)(*args)

        return mapped

    def _mapped_sizes(self, args: Sequence[Any], axes: Sequence[int | None]) -> dict[int, int]:
        """The size of each argument that is mapped, by its place.

        Raises:
            ValueError: there is none, or their sizes do not fit together.
        """
        if len(args) != len(axes) or not {*axes} <= {0, None} or 0 not in axes:
            raise ValueError(
                f"vmap got axes={tuple(axes)} and {len(args)} arguments; expected 0 or None for each, and one 0 at "
                "least. Move another axis to the front."
            )
        sizes: dict[int, int] = {}
        for i, (x, axis) in enumerate(zip(args, axes, strict=True)):
            if axis is None:
                continue
            arrays = [x] if self.is_array(x) else self.leaves(x)[0]
            shapes = {tuple(a.shape[:1] if hasattr(a, "shape") else np.shape(a)[:1]) for a in arrays}
            if len(shapes) != 1 or not shapes.isdisjoint(((), (None,))):
                found = ", ".join(str(*shape) or "none" for shape in shapes)
                raise ValueError(
                    f"vmap got argument {i} with first axes of size {found}; expected one size for all of its arrays."
                )
            sizes[i] = shapes.pop()[0]
        if len({*sizes.values()} - {1}) > 1:
            raise ValueError(
                f"vmap got first axes of size {', '.join(map(str, sizes.values()))}; expected one size, or 1 for an "
                "argument that all elements share."
            )
        return sizes

    def _first(self, tree: Any) -> Any:
        leaves, structure = self.leaves(tree)
        return self.unleaves(structure, [leaf[0, ...] for leaf in leaves])

    def _vmap(self, function: Callable[..., Any], axes: Sequence[int | None]) -> Callable[..., Any]:
        """`vmap` of arguments whose sizes fit. `function` of no elements is called once, with zeros."""

        def element(tree: Any, i: int) -> Any:
            leaves, structure = self.leaves(tree)
            return self.unleaves(structure, [leaf[i, ...] for leaf in leaves])

        def zeros(tree: Any) -> Any:
            leaves, structure = self.leaves(tree)
            arrays = [self.asarray(x) for x in leaves]
            return self.unleaves(structure, [self.zeros(tuple(x.shape[1:]), self.dtype(x), x) for x in arrays])

        def called(part: Callable[[Any], Any], args: Sequence[Any]) -> tuple[list[Array], Any]:
            found = function(*(a if axis is None else part(a) for a, axis in zip(args, axes, strict=True)))
            leaves, structure = self.leaves(found)
            return [self.copy(self.asarray(x)) for x in leaves], structure  # a function may return one buffer each time

        def mapped(*args: Any) -> Any:
            size = next(self.leaves(a)[0][0].shape[0] for a, axis in zip(args, axes, strict=True) if axis == 0)
            parts: list[Callable[[Any], Any]] = [partial(element, i=i) for i in range(int(size))]
            opened = [called(part, args) for part in parts or [zeros]]
            columns = [self.stack(column) for column in zip(*(leaves for leaves, _ in opened), strict=True)]
            return self.unleaves(opened[0][1], columns if size else [x[:0, ...] for x in columns])

        return mapped


class Differentiated(NamedTuple):
    """A loss, and how its derivatives are found: a cotangent of real numbers gives d/dRe + i d/dIm of each array.

    Attributes:
        loss: an array of any shape.
        outputs: what else the function has returned.
        pull: cotangent -> those of the arrays; zeros where an array has no influence.
        pull_each: cotangents, stacked along a first axis -> those of the arrays, likewise.
    """

    loss: Array
    outputs: Any
    pull: Callable[[Array], Sequence[Array]]
    pull_each: Callable[[Array], Sequence[Array]]


# --- What a backend needs to know of a solve in order to differentiate it by the implicit function theorem ------------


class LinearSystem(ABC):
    """A solve of `A x = b`, with A and all else given by arrays.

    Attributes:
        arrays: what the system is made of, so that it can be made again of other values in the rule of a derivative.
        is_explicit: is all that is traced or recorded among them? Only JAX can do without, as it finds by itself what
            a function closes over.
        differentiable: for each of them, has x a derivative with respect to it? Those are the entries of A.
        grid: shape of the one array that a row is, None where it is none.
    """

    grid: tuple[int, ...] | None
    arrays: Sequence[Array]
    differentiable: Sequence[bool]
    is_explicit: bool = True

    @abstractmethod
    def product(self, x: Array) -> Array:
        """`A x` for rows `(batch, n)`, linear in x; differentiable in x and the `differentiable` arrays."""

    def factors(self, x: Array) -> Sequence[Array]:
        """Rows `x` multiplied by each operator that `solve` uses: a trial of whether all of them exist."""
        return (self.product(x),)

    @abstractmethod
    def solve(self, b: Array, given: Array | None = None) -> tuple[Array, tuple[Array, ...]]:
        """x, and arrays without derivatives, whose first axis is that of `b`.

        `given` `(batch, 1)`: is `b` the right-hand side that was given, and not one of a derivative? From a library
        that asks one system for both.
        """

    @abstractmethod
    def tangent(self) -> LinearSystem:
        """The solve with the same matrix for the right-hand side of a derivative."""

    @abstractmethod
    def transpose(self) -> LinearSystem:
        """The solve with the transposed matrix for the right-hand side of a derivative."""

    @abstractmethod
    def with_arrays(self, arrays: Sequence[Array]) -> LinearSystem:
        """The same system made of other arrays."""

    def without_arrays(self) -> LinearSystem:
        """What of the system does not depend on its arrays, to be completed by `with_arrays`, and outlives them."""
        return self.with_arrays(())

    def entries(self) -> list[Array]:
        """The arrays that have derivatives."""
        return list(compress(self.arrays, self.differentiable))

    def with_entries(self, entries: Sequence[Array]) -> LinearSystem:
        """The same system with others of the arrays that have derivatives."""
        new = iter(entries)
        pairs = zip(self.arrays, self.differentiable, strict=True)
        return self.with_arrays([next(new) if changes else array for array, changes in pairs])

    @abstractmethod
    def started_at(self, x: Array) -> LinearSystem:
        """The same system with `x` as the initial guess."""

    @abstractmethod
    def mapped(self, size: int, axes: Sequence[int | None]) -> LinearSystem:
        """`size` such systems at once, the first in front; `axes` is 0 for arrays that have one more axis for it."""
