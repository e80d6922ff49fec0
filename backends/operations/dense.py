"""Dense linear algebra for users, beyond the standard, of `(..., m, n)`; these are names of `bk.linalg`, too."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..interface.arrays import Array

NAMES = ("eig", "eigvals", "lstsq", "matrix_rank", "svd")


def svd(bk: Any, matrix: Array, full_matrices: bool = True) -> tuple[Array, Array, Array]:
    """Left vectors in columns, falling singular values, and right vectors, conjugated, in rows."""
    return bk.xp.linalg.svd(matrix, full_matrices=full_matrices)


def matrix_rank(bk: Any, matrix: Array, rtol: Any = None) -> Array:
    """The number of singular values above `rtol` times the largest."""
    return bk.xp.linalg.matrix_rank(matrix, rtol=rtol)


def lstsq(bk: Any, matrix: Array, b: Array) -> tuple[Array, Array, Array, Array]:
    """The shortest of all x for which `matrix x - b` is shortest, by singular values, for columns of b `(..., m, k)`.

    Singular values up to max(m, n) eps times the largest count as 0, as in NumPy.

    Returns:
        x `(..., n, k)`; squared norms of `matrix x - b` `(..., k)`, for any rank; ranks; singular values.
    """
    matrix, b = bk.auto_cast(matrix, b, int_to_float=True)
    if len(b.shape) < 2 or len(matrix.shape) < 2 or int(matrix.shape[-2]) != int(b.shape[-2]):
        raise ValueError(
            f"lstsq got a matrix of shape {tuple(matrix.shape)} and b of {tuple(b.shape)}; expected (..., m, n) and "
            "(..., m, k), a column for each right-hand side."
        )
    U, s, Vh = bk.xp.linalg.svd(bk.constant(matrix), full_matrices=False)
    cutoff = max(int(n) for n in matrix.shape[-2:]) * float(np.finfo(bk.dtype(s)).eps)
    zero = s <= cutoff * s[..., :1]  # False where NaN, which stays
    inverse = bk.xp.where(zero, 0, 1 / bk.xp.where(zero, 1, s))
    image = bk.xp.multiply(inverse[..., None], bk.xp.matmul(bk.xp.conj(bk.xp.matrix_transpose(U)), bk.constant(b)))
    x = bk.xp.matmul(bk.xp.conj(bk.xp.matrix_transpose(Vh)), image)
    if bk.has_derivatives:
        # The vectors have none where singular values are equal. The pseudo-inverse has, but more rounding errors.
        same = bk.xp.matmul(bk.xp.linalg.pinv(matrix), b)
        x, s = x + (same - bk.constant(same)), bk.xp.linalg.svdvals(matrix)
    missing = bk.xp.abs(bk.xp.matmul(matrix, x) - b)
    rank = bk.xp.sum(bk.xp.astype(bk.xp.logical_not(zero), bk.xp.int32), axis=-1)
    return x, bk.xp.sum(missing * missing, axis=-2), rank, s
