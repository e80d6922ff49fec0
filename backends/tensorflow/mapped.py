"""Map a function over a batch whose size is known only when the graph runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf


def one_by_one(
    function: Callable[..., Sequence[tf.Tensor]], arrays: Sequence[tf.Tensor], axes: int
) -> Sequence[tf.Tensor]:
    """Map `function` over the first `axes` axes, which lead the results too."""
    elements = [tf.TensorSpec(a.shape[axes:], a.dtype) for a in arrays]
    results = tf.function(function, autograph=False).get_concrete_function(*elements).outputs
    rows = tuple(tf.reshape(a, [-1, *a.shape[axes:]]) for a in arrays)
    found = tf.map_fn(
        lambda row: tuple(function(*row)),
        rows,
        fn_output_signature=tuple(tf.TensorSpec(a.shape, a.dtype) for a in results),
    )
    lead, known = tf.shape(arrays[0])[:axes], arrays[0].shape[:axes]
    return [tf.ensure_shape(tf.reshape(a, tf.concat([lead, a.shape[1:]], 0)), [*known, *a.shape[1:]]) for a in found]
