"""LAPACK factorisations on the host, for NumPy and for libraries without their own."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

# Of so many rows, each matrix is inverted by itself: NumPy's call divides even small ones among the cores, where other
# work on them makes it wait for tens of milliseconds. LAPACK's LU, with little room to work in, does not.
_ALONE = range(32, 200)


def lu_factor(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """L and U of `(..., n, n)` in one array, and the row interchanges `(..., n)`."""
    (factor,) = lapack.get_lapack_funcs(("getrf",), (matrix,))
    single = matrix.reshape(-1, *matrix.shape[-2:])
    parts = [factor(m)[:2] for m in single]  # a zero pivot is no error here: it shows on the diagonal of U
    lu = np.array([lu for lu, _ in parts]).reshape(matrix.shape)
    return lu, np.array([pivots for _, pivots in parts]).reshape(matrix.shape[:-1])


def batched_inverse(matrix: np.ndarray) -> np.ndarray:
    """The inverses of `(batch, n, n)`; not finite where one is singular."""
    if matrix.shape[-1] not in _ALONE:
        try:
            return np.linalg.inv(matrix)
        except np.linalg.LinAlgError:  # says nothing about the others
            pass
    factor, invert = lapack.get_lapack_funcs(("getrf", "getri"), (matrix,))
    found = np.full(matrix.shape, np.nan, matrix.dtype)
    for one, place in zip(matrix, found, strict=True):
        lu, pivots, singular = factor(one.T)  # the transpose of a row-major matrix is read without a copy
        if not singular:
            place[:] = invert(lu, pivots, overwrite_lu=True)[0].T
    return found


def inverse_of_definite(matrix: np.ndarray) -> np.ndarray | None:
    """That of one large Hermitian matrix `(n, n)`, exactly Hermitian; None where it is small, or not positive definite.

    Half of the operations of `batched_inverse`.
    """
    if len(matrix) < _ALONE.stop:
        return None
    factor, invert = lapack.get_lapack_funcs(("potrf", "potri"), (matrix,))
    # the transpose of a row-major matrix, its conjugate, is read without a copy; that of its inverse is the inverse
    half, indefinite = factor(matrix.T, lower=False)
    half, singular = invert(half, lower=False, overwrite_c=True) if not indefinite else (half, 1)
    if singular:
        return None
    upper: np.ndarray = np.tril(half.T)
    return upper + np.tril(half.T, -1).conj().T


def cholesky_or_none(matrix: np.ndarray) -> np.ndarray | None:
    """Lower Cholesky factor of `(..., n, n)`, None where some matrix is not positive definite."""
    try:
        with np.errstate(all="ignore"):
            factor = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return None
    return factor if np.isfinite(factor).all() else None
