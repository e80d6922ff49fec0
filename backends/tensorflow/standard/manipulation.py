"""Shapes, and elements by their places."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf

from ...standard.library import axes_of, one_axis
from .library import along_axis, flat, sizes

broadcast_to = tf.broadcast_to
matrix_transpose = tf.linalg.matrix_transpose


def common_shape(*shapes: Sequence[Any]) -> Any:
    """The shape to which arrays of these shapes are broadcast."""
    if all(isinstance(n, int) for shape in shapes for n in shape):
        return np.broadcast_shapes(*map(tuple, shapes))
    return reduce(tf.broadcast_dynamic_shape, [tf.cast(tf.stack(list(shape)), tf.int64) for shape in shapes])


def broadcast_arrays(*arrays: Any) -> list[Any]:
    """The arrays in their common shape."""
    arrays = tuple(map(tf.convert_to_tensor, arrays))
    shape = common_shape(*map(sizes, arrays))
    return [tf.broadcast_to(x, shape) for x in arrays]


def concat(arrays: list[Any], /, *, axis: int | None) -> Any:
    """The arrays one after the other; flat ones where the axis is None."""
    return tf.concat([flat(x) for x in arrays], 0) if axis is None else tf.concat(arrays, axis)


def stack(arrays: list[Any], /, *, axis: int) -> Any:
    """The arrays along a new axis."""
    return tf.stack(arrays, axis)


def unstack(x: Any, /, *, axis: int = 0) -> tuple[Any, ...]:
    """The parts along an axis."""
    return tuple(tf.unstack(x, axis=axis))


def expand_dims(x: Any, /, axis: int | Sequence[int]) -> Any:
    """New axes of length 1, at these places of the new shape."""
    count = len(axis) if hasattr(axis, "__len__") else 1
    for a in sorted(axes_of(axis, len(x.shape) + count)):
        x = tf.expand_dims(x, a)
    return x


def squeeze(x: Any, /, axis: int | Sequence[int]) -> Any:
    """Without these axes, which have length 1."""
    axes = axes_of(axis, len(x.shape))
    if any(x.shape[a] not in (1, None) for a in axes):
        raise ValueError(f"xp.squeeze got axis={axis} of the shape {tuple(x.shape)}; expected axes of length 1.")
    return tf.squeeze(x, axes) if axes else tf.convert_to_tensor(x)


def flip(x: Any, /, *, axis: int | Sequence[int] | None = None) -> Any:
    """The elements in the other order."""
    axes = axes_of(axis, len(x.shape))
    return tf.reverse(x, axes) if axes else tf.convert_to_tensor(x)


def permute_dims(x: Any, /, axes: Sequence[int]) -> Any:
    """The axes in another order."""
    return tf.transpose(x, axes_of(axes, len(x.shape)))


def moveaxis(x: Any, source: int | Sequence[int], destination: int | Sequence[int], /) -> Any:
    """Axes at other places; the others keep their order."""
    count = len(x.shape)
    old, new = axes_of(source, count), axes_of(destination, count)
    order = [a for a in range(count) if a not in old]
    for place, a in sorted(zip(new, old, strict=True)):
        order.insert(place, a)
    return tf.transpose(x, order)


def reshape(x: Any, /, shape: Sequence[int], *, copy: bool | None = None) -> Any:
    """The elements in another shape; tensors never change, so that a copy makes no difference."""
    return tf.reshape(x, shape)


def roll(x: Any, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None) -> Any:
    """The elements shifted around."""
    if axis is None:
        return tf.reshape(tf.roll(flat(x), shift, 0), sizes(x))
    if not isinstance(axis, int):
        shift = (shift,) * len(axis) if isinstance(shift, int) else tuple(shift)
        axis = tuple(axis)
    return tf.roll(x, shift, axis)


def repeat(x: Any, repeats: Any, /, *, axis: int | None = None) -> Any:
    """Each element so many times; by places, as `tf.repeat` refuses some empty arrays and integers."""
    x, axis = (flat(x), 0) if axis is None else (tf.convert_to_tensor(x), axes_of(axis, len(x.shape))[0])
    places = tf.repeat(tf.range(sizes(x)[axis]), repeats)
    return tf.squeeze(tf.gather(x[None], places, axis=axis + 1), 0)  # along the first axis derivatives were no tensors


def tile(x: Any, repetitions: Sequence[int], /) -> Any:
    """The whole so many times."""
    count = max(len(x.shape), len(repetitions))
    x = tf.reshape(x, [1] * (count - len(x.shape)) + sizes(x))
    repetitions = [1] * (count - len(repetitions)) + list(repetitions)
    if x.dtype == tf.uint16:  # TensorFlow tiles none
        return tf.cast(tf.tile(tf.cast(x, tf.int32), repetitions), x.dtype)
    return tf.tile(x, repetitions)


def take(x: Any, indices: Any, /, *, axis: int | None = None) -> Any:
    """The parts at these places along an axis."""
    axis = one_axis("take", x, axis)
    return tf.gather(x, _not_negative(indices, sizes(x)[axis]), axis=axis)


def take_along_axis(x: Any, indices: Any, /, *, axis: int = -1) -> Any:
    """The elements at these places along an axis, line by line."""
    axis, indices = axes_of(axis, len(x.shape))[0], tf.convert_to_tensor(indices)
    own, places = sizes(x), sizes(indices)
    length, count = own[axis], places[axis]
    own[axis] = places[axis] = 1
    shape = common_shape(own, places)
    before, after = shape[:axis], shape[axis + 1 :]
    x = tf.broadcast_to(x, joined(before, [length], after))
    return along_axis(x, tf.broadcast_to(_not_negative(indices, length), joined(before, [count], after)), axis)


def joined(*parts: Any) -> Any:
    """Parts of a shape, some of which may be tensors, as one shape."""
    if not any(isinstance(part, tf.Tensor) or any(isinstance(n, tf.Tensor) for n in part) for part in parts):
        return [n for part in parts for n in part]
    return tf.concat([tf.cast(part, tf.int64) for part in parts if isinstance(part, tf.Tensor) or len(part)], 0)


def _not_negative(indices: Any, length: Any) -> Any:
    indices = tf.cast(indices, tf.int64)
    return tf.where(indices < 0, indices + tf.cast(length, tf.int64), indices)


def diff(x: Any, /, *, axis: int, n: int, prepend: Any = None, append: Any = None) -> Any:
    """Differences of neighbours."""
    if n == 0:
        return tf.identity(x)
    axis = axes_of(axis, len(x.shape))[0]
    x = tf.concat([part for part in (prepend, x, append) if part is not None], axis)
    before = (slice(None),) * axis
    for _ in range(n):
        after, until = x[(*before, slice(1, None))], x[(*before, slice(None, -1))]
        x = tf.not_equal(after, until) if x.dtype == tf.bool else after - until
    return x
