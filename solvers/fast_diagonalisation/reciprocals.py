"""Reciprocals of eigenvalues, with a rule for those that are zero or unwanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend
from .separable import Separable, on_axis

_PART = 2**17  # numbers that are computed with at a time


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


Values = Callable[[], Iterable[np.ndarray]]  # eigenvalues, part by part, each time it is called
Rule = Callable[[Values, Separable, float], tuple[Reciprocal, float]]
"""Of eigenvalues, the sum that has them, and the rounding unit: their reciprocals, and which is the smallest."""


def sums_in_parts(spectra: Sequence[np.ndarray], total: Any) -> Iterator[np.ndarray]:
    """The sums of one number for each axis, and `total`: `(*grid)`, some planes of the first axis at a time."""
    first, *others = spectra
    rest = sum((on_axis(values, axis, len(spectra)) for axis, values in enumerate(others, 1)), np.asarray(total))
    planes = max(1, _PART // max(math.prod(map(len, others)), 1))
    for start in range(0, len(first), planes):
        yield on_axis(first[start : start + planes], 0, len(spectra)) + rest


def extremes_of(values: Values) -> tuple[float, float]:
    """The lowest and the highest real number."""
    ends = [(float(np.min(part)), float(np.max(part))) for part in values() if part.size]
    return (min(low for low, _ in ends), max(high for _, high in ends)) if ends else (0.0, 0.0)


def nearest_to_zero(spectra: Sequence[np.ndarray], total: Any) -> tuple[Any, tuple[int, ...]]:
    """The sum of smallest magnitude, and its place on the grid."""
    found: tuple[Any, tuple[int, ...]] = (np.inf, ())
    start = 0
    for part in sums_in_parts(spectra, total):
        at = np.unravel_index(np.argmin(np.abs(part)), part.shape)
        if abs(part[at]) < abs(found[0]):
            found = part[at], (start + int(at[0]), *map(int, at[1:]))
        start += len(part)
    return found
