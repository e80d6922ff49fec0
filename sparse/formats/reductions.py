"""Means and extreme entries of a matrix of any format, over all entries, each column or each row."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from ...backends import Array


class Reductions(ABC):
    """The methods, for matrices that can sum and find the extreme entries; entries that are not stored count as 0."""

    shape: tuple[int, int]
    dtype: np.dtype

    @abstractmethod
    def sum(self, axis: int | None = None) -> Array:
        """The sum of all entries, or of each column (axis 0, `(m,)`) or row (axis 1, `(n,)`)."""

    def mean(self, axis: int | None = None) -> Array:
        """The mean of all entries, or of each column (axis 0, `(m,)`) or row (axis 1, `(n,)`).

        Raises:
            ValueError: there are none.
        """
        return self.sum(axis) / self._count(axis, "mean")

    def max(self, axis: int | None = None) -> Array:
        """The largest of all entries, or of each column (axis 0, `(m,)`) or row (axis 1, `(n,)`); NaN where one is.

        It has derivatives by the values; where several stored entries are the largest, one of the subgradients.

        Raises:
            ValueError: there are none.
            TypeError: they are complex.
        """
        return self._of_ordered(axis, "max")

    def min(self, axis: int | None = None) -> Array:
        """The smallest of all entries, or of each column or row; see `max`."""
        return self._of_ordered(axis, "min")

    def _of_ordered(self, axis: int | None, name: str) -> Array:
        self._count(axis, name)
        if self.dtype.kind == "c":
            raise TypeError(f"{name} of a complex matrix was asked for; expected real entries, which have an order.")
        return self._extreme(axis, name == "max")

    @abstractmethod
    def _extreme(self, axis: int | None, largest: bool) -> Array:
        """`max` or `min` of real entries, of which there is one at least along the axis."""

    def _count(self, axis: int | None, name: str) -> int:
        """Number of entries of all, of a column (axis 0) or of a row (axis 1)."""
        check_axis(axis)
        n, m = self.shape
        count = n * m if axis is None else self.shape[axis]
        if not count:
            where = "" if axis is None else f" along axis {axis}"
            raise ValueError(f"{name} of a matrix of shape {self.shape} was asked for, which has no entries{where}.")
        return count


def check_axis(axis: int | None) -> None:
    """Check the axis of a sum, mean or extreme.

    Raises:
        ValueError: there is no such axis.
    """
    if axis not in (None, 0, 1, -1, -2):
        raise ValueError(f"axis={axis!r} was given; expected 0 (for each column), 1 (for each row) or None.")
