"""Reductions over one axis, several or none (`axis=()`), and sums along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod as product
from typing import Any

import tensorflow as tf

from ...standard.library import axes_of, one_axis
from .library import COMPLEX, cast, over, sizes

Axis = int | Sequence[int] | None


def sum(x: Any, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The sum."""
    return over(tf.reduce_sum, x if dtype is None else tf.cast(x, dtype), axis, keepdims)


def prod(x: Any, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Any:
    """The product."""
    return over(tf.reduce_prod, x if dtype is None else tf.cast(x, dtype), axis, keepdims)


def max(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The largest element; NaN where there is one."""
    return over(tf.reduce_max, _not_empty(x, axis, "max"), axis, keepdims)


def min(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The smallest element; NaN where there is one."""
    return over(tf.reduce_min, _not_empty(x, axis, "min"), axis, keepdims)


def _not_empty(x: Any, axis: Axis, function: str) -> Any:
    """TensorFlow would give an infinity."""
    if any_zero := [a for a in axes_of(axis, len(x.shape)) if x.shape[a] == 0]:
        raise ValueError(f"xp.{function} got no elements along axis {any_zero[0]}; expected at least one.")
    return x


def mean(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """The mean."""
    if x.dtype in COMPLEX and 0 in x.shape:  # of no complex numbers TensorFlow's mean is 0
        return tf.complex(*(over(tf.reduce_mean, part(x), axis, keepdims) for part in (tf.math.real, tf.math.imag)))
    return over(tf.reduce_mean, x, axis, keepdims)


def var(x: Any, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The sum of squared deviations, divided by their number less `correction`."""
    deviation = x - over(tf.reduce_mean, x, axis, True) if axis != () else x - x
    squares = tf.math.real(deviation * tf.math.conj(deviation)) if x.dtype in COMPLEX else tf.square(deviation)
    shape = sizes(x)
    count = tf.cast(product(shape[a] for a in axes_of(axis, len(shape))), squares.dtype)
    return over(tf.reduce_sum, squares, axis, keepdims) / tf.maximum(count - correction, tf.zeros_like(count))


def std(x: Any, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> Any:
    """The square root of `var`."""
    return root(var(x, axis=axis, correction=correction, keepdims=keepdims))


def root(x: Any, power: Any = 2) -> Any:
    """A root whose derivative at 0 is 0, where it is infinite, so that no NaN comes of 0 times it."""
    zero = x == 0
    positive = tf.where(zero, tf.ones_like(x), x)
    return tf.where(zero, x, tf.sqrt(positive) if power == 2 else positive ** (1 / power))


def any(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Is an element true, that is not 0?"""
    return over(tf.reduce_any, cast(x, tf.bool), axis, keepdims)


def all(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """Are all elements true, that is not 0?"""
    return over(tf.reduce_all, cast(x, tf.bool), axis, keepdims)


def count_nonzero(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
    """How many elements are not 0?"""
    return over(tf.reduce_sum, tf.cast(cast(x, tf.bool), tf.int64), axis, keepdims)


def _along(name: str, function: Callable[..., Any], first: int) -> Callable[..., Any]:
    """A cumulative function; `include_initial` puts its value for no elements in front."""

    def cumulative(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Any:
        axis = one_axis(name, x, axis)
        found = function(x if dtype is None else tf.cast(x, dtype), axis)
        if not include_initial:
            return found
        shape = sizes(found)
        shape[axis] = 1
        return tf.concat([tf.fill(shape, tf.cast(first, found.dtype)), found], axis)

    cumulative.__name__ = name
    return cumulative


def _products(x: Any, axis: int) -> Any:
    """By pairs, pairs of pairs and so on: TensorFlow's own derivative of `cumprod` is 0 from the first 0 on."""
    if not (x.dtype.is_floating or x.dtype.is_complex):
        return tf.math.cumprod(x, axis)
    count = sizes(x)[axis]
    line = tf.reshape(tf.range(count), [-1 if a == axis else 1 for a in range(len(x.shape))])

    def doubled(step: Any, found: Any) -> tuple[Any, Any]:
        before = tf.where(line < tf.cast(step, line.dtype), tf.ones_like(found), tf.roll(found, step, axis))
        return 2 * step, found * before

    def goes_on(step: Any, _: Any) -> Any:
        return tf.cast(step, tf.int64) < tf.cast(count, tf.int64)

    return tf.while_loop(goes_on, doubled, (tf.constant(1), tf.convert_to_tensor(x)))[1]


cumulative_sum = _along("cumulative_sum", tf.cumsum, 0)
cumulative_prod = _along("cumulative_prod", _products, 1)
