"""Diagonal scalings to a unit diagonal."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp


class Scales(NamedTuple):
    """Diagonals such that `left A right` has ones on its diagonal; 1 where that of A is zero."""

    left: np.ndarray
    right: np.ndarray


def times_diagonals(left: np.ndarray, A: Any, right: np.ndarray) -> sp.csr_array:
    """`diag(left) A diag(right)`, of CSR."""
    data = A.data * np.repeat(left, np.diff(A.indptr)) * right[A.indices]
    return sp.csr_array((data, A.indices, A.indptr), A.shape)


def scales_of(A: sp.csr_array, hermitian: bool, by_rows: bool = False) -> Scales:
    """Scales to a unit diagonal; for a Hermitian matrix equal up to sign, so that the product is Hermitian.

    Args:
        by_rows: scale by the sums of the absolute values in rows instead of the diagonal, so that no eigenvalue of a
            Hermitian matrix is above 1.
    """
    diagonal = A.diagonal()
    size = _sums_of_sizes(A) if by_rows else np.abs(diagonal)
    positive = size > 0
    right = 1 / np.sqrt(np.where(positive, size, 1))
    if hermitian:
        return Scales(right * (-1 if positive.any() and (diagonal.real <= 0).all() else 1), right)
    return Scales(right * np.where(positive, np.conj(diagonal) / np.where(positive, size, 1), 1), right)


def _sums_of_sizes(A: sp.csr_array) -> np.ndarray:
    """`(n,)`: of the absolute values in each row."""
    sizes = sp.csr_array((np.abs(A.data), A.indices, A.indptr), A.shape)
    return np.asarray(sizes @ np.ones(A.shape[1], sizes.dtype))
