"""Reciprocals of eigenvalues, with a rule for those that are zero or unwanted."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend


class Reciprocal(NamedTuple):
    """`1 / v`, but `instead` where `sign v <= limit`, or where `|v| <= limit`.

    Attributes:
        limit: less than zero: of no eigenvalue.
        instead: in place of `1 / v`.
        sign: 1 or -1; 0: magnitudes are compared.
    """

    limit: float = -1.0
    instead: float = 0.0
    sign: int = 0

    def invert(self, values: np.ndarray) -> None:
        """In place, in NumPy."""
        small = None if self.limit < 0 else np.nonzero(self._size(np, values) <= self.limit)
        if small is not None:
            values[small] = 1
        np.divide(1, values, out=values)
        if small is not None:
            values[small] = self.instead

    def of(self, bk: Backend, values: Array) -> Array:
        """The same as a new array of any library."""
        if self.limit < 0:
            return 1 / values
        small = self._size(bk, values) <= self.limit
        return bk.where(small, self.instead, 1 / bk.where(small, 1, values))

    def times(self, factor: float) -> Reciprocal:
        """For eigenvalues multiplied by a positive factor."""
        return Reciprocal(self.limit * factor, self.instead / factor, self.sign)

    def _size(self, bk: Any, values: Array) -> Array:
        return self.sign * values if self.sign else bk.abs(values)
