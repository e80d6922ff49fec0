"""From diagonals to rows without a sort: blocks of rows that stay in the cache are transposed and compressed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....backends.cores import shared as cores
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
        _keep(here, (i + steps, cols[start:end]), (i + bases, slots[start:end]))
        start = end
    return np.repeat(np.arange(n, dtype=np.int32), counts), cols, slots


def compress_values(
    offsets: Sequence[int], shape: tuple[int, int], diagonals: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, columns and starts of the rows of known diagonals `(k, n)`, without zeros.

    Cost: two passes over the values; 48 ms for five diagonals of a million.
    """
    (n, m), k = shape, len(offsets)
    present, counts = np.zeros((k, n), bool), np.zeros(n, np.int32)
    for d, _, lo, hi in inside(offsets, n, m):
        np.not_equal(diagonals[d, lo:hi], 0, out=present[d, lo:hi])
        counts += present[d]
    nnz = check_size(int(counts.sum(dtype=np.int64)), "entries")
    starts = starts_from(counts)
    values, cols = np.empty(nnz, diagonals.dtype), np.empty(nnz, np.int32)
    steps = np.asarray(offsets, np.int32)

    def work(lo: int, hi: int) -> None:
        a, b = starts[lo], starts[hi]
        here, block, own = present[:, lo:hi], diagonals[:, lo:hi], steps
        used = here.any(axis=1)
        if not used.all():  # of a periodic grid some are empty but for its ends
            here, block, own = here[used], block[used], steps[used]
        places = np.arange(lo, hi, dtype=np.int32)[:, None] + own
        _keep(here.T, (np.ascontiguousarray(block.T), values[a:b]), (places, cols[a:b]))

    cores.in_blocks(work, n, _BLOCK)
    return values, cols, starts


def _keep(here: np.ndarray, *pairs: tuple[np.ndarray, np.ndarray]) -> None:
    """Write what stands where `here` is, row by row: pairs of an array and what is written."""
    where = None if pairs and len(pairs[0][1]) == here.size else np.flatnonzero(here)
    for block, out in pairs:
        if where is None:
            out[:] = block.ravel()
        else:
            np.take(block.ravel(), where, out=out, mode="clip")  # which needs no buffer, as other modes do


def _all_inside(offsets: Sequence[int], shape: tuple[int, int]) -> np.ndarray:
    mask = np.zeros((len(offsets), shape[0]), bool)
    for d, _, lo, hi in inside(offsets, *shape):
        mask[d, lo:hi] = True
    return mask
