"""What TensorFlow adds to tracing: its functions as linear maps, their values for a known input, their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ...errors import UnsupportedOperation
from ..front_end import FrontEnd, Linearised, sample_of_all
from ..traced import Traced
from .trace import trace_function

_NO_FORWARD = "TensorFlow's forward mode drops functions with a gradient of their own"


class TensorflowFrontEnd:
    """Functions of TensorFlow are recorded as graphs, whose operations are followed one by one."""

    def trace(
        self, function: Callable[..., Any], like: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep_zeros: bool
    ) -> Traced:
        return trace_function(function, like, args, kwargs, keep_zeros)

    def evaluate(self, traced: Traced, leaves: Sequence[np.ndarray], watch: bool = False) -> tuple[list[Any], float]:
        """By the function itself, called eagerly; while a graph is made, by the operations that were recorded."""
        if watch or not tf.executing_eagerly():
            return traced.program.watched(leaves)
        return traced.program(leaves), 0.0

    def sample(
        self, traced: Traced, inputs: Callable[[int, np.ndarray | None], np.ndarray], wanted: Sequence[np.ndarray]
    ) -> list[np.ndarray] | None:
        return sample_of_all(self, traced, inputs, wanted)

    def forward_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        raise UnsupportedOperation(f"{_NO_FORWARD}, without a word. The reverse derivative has them.")

    def reverse_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        x = tf.nest.map_structure(_array, x)

        def derivative(cotangent: Any) -> Any:
            own = [tf.identity(leaf) for leaf in tf.nest.flatten(x)]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(own)
                image = [tf.convert_to_tensor(y) for y in tf.nest.flatten(f(_packed(x, own), *args, **kwargs))]
            # TensorFlow's cotangents are conjugated
            given = [tf.math.conj(c) for c in tf.nest.flatten(cotangent)]
            found = tape.gradient(image, own, given, tf.UnconnectedGradients.ZERO)
            return _packed(x, [tf.math.conj(tf.convert_to_tensor(g)) for g in found])

        return derivative, f(x, *args, **kwargs)

    def has_only_reverse_rule(self, error: Exception) -> bool:
        """The reverse derivative is always taken."""
        return _NO_FORWARD in str(error)


def _packed(structure: Any, leaves: Sequence[tf.Tensor]) -> Any:
    return tf.nest.pack_sequence_as(structure, leaves)


def _array(leaf: Any) -> tf.Tensor:
    array = tf.convert_to_tensor(leaf)
    if not (array.dtype.is_floating or array.dtype.is_complex):
        raise TypeError(
            f"x has the dtype {array.dtype.name}; expected a floating or complex one. Give tf.cast(x, ...)."
        )
    return array


FRONT_END: FrontEnd = TensorflowFrontEnd()
