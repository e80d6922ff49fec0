"""Conversion of diagonals to compressed rows without a sort, by transposing cache-sized blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....backends.host_math import cores
from ....backends.interface.kernels import inside
from .integers import check_size, starts_from

_BLOCK = 16384  # rows


def compress(
    offsets: Sequence[int], shape: tuple[int, int], present: np.ndarray | None, diagonals: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts and columns (int32) of the rows of diagonals, and the values of their entries.

    Args:
        offsets: of the diagonals, rising.
        shape: `(n, m)`.
        present: `(k, n)` bool, where there are entries; None: everywhere inside of the matrix.
        diagonals: `(k, n)`; None: in place of its value each entry has the number of its place, int32.

    Cost: two passes over the places; 48 ms for five diagonals of a million.
    """
    mask, n = _all_inside(offsets, shape) if present is None else present, shape[0]
    counts = np.zeros(n, np.int32)
    for row in mask:
        counts += row
    nnz = check_size(int(counts.sum(dtype=np.int64)), "entries")
    starts, steps = starts_from(counts), np.asarray(offsets, np.int32)
    bases = np.arange(len(offsets), dtype=np.int32) * np.int32(n)
    cols, values = np.empty(nnz, np.int32), np.empty(nnz, np.int32 if diagonals is None else diagonals.dtype)

    def work(lo: int, hi: int) -> None:
        a, b = starts[lo], starts[hi]
        used: Any = mask[:, lo:hi].any(axis=1)
        if used.all():  # of a periodic grid some are empty but for its ends
            used = np.s_[:]
        here, rows = mask[:, lo:hi][used], np.arange(lo, hi, dtype=np.int32)[:, None]
        source = rows + bases[used] if diagonals is None else np.ascontiguousarray(diagonals[:, lo:hi][used].T)
        _keep(here.T, (source, values[a:b]), (rows + steps[used], cols[a:b]))

    cores.in_blocks(work, n, _BLOCK)
    return starts, cols, values


def compress_nonzero(
    offsets: Sequence[int], shape: tuple[int, int], diagonals: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`compress` of known diagonals without zeros."""
    present = np.zeros((len(offsets), shape[0]), bool)
    for d, _, lo, hi in inside(offsets, *shape):
        np.not_equal(diagonals[d, lo:hi], 0, out=present[d, lo:hi])
    return compress(offsets, shape, present, diagonals)


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
