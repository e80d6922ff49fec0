"""Dense factorisations in TensorFlow, by LAPACK on the host where its own refuse singular or indefinite matrices."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from .. import host_math
from ..interface.arrays import Array
from ..interface.kernels import Linalg


class TensorflowLinalg(Linalg):
    """Eager LU is LAPACK's with a permutation, in graphs QR takes its place: the second array tells which."""

    def lu_factor(self, matrix: Array) -> tuple[Array, ...]:
        # TensorFlow's LU refuses exactly singular matrices. In a graph QR takes its place, which XLA and
        # vectorized_map know too; eagerly LAPACK on the host is quicker.
        if not tf.executing_eagerly():
            q, r = tf.linalg.qr(matrix)
            return r, q
        lu, pivots = host_math.lu_factor(matrix.numpy())
        single = pivots.reshape(-1, pivots.shape[-1])
        permutation = np.array([_permutation(p) for p in single], np.int32).reshape(pivots.shape)
        return tf.convert_to_tensor(lu), tf.convert_to_tensor(permutation)

    def _lu_columns(self, factors: tuple[Array, ...], columns: Array, transposed: bool) -> Array:
        if transposed:  # TensorFlow has the conjugate transpose
            return tf.math.conj(_lu_solve(factors, tf.math.conj(columns), True))
        return _lu_solve(factors, columns, False)

    def inverse(self, matrix: Array) -> Array:
        # TensorFlow's own refuses exactly singular matrices
        identity = tf.eye(matrix.shape[-1], batch_shape=matrix.shape[:-2], dtype=matrix.dtype)
        return self._lu_columns(self.lu_factor(matrix), identity, False)

    def _triangular_columns(self, matrix: Array, columns: Array, lower: bool) -> Array:
        return tf.linalg.triangular_solve(matrix, columns, lower=lower)

    def cholesky(self, matrix: Array) -> Array | None:
        if not tf.executing_eagerly():
            return None
        if matrix.dtype.is_complex:  # TensorFlow returns memory as it found it for an indefinite complex matrix
            factor = host_math.cholesky_or_none(matrix.numpy())
            return None if factor is None else tf.convert_to_tensor(factor)
        try:
            factor = tf.linalg.cholesky(matrix)
        except tf.errors.InvalidArgumentError:
            return None
        return factor if bool(tf.reduce_all(tf.math.is_finite(factor))) else None

    def _cholesky_columns(self, factor: Array, columns: Array) -> Array:
        return tf.linalg.cholesky_solve(factor, columns)

    def eigh(self, matrix: Array) -> tuple[Array, Array]:
        values, vectors = tf.linalg.eigh(matrix)
        return tf.math.real(values), vectors

    def _turned(self, rows: Array) -> Array:
        return tf.transpose(rows)


def _lu_solve(factors: tuple[Array, ...], columns: Array, adjoint: bool) -> Array:
    triangle, other = factors
    if not other.dtype.is_integer:
        if adjoint:
            return tf.linalg.matmul(other, tf.linalg.triangular_solve(triangle, columns, lower=False, adjoint=True))
        y = tf.linalg.matmul(other, columns, adjoint_a=True)
        return tf.linalg.triangular_solve(triangle, y, lower=False)
    axes = len(triangle.shape) - 2
    lower = tf.linalg.set_diag(triangle, tf.ones(triangle.shape[:-1], triangle.dtype))
    if adjoint:
        y = tf.linalg.triangular_solve(triangle, columns, lower=False, adjoint=True)
        y = tf.linalg.triangular_solve(lower, y, lower=True, adjoint=True)
        return tf.gather(y, tf.argsort(other, axis=-1), axis=-2, batch_dims=axes)
    y = tf.gather(columns, other, axis=-2, batch_dims=axes)
    y = tf.linalg.triangular_solve(lower, y, lower=True)
    return tf.linalg.triangular_solve(triangle, y, lower=False)


def _permutation(pivots: np.ndarray) -> np.ndarray:
    """LAPACK's row interchanges as one permutation."""
    order = np.arange(len(pivots), dtype=np.int32)
    for i, p in enumerate(pivots):
        order[[i, p]] = order[[p, i]]
    return order
