"""Tensors with a derivative rule that is a function of the user, in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from .vectorized import refuse_when_vectorized

Rule = Callable[..., Sequence[tf.Tensor | None]]


def with_rule(rule: Rule, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor]) -> Sequence[tf.Tensor]:
    """See `Transformations._with_rule`."""
    count = len(inputs)

    @tf.custom_gradient
    def passed_on(*tensors: tf.Tensor) -> Any:
        def gradient(*cotangents: tf.Tensor) -> Any:
            dense = [tf.convert_to_tensor(c) for c in cotangents]  # of a gather that follows they are IndexedSlices
            # the outputs with their rule: second derivatives go through them
            return (*rule(tensors[:count], passed_on(*tensors), dense), *dense)

        return [tf.identity(x) for x in tensors[count:]], gradient

    if not outputs:
        return outputs
    found: list[tf.Tensor] = passed_on(*map(tf.convert_to_tensor, inputs), *outputs)
    refuse_when_vectorized(found[0])
    return found
