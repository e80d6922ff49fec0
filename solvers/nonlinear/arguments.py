"""The user's function and the other arguments that non-linear solves and minimisation share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from ...backends import Array, Backend, choose_backend, of_libraries, working_dtype
from ...sparse import Layout
from ..read.arguments import refuse_unusable, refused_args, tolerance

NUMBERS = (int, float, complex, np.ndarray, np.generic)
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


def check_real_array(bk: Backend, x: Any) -> None:
    """Raise TypeError unless f returned an array of real numbers of the library."""
    if not bk.is_array(x) and not (bk.on_host and isinstance(x, NUMBERS)):
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


def read_problem(
    f: Callable[..., Any],
    x0: Any,
    args: Sequence[Any],
    batch_ndim: int,
    rtol: Any,
    atol: Any,
    default_rtol: Callable[[np.dtype], float],
) -> tuple[UserFunction, Array, tuple[Array, Array]]:
    """The function, a copy of x0 as rows `(systems, n)`, and rtol and atol `(systems, 1)` or `(1, 1)`."""
    if not callable(f):
        raise TypeError(f"f must be a function f(x, *args); got a {type(f).__name__}.")
    if not isinstance(args, list | tuple):
        raise TypeError(refused_args("f", args))
    if isinstance(batch_ndim, bool) or not isinstance(batch_ndim, int) or batch_ndim < 0:
        raise ValueError(f"batch_ndim must be the number of batch axes, an integer >= 0; got {batch_ndim!r}.")
    bk = choose_backend(x0, *of_libraries(args))
    if not (bk.has_derivatives or bk.on_host):
        raise TypeError(
            f"x0 is an array of {bk.name}, which has no derivatives of functions; expected one of NumPy, JAX, PyTorch "
            "or TensorFlow. Convert it with krylix.convert(x0, 'jax'), say."
        )
    refuse_unusable(bk, x0, "x0")
    leaves, structure = bk.leaves(x0)
    if any(leaf is None or isinstance(leaf, str | bytes) for leaf in leaves):
        raise TypeError(f"x0 must be an array; got {x0!r}.")
    arrays = [leaf if bk.is_array(leaf) and not isinstance(leaf, np.generic) else bk.asarray(leaf) for leaf in leaves]
    layout = Layout.of(bk, bk.unleaves(structure, arrays), batch_ndim, "x0")
    if not layout.size:
        raise ValueError("x0 has no elements; expected at least one unknown.")
    given = np.result_type(*layout.dtypes)
    if given.kind == "c":
        raise TypeError(
            f"x0 is complex ({given}); expected real numbers. Make the real and imaginary parts unknowns of their own, "
            "on a new axis of x0."
        )
    dtype = working_dtype(given, integer=bk.default_float)
    layout = layout.in_kind_of(dtype)
    rows = bk.copy(bk.constant(layout.flatten(bk, bk.unleaves(structure, arrays), dtype, "x0")))
    tolerances = (
        bk.constant(tolerance(bk, rtol, default_rtol(dtype), "rtol", layout, rows, dtype)),
        bk.constant(tolerance(bk, atol, 0.0, "atol", layout, rows, dtype)),
    )
    return UserFunction(bk, f, tuple(args), layout, dtype), rows, tolerances


def checked_limit(max_iter: Any, default: int) -> int:
    """Return max_iter, or the default for None, after a check."""
    if max_iter is None:
        return default
    if isinstance(max_iter, bool) or not isinstance(max_iter, int | np.integer):
        raise TypeError(f"max_iter must be an integer >= 0; got {max_iter!r}.")
    if max_iter < 0:
        raise ValueError(f"max_iter must be an integer >= 0; got {max_iter!r}.")
    return int(max_iter)


def checked_method(function: str, method: Any, methods: Sequence[str]) -> str:
    """Return the canonical name of a method that is given in any case."""
    names = {name.lower(): name for name in methods}
    if not isinstance(method, str):
        raise TypeError(f"method must be a name, one of {', '.join(methods)}; got {method!r}.")
    if method.lower() not in names:
        raise ValueError(f"{function} has no method {method!r}; there are {', '.join(methods)}.")
    return names[method.lower()]


def box_of(bk: Backend, bounds: Any, layout: Layout, rows: Array) -> tuple[Array, Array]:
    """Lower and upper bounds as rows, infinite where there are none."""
    if bounds is None:
        bounds = None, None
    if not isinstance(bounds, tuple) or len(bounds) != 2 or any(isinstance(b, list | tuple) for b in bounds):
        raise TypeError(
            "bounds must be a tuple (lower, upper) of numbers, arrays that broadcast to x0, or None; got "
            f"{bounds!r}. For SciPy's pairs, give (np.array([low for low, _ in pairs]), np.array([...]))."
        )
    low, high = (_numbers(bk, value, name, layout) for name, value in zip(("lower", "upper"), bounds, strict=True))
    if np.any((-np.inf if low is None else low) > (np.inf if high is None else high)):
        raise ValueError("A lower bound is above the upper one; expected bounds=(lower, upper).")
    return _placed(bk, low, -np.inf, layout, rows), _placed(bk, high, np.inf, layout, rows)


def _numbers(bk: Backend, value: Any, name: str, layout: Layout) -> np.ndarray | None:
    if value is None:
        return None
    if bk.is_array(value) and not bk.on_host and (bk.compiled(value) or bk.tracks(value)):
        raise TypeError(
            f"The {name} bound is an array of a compiled program, or its derivatives are being recorded, but x has "
            "none with respect to bounds. Give a number or a NumPy array."
        )
    numbers = np.asarray(bk.to_numpy(value) if bk.is_array(value) else value)
    if numbers.dtype.kind not in "iuf" or np.isnan(numbers).any():
        raise ValueError(f"The {name} bound must be real numbers, without NaN; got {value!r}.")
    if not numbers.ndim:
        return numbers
    if layout.structure is not None:
        raise TypeError(
            f"The {name} bound is an array of shape {numbers.shape}; expected a number, because x0 is a container."
        )
    whole = (*layout.batch, *layout.shapes[0])
    try:
        return np.broadcast_to(numbers, whole)
    except ValueError as error:
        raise ValueError(
            f"The {name} bound has the shape {numbers.shape}; expected a number, or an array that broadcasts "
            f"to {whole}."
        ) from error


def _placed(bk: Backend, numbers: np.ndarray | None, free: float, layout: Layout, rows: Array) -> Array:
    if numbers is None or not numbers.ndim:
        return bk.full_like(rows, free if numbers is None else float(numbers))
    return bk.asarray(np.array(numbers, bk.dtype(rows)).reshape(layout.systems, layout.size), like=rows)
