"""What a backend needs to know of a solve in order to differentiate it by the implicit function theorem."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import compress

from .arrays import Array


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
