"""TensorFlow's own sparse matrices, `tf.SparseTensor`: reading and making them."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from ..interface.arrays import check_count, check_range
from ..interface.kernels import CooEntries


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
