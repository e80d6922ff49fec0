"""Identity functions with special derivatives in TensorFlow: an error, or NaN for failed systems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf


def refused(x: tf.Tensor, error: Exception, sources: Sequence[tf.Tensor]) -> tf.Tensor:
    """x; its gradient, and that by its sources, raises the error."""

    @tf.custom_gradient
    def passed_on(x: tf.Tensor, *sources: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        def gradient(*cotangents: tf.Tensor) -> Any:
            raise error

        return tf.identity(x), gradient

    return passed_on(x, *map(tf.convert_to_tensor, sources))


def without_derivatives(x: tf.Tensor, failed: tf.Tensor) -> tf.Tensor:
    """Rows x; see `Transformations.without_derivatives`."""

    @tf.custom_gradient
    def passed_on(x: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        def gradient(rows: tf.Tensor) -> tf.Tensor:
            changes = failed & tf.reduce_any(rows != 0, 1, keepdims=True)
            nan, one = (tf.constant(value, rows.dtype.real_dtype) for value in (np.nan, 1.0))
            factor = tf.where(changes, nan, one)
            return rows * tf.cast(factor, rows.dtype)

        return tf.identity(x), gradient

    return passed_on(x)
