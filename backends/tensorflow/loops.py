"""Loops in TensorFlow: Python's own eagerly, `tf.while_loop` in graphs; functions mapped over a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.python.ops.parallel_for import pfor

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


# --- Functions mapped over a batch: derivatives, host calls and sizes that are known only when a graph runs -----------
# `tf.vectorized_map` replaces each operation of the mapped function by one for all elements, and the `IdentityN` that
# carries a custom gradient by a plain one. A tape outside of it then finds no connection, and zeros where derivatives
# are not: that is an error here. A tape inside, in the mapped function, is not concerned: by then its gradient has
# become operations.
#
# A host call is made once for each element. TensorFlow cannot stack the results of no calls if it does not know their
# shapes, and a condition that holds in none of the lanes leaves no calls. So the operation says which shapes it
# returns.

_KEY = "_gradient_op_type"
_ours: set[bytes] = set()  # names of custom gradients
_native = pfor._pfor_converter_registry["IdentityN"]
_SHAPES = "_krylix_shapes"


def refuse_when_vectorized(x: tf.Tensor) -> None:
    """Make derivatives by a tape outside of a map an error for the result `x` of a custom gradient in a graph."""
    if not tf.executing_eagerly() and x.op.type == "IdentityN":
        pfor._pfor_converter_registry["IdentityN"] = _convert
        _ours.add(x.op.get_attr(_KEY))


def _convert(pfor_input: Any) -> Any:
    outputs = _native(pfor_input)
    try:
        name = pfor_input.op.get_attr(_KEY)
    except ValueError:  # a plain one
        return outputs
    if name not in _ours:
        return outputs

    @tf.custom_gradient
    def guarded(*tensors: tf.Tensor) -> Any:
        def gradient(*_: tf.Tensor) -> Any:
            raise RuntimeError(
                "The derivative of linear_solve or custom_gradient inside of tf.vectorized_map (or tape.jacobian) was "
                "asked for by a tape outside of it, where TensorFlow drops it. Use tf.map_fn, or one solve of all "
                "systems (batch_ndim=1); or open the tape inside of the mapped function; for tape.jacobian, make that "
                "tape persistent and give experimental_use_pfor=False."
            )

        return [tf.identity(t) for t in tensors], gradient

    tensors = guarded(*(o.t for o in outputs))
    return [pfor.wrap(t, o.is_stacked) for t, o in zip(tensors, outputs, strict=True)]


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


def declare_shapes(results: Sequence[tf.Tensor], shapes: Sequence[Sequence[int]]) -> None:
    """Annotate a host call with the shapes of its results."""
    protos = [tf.TensorShape(shape).as_proto() for shape in shapes]
    results[0].op._set_attr(_SHAPES, AttrValue(list=AttrValue.ListValue(shape=protos)))


@pfor.RegisterPFor("PyFunc")
def _call_in_each_lane(given: Any) -> Any:
    attributes = given.op.node_def.attr
    if _SHAPES not in attributes:
        return pfor._fallback_converter(given, "a call of Python")
    shapes = [tf.TensorShape(proto) for proto in attributes[_SHAPES].list.shape]
    count = given.pfor.loop_len_vector[0]

    def lane(i: tf.Tensor, *stacks: tf.TensorArray) -> tuple[Any, ...]:
        inputs = [x[i] if stacked else x for x, stacked, _ in given.inputs]
        results = pfor._create_op("PyFunc", inputs, [x.dtype for x in given.outputs], attrs=attributes).outputs
        return i + 1, *(stack.write(i, x) for stack, x in zip(stacks, results, strict=True))

    empty = [tf.TensorArray(x.dtype, count, element_shape=s) for x, s in zip(given.outputs, shapes, strict=True)]
    _, *stacks = tf.while_loop(lambda i, *_: i < count, lane, (tf.constant(0), *empty))
    return [pfor.wrap(stack.stack(), True) for stack in stacks]
