"""Sums and extreme entries of sparse matrices, with static structure and possibly traced values."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends import Array, Backend
from ..entries.integers import repeat_rows, starts_of
from ..matrix import check_axis
from ..storage import SparseStorage


def summed(A: SparseStorage, axis: int | None) -> Array:
    """Sums of all entries, of columns (0) or of rows (1); of a batch for each system."""
    check_axis(axis)
    bk = A.host
    rows, cols, _ = A.structure.entries()
    values = A.entry_values()
    if axis is None:
        found = bk.sum(values, (len(values.shape) - 1,))
    elif axis in (0, -2):
        found = bk.sum_entries(values, cols, A.shape[1])
    else:
        found = bk.sum_entries(values, rows, A.shape[0], sorted=True)
    return found if A.constant is None else A.placed(np.asarray(found))


def extreme(A: SparseStorage, axis: int | None, largest: bool) -> Array:
    """The largest or smallest of all entries, of columns (0) or of rows (1); of a batch for each system."""
    if axis in (0, -2):
        by_columns: Any = A.transpose()
        return extreme(by_columns, 1, largest)
    rows = A.structure.entries().rows
    if axis is None:
        starts, length = np.array([0, len(rows)], np.int32), A.shape[0] * A.shape[1]
    else:
        starts, length = starts_of(rows, A.shape[0]), A.shape[1]
    found = extreme_of_lines(A.host, A.entry_values(), starts, length, largest)
    found = found[..., 0] if axis is None else found
    return found if A.constant is None else A.placed(np.asarray(found))


def extreme_of_lines(bk: Backend, values: Array, starts: np.ndarray, length: int, largest: bool) -> Array:
    """The extreme of each line of entries, `(..., nnz)` one line after the other, `(..., lines)`.

    Lines with fewer than `length` entries have zeros, too.
    """
    counts, lead = np.diff(starts), tuple(int(n) for n in values.shape[:-1])
    if not counts.any():
        return bk.zeros((*lead, len(counts)), bk.dtype(values), values)
    stored = _of_stored(bk, values, starts, largest)
    with_zeros = bk.where(bk.asarray(counts < length, like=values), _choose(bk, largest)(stored, 0), stored)
    return bk.where(bk.asarray(counts > 0, like=values), with_zeros, 0)


def _choose(bk: Backend, largest: bool) -> Any:
    return bk.xp.maximum if largest else bk.xp.minimum


def _of_stored(bk: Backend, values: Array, starts: np.ndarray, largest: bool) -> Array:
    """The extreme of the stored entries of each line; of a line without any, unspecified.

    Cost: one pass in NumPy, elsewhere one for each power of two below the longest line: an entry is compared with that
    1, then 2, 4, ... places further, or with the last of its line. To meet an entry twice changes no extreme.
    """
    counts, axis, choose = np.diff(starts), len(values.shape) - 1, _choose(bk, largest)
    full = counts > 0
    if bk.on_host:
        found = (np.maximum if largest else np.minimum).reduceat(values, starts[:-1][full], axis)
        return found[..., np.maximum(np.cumsum(full) - 1, 0)]
    if len(counts) == 1:
        return (bk.xp.max if largest else bk.xp.min)(values, axis=axis, keepdims=True)
    places = np.arange(int(starts[-1]), dtype=np.int32)
    last, step = (starts[1:] - np.int32(1))[repeat_rows(starts)], 1
    while step < counts.max():
        further = np.minimum(places + np.int32(step), last).astype(np.int32)
        values, step = choose(values, bk.take_in_bounds(values, further, axis)), 2 * step
    return bk.take_in_bounds(values, np.minimum(starts[:-1], starts[-1] - 1).astype(np.int32), axis)
