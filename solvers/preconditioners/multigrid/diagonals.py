"""Diagonals of a CSR matrix on a grid."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from ....backends.cores import shared as cores
from ....sparse.analysis.canonical import row_range
from ....sparse.formats.entries.grid import row_strides
from ....sparse.formats.entries.some_rows import entries_in, evenly_spread

_ROWS = 16384  # that stay in the cache while their diagonals are read, one after the other
_SAMPLE = 500  # rows


def neighbours_diagonals(A: Any, grid: tuple[int, ...]) -> tuple[tuple[int, ...], np.ndarray] | None:
    """Ascending offsets and diagonals `(k, n)`, indexed by row; None if other points than neighbours are coupled.

    Args:
        A: SciPy's `csr_array` with every entry once; stored zeros count as none.
        grid: lengths of the axes, last one fastest.

    Cost: a pass over the entries for each diagonal, in the cache.
    """
    sample = evenly_spread(A.shape[0], _SAMPLE)
    rows, cols = entries_in(A.indptr[sample], A.indptr[sample + 1], A.indices, sample)
    strides = row_strides(grid)
    every = {sum(s * d for s, d in zip(strides, steps)) for steps in itertools.product((-1, 0, 1), repeat=len(grid))}
    seen = set((cols - rows).tolist())
    if not seen <= every:
        return None
    count = np.count_nonzero(A.data)
    for offsets in (sorted(seen), sorted(every)):
        values = _diagonals(A, offsets)
        if np.count_nonzero(values) == count:
            return tuple(offsets), values
    return None


def _diagonals(A: Any, offsets: list[int]) -> np.ndarray:
    n = A.shape[0]
    values = np.zeros((len(offsets), n), A.dtype)

    def read(first: int, last: int) -> None:
        part = row_range(A, first, last)
        for row, offset in zip(values, offsets):
            k = offset + first
            if -(last - first) < k < n:
                found = part.diagonal(k)
                start = first + max(0, -k)
                row[start : start + len(found)] = found

    cores.in_blocks(read, n, _ROWS)
    return values
