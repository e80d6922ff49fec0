"""Sampling of matrix rows and their entries."""

from __future__ import annotations

import numpy as np

from .integers import places_in_rows, starts_from

_GOLDEN = (5**0.5 - 1) / 2  # whose multiples have no common period with the lines of any grid


def evenly_spread(n: int, count: int) -> np.ndarray:
    """Rising numbers of at most `count` of n rows, scattered evenly, the same ones every time: int64."""
    if n <= count:
        return np.arange(n)
    return np.unique((np.arange(count) * _GOLDEN % 1 * n).astype(np.int64))


def entries_in(first: np.ndarray, end: np.ndarray, cols: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns, int64, of the entries in some rows, of which each has `cols[first:end]`."""
    lengths = end - first
    entries = np.repeat(first, lengths) + places_in_rows(starts_from(lengths))
    return np.repeat(rows, lengths), cols[entries].astype(np.int64)
