"""Loops in TensorFlow: Python's own eagerly, `tf.while_loop` in graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ..interface.backend import Backend

Condition = Callable[[Any], Any]
Body = Callable[[Any], Any]


class TensorflowLoops(Backend):
    """The part of the backend about them."""

    def _while_loop(self, condition: Callable[[Any], Any], body: Callable[[Any], Any], state: Any) -> Any:
        if tf.executing_eagerly():
            return super()._while_loop(condition, body, state)
        return tf.while_loop(condition, lambda s: (body(s),), (state,))[0]

    def for_loop(self, count: int, body: Callable[[Any], Any], state: Any) -> Any:
        return (super().for_loop if tf.executing_eagerly() else self._counted)(count, body, state)

    def _bounded_loop(self, condition: Condition, body: Body, state: Any, limits: Sequence[int]) -> Any:
        if tf.executing_eagerly():
            return super()._bounded_loop(condition, body, state, limits)
        return self._up_to(condition, body, tf.constant(0), state, limits[0])[1]

    def _stacked_loop(self, condition: Condition, body: Body, state: Any, limits: Sequence[int]) -> Any:
        if tf.executing_eagerly():
            return super()._stacked_loop(condition, body, state, limits)
        state = tf.nest.map_structure(tf.convert_to_tensor, state)
        rows = [
            tf.TensorArray(x.dtype, len(limits), element_shape=x.shape, clear_after_read=False)
            for x in tf.nest.flatten(state)
        ]

        def further(k: tf.Tensor, done: tf.Tensor, state: Any, rows: list[tf.TensorArray]) -> Any:
            done, state = self._up_to(condition, body, done, state, tf.constant(list(limits))[k])
            return k + 1, done, state, [a.write(k, x) for a, x in zip(rows, tf.nest.flatten(state), strict=True)]

        start = tf.constant(0), tf.constant(0), state, rows
        rows = tf.while_loop(lambda k, *_: k < len(limits), further, start)[3]
        stacked = [tf.ensure_shape(a.stack(), (len(limits), *a.element_shape)) for a in rows]
        return tf.nest.pack_sequence_as(state, stacked)

    def _up_to(self, condition: Condition, body: Body, done: tf.Tensor, state: Any, limit: Any) -> Any:
        return self._while_loop(
            lambda s: tf.logical_and(s[0] < limit, condition(s[1])), lambda s: (s[0] + 1, body(s[1])), (done, state)
        )
