"""Bilinear maps in TensorFlow: a custom gradient made of the same maps, so it holds to every order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ..interface.kernels import PRODUCT, TRANSPOSED, Arrays, Bilinear, evaluate_bilinear, transposed_arguments
from .implicit import has_tangent, recording


def bilinear(bk: Any, form: Bilinear, values: Arrays, indices: Arrays, x: tf.Tensor, transposed: bool) -> tf.Tensor:
    """`form.product` or its transpose, with derivatives."""
    values = tuple(tf.convert_to_tensor(v) for v in values)
    kind = TRANSPOSED if transposed else PRODUCT
    return _apply(bk, form, kind, indices, values, (tf.convert_to_tensor(x),))[0]


def _apply(
    bk: Any, form: Bilinear, kind: str, indices: Arrays, a: Sequence[tf.Tensor], b: Sequence[tf.Tensor]
) -> Sequence[tf.Tensor]:
    # TensorFlow gives custom gradients no forward mode, but has one for the operations that the maps are made of.
    if not recording() or any(map(has_tangent, (*a, *b))):
        return evaluate_bilinear(bk, form, kind, indices, tuple(a), tuple(b))

    @tf.custom_gradient
    def function(*operands: tf.Tensor) -> tuple[list[tf.Tensor], Callable[..., Any]]:
        own_a, own_b = operands[: len(a)], operands[len(a) :]

        def gradient(*cotangents: tf.Tensor, variables: Sequence[Any] | None = None) -> Any:
            cotangents = tuple(map(tf.convert_to_tensor, cotangents))  # of a gather that follows it is an IndexedSlices
            conj_a, conj_b = (tuple(map(tf.math.conj, argument)) for argument in (own_a, own_b))
            found: list[tf.Tensor] = []
            for by in (0, 1):
                other, first, second = transposed_arguments(kind, by, conj_a, conj_b, cotangents)
                found += _apply(bk, form, other, indices, first, second)
            return found if variables is None else (found, [None] * len(variables))

        return list(evaluate_bilinear(bk, form, kind, indices, own_a, own_b)), gradient

    results: Sequence[tf.Tensor] = function(*a, *b)
    return results
