"""Canonical CSR form of SciPy matrices (sorted rows, no duplicates, no stored zeros), and their equilibration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend


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


# --- Equilibration: row and column scales that remove the units of unknowns and equations ---

_SWEEPS = 30
_FAR = 500  # the largest power of two, so that products of a scale of a row and one of a column are numbers


def scales(A: Any) -> tuple[np.ndarray, np.ndarray]:
    """Powers of two r and c for which each row and each column of `|r_i a_ij c_j|` sums to about the same.

    Sums, as largest entries fit many scales, some of which leave the matrix as badly conditioned as it was. 1 for a row
    or a column of zeros.

    Args:
        A: a SciPy or NumPy matrix of finite numbers.

    Cost: 60 products with |A|.

    Source: Knight, Ruiz, Uçar, A symmetry preserving algorithm for matrix scaling, SIMAX 35 (2014).
    """
    size = abs(sp.csr_array(A)).astype(np.float64)
    largest = size.data.max(initial=0)
    ones = np.ones((1, size.shape[0])), np.ones((1, size.shape[1]))
    if not 0 < largest < np.inf:
        return ones[0][0], ones[1][0]
    size.data /= largest
    turned, bk = size.T, get_backend("numpy")
    sides = balanced(bk, lambda x: (size @ x[0])[None], lambda x: (turned @ x[0])[None], ones, _SWEEPS, size.data)
    powers = (np.round(np.log2(side[0] / np.sqrt(largest))) for side in sides)
    rows, columns = (np.exp2(np.clip(power, -_FAR, _FAR)) for power in powers)
    return rows, columns


def balanced(
    bk: Backend,
    product: Callable[[Array], Array],
    adjoint: Callable[[Array], Array],
    ones: tuple[Array, Array],
    sweeps: int,
    like: Array,
) -> tuple[Array, Array]:
    """Positive scales `(systems, n)` of rows and columns that make their sums about equal.

    Args:
        product, adjoint: products of |A| and its transpose with rows `(systems, n)`.
        ones: for the rows and for the columns.
    """

    def root(sums: Array) -> Array:
        return bk.sqrt(bk.where(sums > 0, sums, bk.full_like(sums, 1)))

    def sweep(state: tuple[Array, ...]) -> tuple[Array, ...]:
        rows, columns, count = state
        by_row, by_column = rows * product(columns), columns * adjoint(rows)
        return rows / root(by_row), columns / root(by_column), count + 1

    state = *ones, bk.asarray(np.int32(0), like=like)
    rows, columns, _ = bk.while_loop(lambda state: state[2] < sweeps, sweep, state)
    return rows, columns


def equilibrated(A: Any, rows: np.ndarray, columns: np.ndarray) -> Any:
    """`r_i a_ij c_j` of a SciPy matrix, in its dtype, by columns."""
    entries = sp.coo_array(A)
    i, j = entries.coords
    data = (entries.data * (rows[i] * columns[j])).astype(entries.dtype)
    return sp.csc_array((data, (i, j)), shape=entries.shape)
