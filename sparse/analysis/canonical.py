"""Canonical CSR form of SciPy matrices: sorted rows, no duplicates, no stored zeros."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def canonical(A: Any) -> Any:
    """A as a floating-point `csr_array` in row order, without duplicates and zeros; A itself if it is that already."""
    found = sp.csr_array(A)
    if found.dtype.kind not in "fc":
        found = found.astype(np.float64)
    if not found.has_canonical_format or np.count_nonzero(found.data) < found.nnz:
        found = found.copy()
        found.sum_duplicates()
        found.eliminate_zeros()
    return found


def row_range(A: Any, first: int, last: int) -> Any:
    """Some rows of a matrix in that form, which share its memory."""
    start, stop = A.indptr[first], A.indptr[last]
    found = sp.csr_array(
        (A.data[start:stop], A.indices[start:stop], A.indptr[first : last + 1] - start), (last - first, A.shape[1])
    )
    found.has_canonical_format = True
    return found


def row_maxima(A: Any) -> np.ndarray:
    """`(n,)` float64: the largest |a_ij| of each row, NaN where one is NaN, 0 where the row is empty.

    Args:
        A: stored by rows or by columns (CSR, CSC).
    """
    if A.format == "csc":  # a fifth of the time that its transposition takes
        of_columns = np.zeros(A.shape[0])
        with np.errstate(invalid="ignore"):  # NaN is what is to be found
            np.maximum.at(of_columns, A.indices, np.abs(A.data).astype(np.float64, copy=False))
        return of_columns
    lengths = np.diff(A.indptr)
    found = np.zeros(A.shape[0])
    if A.nnz:
        found[lengths > 0] = np.maximum.reduceat(np.abs(A.data), A.indptr[:-1][lengths > 0])
    return found
