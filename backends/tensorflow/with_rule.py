"""Tensors with a derivative rule that is a function of the user, in TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..interface.arrays import nan_of
from .vectorized import refuse_when_vectorized

Rule = Callable[..., Sequence[tf.Tensor | None]]


def with_rule(
    rule: Rule, inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], linear: bool = False
) -> Sequence[tf.Tensor]:
    """See `Transformations._with_rule`."""
    count = len(inputs)

    @tf.custom_gradient
    def passed_on(*tensors: tf.Tensor) -> Any:
        def gradient(*cotangents: tf.Tensor) -> Any:
            known = [
                tf.convert_to_tensor(c) if _is_inexact(x) else None  # of a gather that follows they are IndexedSlices
                for c, x in zip(cotangents, tensors[count:], strict=True)
            ]
            # the outputs with their rule: second derivatives go through them
            return (*rule(tensors[:count], passed_on(*tensors), known), *known)

        return [tf.identity(x) for x in tensors[count:]], gradient

    if not outputs:
        return outputs
    found: list[tf.Tensor] = passed_on(*map(tf.convert_to_tensor, inputs), *outputs)
    refuse_when_vectorized(found[0])
    return found


def _is_inexact(x: tf.Tensor) -> bool:
    return bool(x.dtype.is_floating or x.dtype.is_complex)


def with_no_derivative(inputs: Sequence[tf.Tensor], outputs: Sequence[tf.Tensor], why: str) -> Sequence[tf.Tensor]:
    """See `Transformations._with_no_derivative`.

    In graphs derivatives are NaN: TensorFlow differentiates all that its sources lead to, and drops what it does not
    need.
    """

    def rule(arrays: Sequence[tf.Tensor], *_: Any) -> list[tf.Tensor]:
        if tf.inside_function():
            return [
                tf.fill(tf.shape(a), tf.constant(nan_of(np.dtype(a.dtype.as_numpy_dtype)), a.dtype)) for a in arrays
            ]
        raise TypeError(why)

    return with_rule(rule, inputs, outputs)
