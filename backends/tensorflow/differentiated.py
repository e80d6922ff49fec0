"""The derivatives of a loss in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ..interface.transformations import Differentiated


def differentiated(function: Callable[..., tuple[tf.Tensor, Any]], arrays: Sequence[tf.Tensor]) -> Differentiated:
    """See `Transformations._differentiated`."""
    arrays = [
        tf.identity(a) for a in arrays
    ]  # a tape knows tensors by identity: two arguments may be one, or closed over
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        for a in arrays:
            tape.watch(a)
        loss, outputs = function(*arrays)

    def pull(cotangent: tf.Tensor) -> list[tf.Tensor]:
        found = tape.gradient(loss, arrays, cotangent, tf.UnconnectedGradients.ZERO)
        return [tf.convert_to_tensor(g) for g in found]  # that of a gather is an IndexedSlices

    def pull_each(cotangents: tf.Tensor) -> list[tf.Tensor]:
        if tf.executing_eagerly():
            rows = [pull(c) for c in tf.unstack(cotangents)]
            return [tf.stack(column) for column in zip(*rows, strict=True)]
        # not vectorized, which would drop second derivatives of custom gradients
        signature = [tf.TensorSpec(a.shape, a.dtype) for a in arrays]
        return list(tf.map_fn(pull, cotangents, fn_output_signature=signature))

    return Differentiated(loss, outputs, pull, pull_each)
