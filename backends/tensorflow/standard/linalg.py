"""Linear algebra: `tf.linalg` by the standard's words. Norms are in `norms.py`, products in `products.py`."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ...standard.promotion import QR, SVD, EigenPairs, SignAndLog
from .library import COMPLEX, sizes
from .manipulation import common_shape, joined
from .reductions import sum

det, inv = tf.linalg.det, tf.linalg.inv


def cholesky(x: Any, /, *, upper: bool = False) -> Any:
    """The lower triangle L of x = L L^H, or the upper one of x = U^H U."""
    factor = tf.linalg.cholesky(x)
    # Where the matrix is indefinite TensorFlow returns memory as it found it.
    error = tf.linalg.band_part(tf.abs(tf.matmul(factor, factor, adjoint_b=True) - x), -1, 0)
    bound = 1e-3 * tf.reduce_max(tf.abs(x), (-2, -1), keepdims=True)
    message = "xp.linalg.cholesky got a matrix that is not positive definite; expected Hermitian ones that are."
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(error <= bound), [message])]):
        factor = tf.identity(factor)
    return tf.linalg.adjoint(factor) if upper else factor


def eigh(x: Any, /) -> EigenPairs:
    """Eigenvalues and eigenvectors of Hermitian matrices."""
    values, vectors = tf.linalg.eigh(x)
    return EigenPairs(tf.math.real(values) if x.dtype in COMPLEX else values, vectors)


def eigvalsh(x: Any, /) -> Any:
    """Eigenvalues of Hermitian matrices."""
    values = tf.linalg.eigvalsh(x)
    return tf.math.real(values) if x.dtype in COMPLEX else values


def slogdet(x: Any, /) -> SignAndLog:
    """The determinant, as its sign and a logarithm."""
    sign, logarithm = tf.linalg.slogdet(x)
    return SignAndLog(sign, tf.math.real(logarithm) if x.dtype in COMPLEX else logarithm)


def qr(x: Any, /, *, mode: str = "reduced") -> QR:
    """Orthonormal columns and an upper triangle."""
    return QR(*tf.linalg.qr(x, full_matrices=mode == "complete"))


def svd(x: Any, /, *, full_matrices: bool = True) -> SVD:
    """Singular values and vectors."""
    values, left, right = tf.linalg.svd(x, full_matrices=full_matrices)
    return SVD(left, values, tf.linalg.adjoint(right))


def svdvals(x: Any, /) -> Any:
    """Singular values, falling."""
    return tf.linalg.svd(x, compute_uv=False)


def _large(values: Any, x: Any, rtol: Any) -> Any:
    """Which singular values are not 0, with respect to the largest."""
    if rtol is None:
        rtol = max(x.shape[-2:]) * np.finfo(values.dtype.as_numpy_dtype).eps
    rtol = tf.cast(rtol, values.dtype)[..., None]
    return values > rtol * tf.reduce_max(values, -1, keepdims=True)


def matrix_rank(x: Any, /, *, rtol: Any = None) -> Any:
    """How many singular values are larger than `rtol` times the largest."""
    return tf.reduce_sum(tf.cast(_large(svdvals(x), x, rtol), tf.int64), -1)


def pinv(x: Any, /, *, rtol: Any = None) -> Any:
    """The pseudo-inverse."""

    @tf.custom_gradient
    def inverse(x: Any) -> Any:
        values, left, right = tf.linalg.svd(x)
        large = _large(values, x, rtol)
        factors = tf.where(large, 1 / tf.where(large, values, tf.ones_like(values)), tf.zeros_like(values))
        found = tf.matmul(right * tf.cast(factors, x.dtype)[..., None, :], left, adjoint_b=True)

        def gradient(g: Any) -> Any:
            # Of the pseudo-inverse and not of singular vectors, which have no derivative where values are equal.
            p, gh = pinv(x, rtol=rtol), tf.linalg.adjoint(g)
            ph = tf.linalg.adjoint(p)
            inner = tf.matmul(gh, p)
            first = tf.linalg.adjoint(tf.matmul(p, tf.matmul(gh, p)))
            rows = tf.matmul(gh - tf.matmul(x, tf.matmul(p, gh)), tf.matmul(p, ph))
            columns = tf.matmul(tf.matmul(ph, p), gh - tf.matmul(inner, x))
            return rows + columns - first

        return found, gradient

    return inverse(x)


def matrix_power(x: Any, n: int, /) -> Any:
    """The product of `n` factors; of the inverse where `n` is negative."""
    x, n = (inv(x), -n) if n < 0 else (x, n)
    shape = sizes(x)
    found = tf.eye(shape[-1], batch_shape=shape[:-2], dtype=x.dtype)
    while n:
        found = tf.matmul(found, x) if n % 2 else found
        x, n = (tf.matmul(x, x), n // 2) if n > 1 else (x, 0)
    return found


def solve(x1: Any, x2: Any, /) -> Any:
    """Solutions; `x2` is a vector only where it has one axis."""
    if len(x2.shape) == 1:
        return solve(x1, x2[:, None])[..., 0]
    left, right = sizes(x1), sizes(x2)
    batch = common_shape(left[:-2], right[:-2])
    x1, x2 = tf.broadcast_to(x1, joined(batch, left[-2:])), tf.broadcast_to(x2, joined(batch, right[-2:]))
    return tf.linalg.solve(x1, x2)


def diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """A diagonal."""
    rows, columns = x.shape[-2:]
    if None not in (rows, columns) and not -rows < offset < columns and (offset or not rows * columns):
        return tf.zeros([*sizes(x)[:-2], 0], x.dtype)
    return tf.linalg.diag_part(x, k=offset)


def trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sum of a diagonal."""
    return sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)
