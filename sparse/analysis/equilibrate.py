"""Equilibration: row and column scales that remove the units of unknowns and equations from a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

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
    rows, columns = np.ones(size.shape[0]), np.ones(size.shape[1])
    if not 0 < largest < np.inf:
        return rows, columns
    size.data /= largest
    for _ in range(_SWEEPS):
        by_row, by_column = rows * (size @ columns), columns * (size.T @ rows)
        rows, columns = rows / _root(by_row), columns / _root(by_column)
    half = np.sqrt(largest)
    return _powers(rows / half), _powers(columns / half)


def equilibrated(A: Any, rows: np.ndarray, columns: np.ndarray) -> Any:
    """`r_i a_ij c_j` of a SciPy matrix, in its dtype, by columns."""
    entries = sp.coo_array(A)
    i, j = entries.coords
    data = (entries.data * (rows[i] * columns[j])).astype(entries.dtype)
    return sp.csc_array((data, (i, j)), shape=entries.shape)


def _root(sums: np.ndarray) -> np.ndarray:
    return np.sqrt(np.where(sums > 0, sums, 1))


def _powers(scales: np.ndarray) -> np.ndarray:
    return np.exp2(np.clip(np.round(np.log2(scales)), -_FAR, _FAR))
