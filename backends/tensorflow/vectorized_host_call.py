"""Host callbacks under `tf.vectorized_map` and in Jacobians: one call per element.

TensorFlow cannot stack the results of no calls if it does not know their shapes, and a condition that holds in none of
the lanes leaves no calls. So the operation says which shapes it returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework.attr_value_pb2 import AttrValue
from tensorflow.python.ops.parallel_for import pfor  # not public, but the only place for a rule; a test pins it

_SHAPES = "_krylix_shapes"


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
