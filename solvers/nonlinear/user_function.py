"""A user's function of unknowns, and programs made of it, where the library compiles these."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from ...backends import Array, Backend
from ...sparse import Layout

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class UserFunction:
    """`f(x, *args)`.

    Attributes:
        function: f, of arrays as x0.
        layout: of x.
        dtype: in which all is computed.
    """

    bk: Backend
    function: Callable[..., Any]
    args: Sequence[Any]
    layout: Layout
    dtype: np.dtype

    def __call__(self, rows: Array) -> Any:
        """f for x as rows `(systems, n)`."""
        return self.bk.call_user(self.function, self.layout.unflatten(self.bk, rows), self.args)

    def with_constants(self) -> UserFunction:
        """The same, without derivatives by `args`."""
        arrays, rebuild = self.bk.flatten(self.args)
        return replace(self, args=rebuild([self.bk.constant(a) for a in arrays]))

    def explicit(self, rows: Array) -> UserFunction:
        """The same with all arrays that f depends on as `args`, where the library can find them; x is like rows."""
        bk = self.bk
        traced = bk.trace(self.function, self.layout.unflatten(bk, rows), self.args) if bk.compiles_solves else None
        return self if traced is None else replace(self, function=traced[0], args=tuple(traced[1]))

    def compiled(self, run: Callable[..., T], rows: Array, *arrays: Array, known: Hashable) -> T:
        """`run(self, known, rows, *arrays)`, compiled once for all functions with the same program.

        Args:
            known: what else the program depends on.
        """
        user = self.explicit(rows)
        key = _Known(run, known, self.bk, user.function, self.layout, self.dtype)
        if user is self or self.bk.in_program() or not key.is_hashable:
            return run(user, known, rows, *arrays)
        found: T = self.bk.compile(_run, ("key",))(user.args, rows, *arrays, key=key)
        return found


@dataclass(frozen=True)
class _Known:
    """What a program depends on besides arrays."""

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


def _run(args: Sequence[Array], rows: Array, *arrays: Array, key: _Known) -> Any:
    user = UserFunction(key.bk, key.function, args, key.layout, key.dtype)
    return key.run(user, key.known, rows, *arrays)
