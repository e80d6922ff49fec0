"""Sparse matrices in COO form: the exchange format between the libraries' own matrices and ours."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class CooEntries(NamedTuple):
    """Arrays of the library; duplicates add up, so that their order does not matter.

    Of a batch of matrices, whose shape is `(systems, n, m)`, either the entries of all, with `systems` to tell them
    apart, or, where a compiled program is to find out where they are, arrays `(systems, nnz)`.
    """

    values: Any  # (nnz,)
    rows: Any  # (nnz,) integers
    cols: Any  # (nnz,) integers
    shape: tuple[int, ...]
    systems: Any = None  # (nnz,) integers, of NumPy or the library


def row_starts(rows: np.ndarray, n: int) -> np.ndarray:
    """`(n + 1,)`: where each row begins among entries in the order of rows; int32 where it holds the numbers."""
    starts = np.searchsorted(rows, np.arange(n + 1, dtype=rows.dtype))
    return starts.astype(np.int32) if len(rows) < 2**31 else starts
