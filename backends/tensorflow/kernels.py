"""Moving entries, dense factorisations, transforms and sparse matrices in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from .. import host_math
from ..interface.arrays import Array, Integers, check_count, check_range
from ..interface.kernels import CooEntries, Fourier, Kernels, Linalg


class TensorflowIndexing(Kernels):
    """Kernels by gather and segment sums."""

    def take_in_bounds(self, x: Array, index: Integers, axis: int = 0) -> Array:
        return tf.gather(x, index, axis=axis)

    def _ell_terms(self, values: Array, cols: Integers, x: Array) -> Iterable[Array]:
        """One gather and one multiplication: a slice of a tensor costs as much as either."""
        terms = values * tf.gather(x, cols)
        return tf.unstack(terms, num=int(cols.shape[0]))

    def segment_sum(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        return tf.math.unsorted_segment_sum(values, ids, count)

    def _pad_with_zeros(self, x: Array, widths: Sequence[tuple[int, int]]) -> Array:
        return tf.pad(x, [tuple(pair) for pair in widths]) if len(widths) else tf.convert_to_tensor(x)


# --- Dense factorisations in TensorFlow, by LAPACK on the host where its own refuse singular or indefinite matrices ---


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


# --- Fast Fourier transforms in TensorFlow, which has them along the last axis ----------------------------------------


class TensorflowFourier(Fourier):
    """`tf.signal`, one axis after the other."""

    cost = 5.0

    def forward(self, x: Array, axes: Sequence[int]) -> Array:
        *others, last = axes
        x = _along(x, last, tf.signal.fft if x.dtype.is_complex else tf.signal.rfft)
        for axis in others:
            x = _along(x, axis, tf.signal.fft)
        return x

    def backward(self, x: Array, axes: Sequence[int], length: int | None) -> Array:
        *others, last = axes
        for axis in others:
            x = _along(x, axis, tf.signal.ifft)
        if length is None:
            return _along(x, last, tf.signal.ifft)
        return _along(x, last, lambda lines: tf.signal.irfft(lines, [length]))

    def parts(self, x: Array) -> tuple[Array, Array]:
        return tf.math.real(x), tf.math.imag(x)

    def complex(self, real: Array, imaginary: Array) -> Array:
        return tf.complex(real, imaginary)


def _along(x: Array, axis: int, transform: Callable[[Array], Array]) -> Array:
    rank = len(x.shape)
    if axis % rank == rank - 1:
        return transform(x)
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]  # its own inverse
    return tf.transpose(transform(tf.transpose(x, order)), order)


# --- TensorFlow's own sparse matrices, `tf.SparseTensor`: reading and making them -------------------------------------


class TensorflowSparse:
    """SparseTensors with two axes, and batches of them, with three."""

    to_dense = "tf.sparse.to_dense({})"  # how users call it

    def accepts(self, x: Any) -> bool:
        """Is `x` a sparse matrix of this library?"""
        return isinstance(x, tf.SparseTensor)

    def dtype(self, x: tf.SparseTensor) -> np.dtype:
        """NumPy dtype of the values."""
        return np.dtype(x.dtype.as_numpy_dtype)

    def check(self, x: tf.SparseTensor, name: str) -> None:
        """Refuse indices outside of the matrix, where they are known: eager ones, and constants of a graph.

        Raises:
            ValueError: there are such.
        """
        indices = tf.get_static_value(x.indices)
        if indices is None or len(x.shape) not in (2, 3) or None in tuple(x.shape):
            return
        if x.values.shape[0] is not None:
            check_count(int(x.values.shape[0]), len(indices), f"indices of {name}")
        for axis, word in enumerate(("system", "row", "column")[-len(x.shape) :]):
            check_range(indices[:, axis], int(x.shape[axis]), f"The {word} indices of {name}")

    def entries(self, x: tf.SparseTensor) -> CooEntries:
        """The entries of a SparseTensor, in its order; duplicates may be among them, and it may be symbolic.

        Raises:
            ValueError: it is no matrix and no batch of them, its shape is not known, or of a batch its indices.
        """
        if len(x.shape) not in (2, 3) or None in tuple(x.shape):
            raise ValueError(
                f"A SparseTensor of shape {x.shape} was given; expected a matrix (n, m) or a batch of them "
                "(batch, n, m), whose shape is known."
            )
        shape, (*systems, rows, cols) = tuple(int(n) for n in x.shape), tf.unstack(x.indices, axis=1)
        if not systems:
            return CooEntries(x.values, rows, cols, shape)
        known = tf.get_static_value(systems[0])
        if known is None:
            raise ValueError(
                "A SparseTensor of three axes was given whose indices are not known before the compiled function runs; "
                "expected known ones. Make a matrix of krylix with them outside, and give it other values inside: "
                "A.with_values(values)."
            )
        return CooEntries(x.values, rows, cols, shape, known)

    def native(self, values: tf.Tensor, rows: Any, cols: Any, shape: tuple[int, int]) -> tf.SparseTensor:
        """A SparseTensor of entries in the order of rows, then columns, without duplicates.

        A batch, with repeated indices, for values `(systems, nnz)`.
        """
        indices = tf.stack([tf.cast(rows, tf.int64), tf.cast(cols, tf.int64)], axis=1)
        if len(values.shape) == 1:
            return tf.SparseTensor(indices, values, tuple(shape))
        systems, count = (int(n) for n in values.shape)
        first = tf.repeat(tf.range(systems, dtype=tf.int64), count)[:, None]
        indices = tf.concat([first, tf.tile(indices, (systems, 1))], axis=1)
        return tf.SparseTensor(indices, tf.reshape(values, (-1,)), (systems, *shape))
