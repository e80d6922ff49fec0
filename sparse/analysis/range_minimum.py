"""The least number in each of many ranges of an array."""

from __future__ import annotations

import numpy as np


class RangeMinimum:
    """Minima of an array over all ranges whose length is a power of two, of which any range has two.

    Memory: the array times the logarithm of its length.

    Source: Bender and Farach-Colton, The LCA problem revisited, LATIN 2000.

    Examples:
        >>> import numpy as np
        >>> from krylix.sparse.analysis.range_minimum import RangeMinimum
        >>> RangeMinimum(np.array([3, 1, 4, 1, 5, 9])).between(np.array([0, 2, 4]), np.array([0, 5, 5]))
        array([3, 1, 5])
    """

    def __init__(self, values: np.ndarray) -> None:
        self.rows, width = [values], 1
        while 2 * width <= len(values):
            before = self.rows[-1]
            self.rows.append(np.minimum(before[:-width], before[width:]))
            width *= 2

    def between(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """The least value in `first`..`last`, both included, arrays of one length."""
        powers = np.frexp((last - first + 1).astype(np.float64))[1] - 1
        found = np.empty(len(first), self.rows[0].dtype)
        by_power = np.argsort(powers, kind="stable")
        ends = np.searchsorted(powers[by_power], np.arange(len(self.rows) + 1))
        for power, row in enumerate(self.rows):
            which = by_power[ends[power] : ends[power + 1]]
            found[which] = np.minimum(row[first[which]], row[last[which] - 2**power + 1])
        return found
