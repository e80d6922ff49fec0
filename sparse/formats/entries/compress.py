"""From diagonals to rows without a sort: blocks of rows that stay in the cache are transposed and compressed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....backends.interface.sparse_kernels import inside
from .integers import check_size, starts_from

_BLOCK = 16384  # rows


def compress(
    offsets: Sequence[int], shape: tuple[int, int], present: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and slots (int32) of the entries of diagonals, in row order.

    Args:
        offsets: of the diagonals, rising.
        shape: `(n, m)`.
        present: `(k, n)` bool, where there are entries; None: everywhere inside of the matrix.
    """
    n, k = shape[0], len(offsets)
    mask = _all_inside(offsets, shape) if present is None else present
    counts = np.count_nonzero(mask, axis=0) if k else np.zeros(n, np.int64)
    ends = np.cumsum(counts)
    nnz = check_size(int(ends[-1]) if n else 0, "entries")
    cols, slots = np.empty(nnz, np.int32), np.empty(nnz, np.int32)
    steps, start = np.asarray(offsets, np.int32), 0
    bases = np.arange(k, dtype=np.int32) * np.int32(n)
    for lo in range(0, n, _BLOCK):
        hi = min(lo + _BLOCK, n)
        here, end = mask[:, lo:hi].T, int(ends[hi - 1])
        i = np.arange(lo, hi, dtype=np.int32)[:, None]
        cols[start:end], slots[start:end] = _kept(i + steps, here), _kept(i + bases, here)
        start = end
    return np.repeat(np.arange(n, dtype=np.int32), counts), cols, slots


def compress_values(
    offsets: Sequence[int], shape: tuple[int, int], diagonals: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, columns and starts of the rows of known diagonals `(k, n)`, without zeros.

    Cost: two passes over the values; 48 ms for five diagonals of a million.
    """
    (n, m), k = shape, len(offsets)
    counts = np.zeros(n, np.int32)
    for d, _, lo, hi in inside(offsets, n, m):
        counts[lo:hi] += diagonals[d, lo:hi] != 0
    nnz = check_size(int(counts.sum(dtype=np.int64)), "entries")
    starts = starts_from(counts)
    values, cols = np.empty(nnz, diagonals.dtype), np.empty(nnz, np.int32)
    steps = np.asarray(offsets, np.int32)
    first, last = (int(steps[0]), int(steps[-1])) if k else (0, 0)
    for lo in range(0, n, _BLOCK):
        hi = min(lo + _BLOCK, n)
        a, b = starts[lo], starts[hi]
        block = np.ascontiguousarray(diagonals[:, lo:hi].T)
        places, here = np.arange(lo, hi, dtype=np.int32)[:, None] + steps, block != 0
        if lo + first < 0 or hi + last > m:
            here &= (places >= 0) & (places < m)
        values[a:b], cols[a:b] = _kept(block, here, b - a), _kept(places, here, b - a)
    return values, cols, starts


def _kept(block: np.ndarray, here: np.ndarray, count: int | None = None) -> np.ndarray:
    return block.ravel() if count == block.size else block[here]


def _all_inside(offsets: Sequence[int], shape: tuple[int, int]) -> np.ndarray:
    mask = np.zeros((len(offsets), shape[0]), bool)
    for d, _, lo, hi in inside(offsets, *shape):
        mask[d, lo:hi] = True
    return mask
