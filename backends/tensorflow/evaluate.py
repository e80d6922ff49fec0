"""Evaluate graph operations on tensors that do not depend on the input, with TensorFlow's derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute  # not public; tests pin them

CUSTOM = "_gradient_op_type"  # of an operation with a gradient of its own


def is_eager(x: Any) -> bool:
    """Does a tensor have a value now?"""
    return not tf.is_symbolic_tensor(x)


def eagerly() -> AbstractContextManager[Any]:
    """Context of eager execution, also while a graph is traced."""
    return nullcontext() if tf.executing_eagerly() else context.eager_mode()


def tensor_of(value: Any, dtype: Any = None) -> tf.Tensor:
    """Convert a coefficient to a tensor."""
    if isinstance(value, tf.Tensor):
        return value
    with eagerly():
        return tf.constant(value, dtype)


def evaluate(op: tf.Operation, values: Sequence[Any], dtypes: dict[Any, Any] | None = None) -> list[tf.Tensor]:
    """Evaluate an operation for other operands.

    Args:
        op: of some graph.
        values: known ones, or tensors of the graph that is being made.
        dtypes: in place of those that the operation has.
    """
    tensors = [tensor_of(value, None if i.dtype == tf.variant else i.dtype) if not dtypes else tensor_of(value)
               for value, i in zip(values, op.inputs)]  # fmt: skip
    if all(is_eager(x) for x in tensors):
        with eagerly():
            return _at_once(op, tensors, dtypes or {})
    return _in_graph(op, tensors)


def _at_once(op: tf.Operation, tensors: list[tf.Tensor], dtypes: dict[Any, Any]) -> list[tf.Tensor]:
    attributes = _attributes(op, dtypes)
    found = execute.execute(
        op.type.encode(), len(op.outputs), inputs=tensors, attrs=attributes, ctx=context.context()
    )  # fmt: skip
    if execute.must_record_gradient():
        execute.record_gradient(op.type, tensors, attributes, found)
    return list(found)


def _attributes(op: tf.Operation, dtypes: dict[Any, Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for attribute in op.op_def.attr:
        value = op.get_attr(attribute.name)
        if attribute.type == "func":
            value = value.name
        elif attribute.type == "shape":
            value = _shape(value)
        elif attribute.type == "list(shape)":
            value = [_shape(shape) for shape in value]
        elif attribute.type == "type":
            value = dtypes.get(value, value)
        found += [attribute.name, value]
    return tuple(found)


def _shape(proto: Any) -> list[int] | None:
    return tf.TensorShape(proto).as_list() if not proto.unknown_rank else None


def _in_graph(op: tf.Operation, tensors: list[tf.Tensor]) -> list[tf.Tensor]:
    """Add the operation to the current graph, under its open tapes."""
    graph = tf.compat.v1.get_default_graph()
    own = {a.name for a in op.op_def.attr}
    attributes = {name: value for name, value in op.node_def.attr.items() if name in own}
    made = graph._create_op_internal(  # not public; the public one is deprecated, and warns
        op.type, [tf.convert_to_tensor(x) for x in tensors], [x.dtype for x in op.outputs], attrs=attributes
    )
    found = list(made.outputs)
    if execute.must_record_gradient():
        flat = tuple(part for a in op.op_def.attr for part in (a.name, made.get_attr(a.name)))
        execute.record_gradient(op.type, list(made.inputs), flat, found)
    return found


def _gathered(op: tf.Operation, variable: tf.Variable, indices: Any) -> tf.Tensor:
    return tf.gather(tf.identity(variable), indices, batch_dims=op.get_attr("batch_dims"))


BY_HANDLE: dict[str, Callable[..., tf.Tensor]] = {  # what reads a variable, for the tapes that are open now
    "ReadVariableOp": lambda op, variable: tf.identity(variable),
    "ResourceGather": _gathered,
    "ResourceGatherNd": lambda op, variable, indices: tf.gather_nd(tf.identity(variable), indices),
}


def value_of(op: tf.Operation) -> np.ndarray:
    """Value of a constant operation."""
    return tf.make_ndarray(op.get_attr("value"))
