"""Linear algebra: `tf.linalg` by the standard's words, products and norms."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...standard.library import axes_of, check_lengths
from ...standard.promotion import QR, SVD, EigenPairs, SignAndLog
from .functions import COMPLEX, WHOLE, common_shape, conj, in_int64, joined, max, min, over, root, sizes, sum

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
        rtol = builtins.max(x.shape[-2:]) * np.finfo(values.dtype.as_numpy_dtype).eps
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


# --- Products of vectors, matrices and tensors ------------------------------------------------------------------------

# Integers that TensorFlow does not multiply matrices of.
_WIDENED = WHOLE - {tf.int32, tf.int64}


def _matmul(a: Any, b: Any) -> Any:
    if len(a.shape) == len(b.shape) == 1:
        check_lengths("matmul", a, b, 0)
        return tf.reduce_sum(a * b)
    if len(b.shape) == 1:
        return tf.linalg.matvec(a, b)
    return tf.squeeze(tf.matmul(a[..., None, :], b), -2) if len(a.shape) == 1 else tf.matmul(a, b)


def matmul(x1: Any, x2: Any, /) -> Any:
    """The product of matrices, or of a matrix and a vector."""
    if not (len(x1.shape) and len(x2.shape)):
        raise ValueError("xp.matmul got an array without axes; expected vectors or matrices. Numbers take xp.multiply.")
    return in_int64(_WIDENED, _matmul)(x1, x2)


def tensordot(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    """Products summed over pairs of axes."""
    return in_int64(_WIDENED, tf.tensordot)(x1, x2, axes=axes)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The sum of conj(x1) x2 over an axis."""
    check_lengths("vecdot", x1, x2, axis)
    return tf.reduce_sum(conj(x1) * x2, axis)


def outer(x1: Any, x2: Any, /) -> Any:
    """All products of an element of each of two vectors."""
    if len(x1.shape) != 1 or len(x2.shape) != 1:
        raise ValueError(f"xp.linalg.outer got shapes {tuple(x1.shape)} and {tuple(x2.shape)}; expected vectors.")
    return x1[:, None] * x2


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The vector product."""
    check_lengths("linalg.cross", x1, x2, axis, 3)
    axis = axis if axis < 0 else axes_of(axis, len(x1.shape))[0] - len(x1.shape)
    one, two = (lambda x: tf.roll(x, -1, axis)), (lambda x: tf.roll(x, -2, axis))
    return one(x1) * two(x2) - two(x1) * one(x2)


# --- Norms of vectors and matrices ------------------------------------------------------------------------------------

_BY_SINGULAR_VALUES = {"nuc": sum, 2: max, -2: min}
_BY_LINES = {1: (max, -2), -1: (min, -2), np.inf: (max, -1), -np.inf: (min, -1)}  # with the axis summed over


def _root_of_squares(x: Any, axes: Any, keepdims: bool) -> Any:
    squares = tf.math.real(x * tf.math.conj(x)) if x.dtype in COMPLEX else tf.square(x)
    return root(tf.reduce_sum(squares, axes, keepdims))


def vector_norm(x: Any, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """Norms of vectors, over one axis, several or all."""
    if ord == 2:
        return over(_root_of_squares, x, axis, keepdims)
    size = tf.abs(x)
    if ord in (np.inf, -np.inf):
        return (max if ord > 0 else min)(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return sum(tf.cast(size != 0, size.dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return sum(size, axis=axis, keepdims=keepdims)
    power = tf.constant(ord, size.dtype)
    return root(sum(size**power, axis=axis, keepdims=keepdims), power)


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """Norms of matrices."""
    if ord == "fro":
        return over(_root_of_squares, x, (-2, -1), keepdims)
    if ord in _BY_SINGULAR_VALUES:
        found = _BY_SINGULAR_VALUES[ord](svdvals(x), axis=-1)
        return found[..., None, None] if keepdims else found
    if ord not in _BY_LINES:
        raise ValueError(f"xp.linalg.matrix_norm got ord={ord!r}; expected 'fro', 'nuc', 1, -1, 2, -2, inf or -inf.")
    reduce, axis = _BY_LINES[ord]
    lines = sum(tf.abs(x), axis=axis, keepdims=True)
    return reduce(lines, axis=(-2, -1), keepdims=keepdims)
