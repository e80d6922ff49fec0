"""Linear algebra of `(..., m, n)`, products and special functions; NAMES are those of `bk.linalg`, too."""

from __future__ import annotations

from math import factorial as exact
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


# --- Products of arrays with any number of axes -----------------------------------------------------------------------


def tensordot(bk: Any, a: Array, b: Array, axes: Any = 2, *others: Any) -> Array:
    """Sums of products over the last `axes` axes of a and the first ones of b, or over `(axes of a, axes of b)`."""
    if others or not hasattr(b, "shape"):
        raise TypeError(
            f"tensordot got {4 if others else 3} arguments, the second of type {type(b).__name__}; expected two arrays "
            "and axes=(axes of the first, axes of the second)."
        )
    return bk.xp.tensordot(a, b, axes=axes)


# --- Special functions, composed --------------------------------------------------------------------------------------

_MOST = {4: 12, 8: 20}  # integers whose factorial fits into so many bytes


def sigmoid(bk: Any, x: Array) -> Array:
    """The logistic function 1 / (1 + exp(-x)), without overflow and exact in the tails, for real x."""
    x = bk.divide(x, 1)
    small = bk.xp.exp(bk.xp.where(x < 0, x, -x))  # not of -abs(x), which has no derivative at 0
    return bk.xp.where(x < 0, small, 1) / (1 + small)


def softplus(bk: Any, x: Array) -> Array:
    """log(1 + exp(x)), without overflow and exact in the tails."""
    return bk.logaddexp(x, 0)


def factorial(bk: Any, x: Array) -> Array:
    """x! of integers, exact, in int64 (int32 in JAX without double precision); of others the gamma function of x + 1.

    Integers that have no factorial which fits raise where they are known, and give 0 where they are not; real numbers
    up to -1 give NaN.
    """
    if bk.dtype(x).kind not in "biu":
        return bk.xp.where(x > -1, bk.xp.exp(bk.lgamma(bk.xp.where(x > -1, x, 0) + 1)), np.nan)
    if bk.dtype(x).kind == "b":
        x = bk.xp.astype(x, bk.xp.int32)
    widest = bk.stored_dtype(np.dtype(np.int64))
    most, known = _MOST[widest.itemsize], bk.host_view(x)
    if known is not None and known.size and (known.min() < 0 or known.max() > most):
        raise ValueError(
            f"factorial got integers from {known.min()} to {known.max()}; expected 0 to {most}, whose factorials fit "
            "into integers. Give real numbers for larger ones."
        )
    there = bk.xp.logical_and(x >= 0, x <= most)
    table = bk.asarray(np.array([exact(i) for i in range(most + 1)], widest), like=x)
    return bk.xp.where(there, bk.xp.take(table, bk.xp.astype(bk.xp.where(there, x, 0), bk.xp.int32), axis=0), 0)
