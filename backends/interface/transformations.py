"""What solvers and matrices need of an array library's transformations: derivatives, compiling, vectorising."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import Any, ClassVar

import numpy as np

from .arrays import Array
from .implicit import LinearSystem
from .tree import Container, flatten


class Transformations(ABC):
    """The part of a backend that sees whole functions."""

    has_derivatives: ClassVar[bool] = True  # does the library transpose a linear function by itself?
    derivatives: ClassVar[str] = ""  # what users call to get them, in words
    explicit_derivatives: ClassVar[bool] = False  # are its derivative rules functions of explicit arguments?
    compiles_solves: ClassVar[bool] = False  # does an eager solve gain from `compile`?

    is_array: Callable[[Any], bool]
    copy: Callable[[Array], Array]
    stack: Callable[[Sequence[Array]], Array]

    def __init__(self) -> None:
        self.containers: dict[type, Container] = {}
        self._registering = RLock()

    # --- derivatives -----------------------------------------------------------------------------------------------

    def implicit_solve(self, system: LinearSystem, b: Array) -> tuple[Array, tuple[Array, ...]]:
        """`system.solve(b)`, with exact derivatives of x where the library has them."""
        return system.solve(b)

    def tracks(self, x: Any) -> bool:
        """Was `x` computed from something whose derivatives are being recorded?"""
        return False

    def constant(self, x: Array) -> Array:
        """`x` without a link to what it was computed from."""
        return x

    def refuse_derivatives(
        self, x: Array, why: str, error: type[Exception] = TypeError, sources: Sequence[Array] = ()
    ) -> Array:
        """`x`; asking for its derivative raises `error(why)`, where the library has derivatives at all.

        `sources`: the arrays that x was computed from, if this was not recorded: else there would silently be none.
        """
        return x

    def owned(self, x: Array) -> Array:
        """`x` in memory that nobody else writes to, with its derivatives, also where none are recorded now."""
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
        """Is a program being recorded, which runs later? A transformation by itself may run as eagerly as ever."""
        return False

    def _leniently(self) -> AbstractContextManager[Any]:
        """Context for code of this project, which modes that a user has his own source checked by do not judge."""
        return nullcontext()

    def with_auto_axes(self, function: Callable[[Any], Any], tree: Any, like: Any = None) -> Any:
        """`function(tree)`; where types say how its arrays are spread over devices, the library finds that out inside.

        `like`: what is shaped as this array, or as its first axes, is then spread as it is.
        """
        return function(tree)

    # --- whole functions ----------------------------------------------------------------------------------------

    def compile(self, function: Callable[..., Any], static: tuple[str, ...]) -> Callable[..., Any]:
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
        """`function(x, *args)` whose Python has run, once, for all places of the program in the making, or None.

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
        """`function` of each element along the first `axes` axes, whose lengths may be unknown now, in a loop."""
        raise TypeError("This library has no arrays of unknown size.")

    def vmap(self, function: Callable[..., Array], axes: Sequence[int | None]) -> Callable[..., Array]:
        """`function` of each element of the arrays whose entry in `axes` is 0, stacked; the others are shared."""

        def mapped(*arrays: Array) -> Array:
            size = next(a.shape[0] for a, axis in zip(arrays, axes, strict=True) if axis == 0)
            return self.stack([
                function(*(a if axis is None else a[i] for a, axis in zip(arrays, axes, strict=True)))
                for i in range(int(size))
            ])  # fmt: skip

        return mapped

    def map_columns(self, function: Callable[[Array], Array], columns: Array) -> Array:
        """`function` of each `columns[i]`, stacked along a new first axis."""
        # copied, as a function may return the same memory every time
        return self.stack([self.copy(function(columns[i])) for i in range(columns.shape[0])])

    @abstractmethod
    def transpose_function(self, function: Callable[[Array], Array], like: Array) -> Callable[[Array], Array]:
        """The transpose (not conjugated) of a linear function of arrays shaped as `like`."""

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
        """Tell the library itself, where it wants to know."""
        return None

    def flatten(self, tree: Any) -> tuple[list[Array], Callable[[Sequence[Array]], Any]]:
        """The arrays in a container, and the function that makes the same container of other arrays."""
        return flatten(tree, self.is_array, self.containers)
