"""Gather, scatter, pad, permute and flip in TensorFlow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import tensorflow as tf

from ..interface.arrays import Array, Integers
from ..interface.kernels import Kernels


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

    def permute_dims(self, x: Array, axes: Sequence[int]) -> Array:
        return tf.transpose(x, [axis % len(axes) for axis in axes])

    def flip(self, x: Array, axis: int | Sequence[int] | None = None) -> Array:
        axes = range(len(x.shape)) if axis is None else axis if isinstance(axis, Sequence) else (axis,)
        return tf.reverse(x, list(axes)) if len(axes) else x
