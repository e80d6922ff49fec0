"""Lists of tensors, by which loops keep what they compute: lists of values here, as their elements may depend on x.

A list is never changed, as in TensorFlow: each operation makes a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from ....backends.tensorflow.program import tensor_of
from ..engine import coefficients as co
from ..engine.linear import Linear
from ..engine.operands import integers, plus, shape_of, static
from ..engine.structural import concatenate, cut, element, stack

Value = Any  # a `Linear`, a coefficient, a tensor; None in a list: not set yet


class TensorList(tuple[Value, ...]):
    """The elements of one list."""

    __slots__ = ()


def _number(value: Any) -> int:
    return int(static("length or index", value))


def _set(op: tf.Operation, values: TensorList, index: Any, item: Any) -> TensorList:
    k = _number(index)
    found = [*values, *[None] * (k + 1 - len(values))]
    found[k] = item
    return TensorList(found)


def _or_zeros(op: tf.Operation, values: TensorList, chosen: Sequence[Value], shape: Any) -> list[Value]:
    """The elements, with zeros for what was never set."""
    if not any(value is None for value in chosen):
        return list(chosen)
    known = next((shape_of(value) for value in values if value is not None and not _is_error(value)), None)
    lengths = integers("shape", shape) if known is None else known
    zeros = np.zeros(lengths, op.get_attr("element_dtype").as_numpy_dtype)
    return [zeros if value is None else value for value in chosen]


def _stack(op: tf.Operation, values: TensorList, shape: Any) -> Value:
    items = _or_zeros(op, values, values, shape)
    for item in items:
        if _is_error(item):
            raise item
    if not items:
        lengths = [max(n, 0) for n in integers("shape", shape)]
        return np.zeros([0, *lengths], op.get_attr("element_dtype").as_numpy_dtype)
    if any(isinstance(item, Linear) for item in items):
        return stack([item if isinstance(item, Linear) else _array(item) for item in items], 0)
    return tf.stack([tensor_of(item) for item in items]) if not all(map(co.known, items)) else np.stack(items)


def _gather(op: tf.Operation, values: TensorList, indices: Any, shape: Any) -> Value:
    return _stack(op, TensorList(values[k] for k in integers("index", indices)), shape)


def _scatter(op: tf.Operation, x: Any, indices: Any, shape: Any, count: Any) -> TensorList:
    where = integers("index", indices)
    found: list[Value] = [None] * max([_number(count), *(k + 1 for k in where)])
    for i, k in enumerate(where):
        found[k] = element(x, i)
    return TensorList(found)


def _concat(op: tf.Operation, values: TensorList, shape: Any, lengths: Any) -> list[Value]:
    items = _or_zeros(op, values, values, shape)
    sizes = np.asarray([shape_of(item)[0] for item in items], np.int64)
    if any(isinstance(item, Linear) for item in items):
        return [concatenate([item if isinstance(item, Linear) else _array(item) for item in items], 0), sizes]
    return [tf.concat([tensor_of(item) for item in items], 0), sizes]


def _split(op: tf.Operation, x: Any, shape: Any, lengths: Any) -> TensorList:
    ends = np.cumsum([0, *integers("lengths", lengths)])
    return TensorList(cut(x, 0, int(a), int(b)) for a, b in pairwise(ends))


def _pop(op: tf.Operation, values: TensorList, shape: Any) -> list[Value]:
    return [TensorList(values[:-1]), _or_zeros(op, values, values[-1:], shape)[0]]


def _resize(op: tf.Operation, values: TensorList, size: Any) -> TensorList:
    n = _number(size)
    return TensorList([*values[:n], *[None] * (n - len(values))])


def _zeros_like(op: tf.Operation, values: Any) -> Any:
    return TensorList(None if value is None else np.zeros(shape_of(value), _dtype(value)) for value in values)


def _plus(op: tf.Operation, *lists: Any) -> Any:
    """The sum of lists, as of their derivatives."""
    found = lists[0]
    for other in lists[1:]:
        found = TensorList(
            b if a is None else a if b is None else plus(_array(a), _array(b)) for a, b in zip(found, other)
        )
    return found


def _array(item: Value) -> Value:
    return item if isinstance(item, (Linear, tf.Tensor)) else np.asarray(item)


def _is_error(item: Value) -> bool:
    return isinstance(item, Exception)


def _dtype(item: Value) -> np.dtype:
    return np.dtype(item.dtype.as_numpy_dtype) if isinstance(item, tf.Tensor) else item.dtype


def element_shape(op: tf.Operation, values: TensorList) -> np.ndarray:
    """That of all elements, -1 where it is not known."""
    known = next((shape_of(value) for value in values if value is not None and not _is_error(value)), None)
    return np.asarray(-1 if known is None else known, op.outputs[0].dtype.as_numpy_dtype)


LISTS: dict[str, Callable[..., Any]] = {
    "TensorListReserve": lambda op, shape, count: TensorList([None] * _number(count)),
    "EmptyTensorList": lambda op, shape, most: TensorList(),
    "TensorListFromTensor": lambda op, x, shape: TensorList(element(x, k) for k in range(int(x.shape[0]))),
    "TensorListSetItem": _set,
    "TensorListGetItem": lambda op, values, index, shape: _or_zeros(op, values, [values[_number(index)]], shape)[0],
    "TensorListStack": _stack,
    "TensorListGather": _gather,
    "TensorListScatterV2": _scatter,
    "TensorListConcatV2": _concat,
    "TensorListSplit": _split,
    "TensorListPushBack": lambda op, values, item: TensorList([*values, item]),
    "TensorListPopBack": _pop,
    "TensorListLength": lambda op, values: np.asarray(len(values), np.int32),
    "TensorListElementShape": element_shape,
    "TensorListResize": _resize,
}
WRITES_ITEM = ("TensorListSetItem", "TensorListPushBack")
ON_LISTS: dict[str, Callable[..., Any]] = {  # operations of tensors that also act on lists
    "ZerosLike": _zeros_like,
    "AddN": _plus,
    "AddV2": _plus,
    "Identity": lambda op, values: values,
    "StopGradient": lambda op, values: values,
}
