"""Products with TensorFlow sparse tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import tensorflow as tf

from .base import Array
from .entries import Entries


class TensorflowSparse:
    """A matrix here is a `tf.SparseTensor` in row order."""

    def accepts(self, x: Any) -> bool:
        """Is `x` a sparse matrix of this library?"""
        return isinstance(x, tf.SparseTensor)

    def entries(self, x: tf.SparseTensor) -> Entries:
        """The entries of a SparseTensor, which may be symbolic.

        Raises:
            ValueError: it is no matrix, or its shape is not known.
        """
        matrix = self.read(x)
        n, m = tuple(matrix.shape)
        return Entries(matrix.values, matrix.indices[:, 0], matrix.indices[:, 1], (int(n), int(m)))

    def native(self, values: tf.Tensor, rows: Any, cols: Any, shape: tuple[int, int]) -> tf.SparseTensor:
        """A SparseTensor of entries in the order of rows, then columns, without duplicates."""
        indices = tf.stack([tf.cast(rows, tf.int64), tf.cast(cols, tf.int64)], axis=1)
        return tf.SparseTensor(indices, values, tuple(shape))

    def read(self, x: tf.SparseTensor, dtype: np.dtype | None = None, like: Array | None = None) -> tf.SparseTensor:
        """`x` in row order; duplicates add up in every use."""
        if len(x.shape) != 2 or None in tuple(x.shape):
            raise ValueError(f"A SparseTensor of shape {x.shape} was given; expected a matrix whose shape is known.")
        ordered = tf.sparse.reorder(x)
        return ordered if dtype is None else tf.cast(ordered, dtype)

    def from_scipy(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> tf.SparseTensor:
        """A SciPy sparse matrix."""
        csr = sp.csr_array(x, copy=True)
        csr.sum_duplicates()
        coo = csr.tocoo()
        indices = np.stack([coo.row, coo.col], axis=1).astype(np.int64)
        return tf.SparseTensor(indices, np.asarray(coo.data, dtype), x.shape)

    def dtype(self, matrix: tf.SparseTensor) -> np.dtype:
        """NumPy dtype of the values."""
        return np.dtype(matrix.dtype.as_numpy_dtype)

    def recast(self, matrix: tf.SparseTensor, dtype: np.dtype) -> tf.SparseTensor:
        """The same matrix with values of another dtype."""
        return tf.cast(matrix, dtype)

    def product(self, matrix: tf.SparseTensor, x: Array) -> Array:
        """`(n, m)` times each row of `(batch, m)` -> `(batch, n)`."""
        return tf.transpose(tf.sparse.sparse_dense_matmul(matrix, tf.transpose(x)))

    def transpose(self, matrix: tf.SparseTensor) -> tf.SparseTensor:
        """The transposed matrix (not conjugated)."""
        return tf.sparse.transpose(matrix)

    def conj(self, matrix: tf.SparseTensor) -> tf.SparseTensor:
        """The complex conjugate."""
        return matrix.with_values(tf.math.conj(matrix.values))

    def diagonal(self, matrix: tf.SparseTensor) -> Array:
        """`(min(n, m),)`."""
        rows, cols = matrix.indices[:, 0], matrix.indices[:, 1]
        on = tf.where(rows == cols, matrix.values, tf.zeros_like(matrix.values))
        return tf.math.unsorted_segment_sum(on, rows, matrix.shape[0])[: min(matrix.shape)]

    def to_dense(self, matrix: tf.SparseTensor) -> Array:
        """`(n, m)`."""
        return tf.scatter_nd(matrix.indices, matrix.values, tf.constant(tuple(matrix.shape), tf.int64))

    def arrays(self, matrix: tf.SparseTensor) -> tuple[Array, ...]:
        """The arrays that `to_scipy` needs."""
        return matrix.values, matrix.indices

    def with_arrays(self, shape: tuple[int, int], arrays: Sequence[Array]) -> tf.SparseTensor:
        """A matrix made of such arrays."""
        values, indices = arrays
        return tf.SparseTensor(indices, values, shape)

    def to_scipy(self, matrix: tf.SparseTensor, arrays: Sequence[np.ndarray]) -> Any:
        """The SciPy matrix, given the values of `arrays(matrix)` as NumPy arrays."""
        values, indices = arrays
        return sp.coo_array((values, (indices[:, 0], indices[:, 1])), tuple(matrix.shape)).tocsr()
