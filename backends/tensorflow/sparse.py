"""TensorFlow's own sparse matrices, `tf.SparseTensor`: reading and making them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ..interface.entries import Entries
from ..interface.places import check_count, check_range


class TensorflowSparse:
    """SparseTensors with two axes."""

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
        if indices is None or len(x.shape) != 2 or None in tuple(x.shape):
            return
        if x.values.shape[0] is not None:
            check_count(int(x.values.shape[0]), len(indices), f"indices of {name}")
        for axis, word in enumerate(("row", "column")):
            check_range(indices[:, axis], int(x.shape[axis]), f"The {word} indices of {name}")

    def entries(self, x: tf.SparseTensor) -> Entries:
        """The entries of a SparseTensor in row order; duplicates may be among them, and it may be symbolic.

        Raises:
            ValueError: it is no matrix, or its shape is not known.
        """
        if len(x.shape) != 2 or None in tuple(x.shape):
            raise ValueError(f"A SparseTensor of shape {x.shape} was given; expected a matrix whose shape is known.")
        matrix = tf.sparse.reorder(x)
        n, m = tuple(matrix.shape)
        return Entries(matrix.values, matrix.indices[:, 0], matrix.indices[:, 1], (int(n), int(m)))

    def native(self, values: tf.Tensor, rows: Any, cols: Any, shape: tuple[int, int]) -> tf.SparseTensor:
        """A SparseTensor of entries in the order of rows, then columns, without duplicates."""
        indices = tf.stack([tf.cast(rows, tf.int64), tf.cast(cols, tf.int64)], axis=1)
        return tf.SparseTensor(indices, values, tuple(shape))
