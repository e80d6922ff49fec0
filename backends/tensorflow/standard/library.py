"""TensorFlow's dtypes, how its tensors are cast and made, and their sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any

import numpy as np
import tensorflow as tf

from ...standard.library import DTYPES, ArrayLibrary, axes_of

WHOLE = frozenset(getattr(tf, name) for name in DTYPES[1:9])
UNSIGNED = frozenset(getattr(tf, name) for name in DTYPES[5:9])
COMPLEX = frozenset((tf.complex64, tf.complex128))


class TensorflowLibrary(ArrayLibrary):
    """New real numbers are in single precision, as TensorFlow has it; new integers have 64 bits."""

    name, module = "TensorFlow", "tensorflow"
    natives = {np.dtype(name): getattr(tf, name) for name in (*DTYPES, "float16")}  # noqa: RUF012
    extra_kinds = {tf.bfloat16: "f"}  # noqa: RUF012
    default_float = np.dtype(np.float32)
    max_axes = 8

    def is_array(self, x: Any) -> bool:
        return isinstance(x, (tf.Tensor, tf.Variable))

    def cast(self, x: Any, dtype: Any) -> Any:
        return cast(x, dtype)

    def constant(self, x: Any, dtype: Any, like: Any) -> Any:
        return tf.convert_to_tensor(np.asarray(x, dtype.as_numpy_dtype))

    def stack(self, arrays: list[Any]) -> Any:
        return tf.stack(arrays)

    def _promote_kind(self, a: Any, b: Any) -> Any:
        if a == b:
            return a
        return super()._promote_kind(*(tf.float32 if dtype == tf.bfloat16 else dtype for dtype in (a, b)))

    def devices(self) -> list[Any]:
        return [device.name for device in tf.config.list_logical_devices()]


def cast(x: Any, dtype: Any) -> Any:
    """`tf.cast`, but that 1j is true, and that the derivative of real numbers by way of complex ones warns of nothing.

    TensorFlow makes booleans of the real part alone.
    """
    if dtype == tf.bool and x.dtype in COMPLEX:
        return tf.not_equal(x, tf.zeros((), x.dtype))
    if dtype in COMPLEX and x.dtype.is_floating:
        real = tf.cast(x, dtype.real_dtype)
        return tf.complex(real, tf.zeros_like(real))
    return tf.cast(x, dtype)


def on_device(device: Any) -> AbstractContextManager[Any]:
    """Context in which new tensors are made there; None: where TensorFlow makes them."""
    return nullcontext() if device is None else tf.device(device)


def sizes(x: Any) -> list[Any]:
    """The shape: numbers where a graph knows them, else tensors."""
    if x.shape.is_fully_defined():
        return list(x.shape)
    dynamic = tf.shape(x, tf.int64)
    return [dynamic[i] if known is None else known for i, known in enumerate(x.shape)]


def flat(x: Any) -> Any:
    """The elements along one axis."""
    return tf.reshape(x, (-1,))


def over(function: Callable[..., Any], x: Any, axis: int | Sequence[int] | None, keepdims: bool) -> Any:
    """`function(x, axes, keepdims)`, also over no axes: then over a new one."""
    if axis is None:
        return function(x, None, keepdims)
    axes = axes_of(axis, len(x.shape))
    return function(x, list(axes), keepdims) if axes else function(tf.expand_dims(x, -1), [-1], False)


def along_axis(x: Any, places: Any, axis: int) -> Any:
    """The elements at these places along an axis, line by line, of two arrays that agree in the other axes."""
    if axis == len(x.shape) - 1:
        return tf.gather(x, places, batch_dims=axis)
    order = [a for a in range(len(x.shape)) if a != axis] + [axis]
    found = tf.gather(tf.transpose(x, order), tf.transpose(places, order), batch_dims=len(order) - 1)
    return tf.transpose(found, [order.index(a) for a in range(len(order))])


def in_int64(dtypes: frozenset[Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, for integers of these dtypes by way of int64; what overflows comes out the same."""

    @wraps(function)
    def widened(*arrays: Any, **settings: Any) -> Any:
        dtype = arrays[0].dtype
        if dtype not in dtypes:
            return function(*arrays, **settings)
        return tf.cast(function(*(tf.cast(x, tf.int64) for x in arrays), **settings), dtype)

    return widened
