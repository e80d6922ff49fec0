"""Sorting, searching and sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from ...standard.library import axes_of
from ...standard.promotion import UniqueAll, parts_of
from .library import COMPLEX, along_axis, cast, flat, sizes


def argsort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The places of the elements in order; equal ones keep theirs, and NaN is larger than all numbers."""
    if x.dtype in COMPLEX:
        raise TypeError("Complex numbers are not sorted.")  # `promotion.in_order` says more
    axis = axes_of(axis, len(x.shape))[0]
    order = "DESCENDING" if descending else "ASCENDING"
    if not x.dtype.is_floating:
        numbers = tf.cast(x, tf.int32) if x.dtype == tf.bool else x
        return tf.cast(tf.argsort(numbers, axis, order, stable=True), tf.int64)
    # TensorFlow's order is that of no other elements either where there is NaN
    not_numbers = tf.math.is_nan(x)
    places = tf.argsort(tf.where(not_numbers, tf.constant(np.inf, x.dtype), x), axis, order, stable=True)
    last = along_axis(tf.cast(not_numbers, tf.int32), places, axis)
    return tf.cast(along_axis(places, tf.argsort(last, axis, order, stable=True), axis), tf.int64)


def sort(x: Any, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Any:
    """The elements in order along an axis."""
    return along_axis(x, argsort(x, axis=axis, descending=descending), axes_of(axis, len(x.shape))[0])


def _place_of(function: Callable[..., Any], extreme: Callable[..., Any], name: str) -> Callable[..., Any]:
    def place(x: Any, /, *, axis: int | None = None, keepdims: bool = False) -> Any:
        count = len(x.shape)
        x, axis, kept = (flat(x), 0, [1] * count) if axis is None else (x, axes_of(axis, count)[0], None)
        if x.shape[axis] == 0:
            raise ValueError(f"xp.{name} got no elements along axis {axis}; expected at least one.")
        if not x.dtype.is_floating:
            found = function(tf.cast(x, tf.int32) if x.dtype == tf.bool else x, axis, tf.int64)
        else:  # TensorFlow begins with a finite number, so not for infinities; and NaN is the result of max and min
            found = tf.argmax(tf.cast(x == extreme(x, axis, keepdims=True), tf.int32), axis, tf.int64)
            not_numbers = tf.math.is_nan(x)
            first = tf.argmax(tf.cast(not_numbers, tf.int32), axis, tf.int64)
            found = tf.where(tf.reduce_any(not_numbers, axis), first, found)
        if not keepdims:
            return found
        return tf.reshape(found, kept) if kept is not None else tf.expand_dims(found, axis)

    place.__name__ = name
    return place


argmax = _place_of(tf.argmax, tf.reduce_max, "argmax")
argmin = _place_of(tf.argmin, tf.reduce_min, "argmin")


def nonzero(x: Any, /) -> tuple[Any, ...]:
    """The places of the elements that are not 0, an array for each axis."""
    if len(x.shape) == 0:
        raise ValueError("xp.nonzero got an array without axes; expected one with places to name.")
    return tuple(tf.unstack(tf.where(cast(x, tf.bool)), axis=-1))


def searchsorted(x1: Any, x2: Any, /, *, side: str = "left", sorter: Any = None) -> Any:
    """Where elements would have to be put into a sorted array; NaN is larger than all numbers."""
    x1 = x1 if sorter is None else tf.gather(x1, sorter)
    if not x1.dtype.is_floating:
        return tf.reshape(tf.searchsorted(x1, flat(x2), side, tf.int64), sizes(x2))
    not_numbers = tf.math.is_nan(x1)  # which TensorFlow compares with nothing
    numbers = tf.reduce_sum(tf.cast(~not_numbers, tf.int64))
    infinite = tf.where(not_numbers, tf.constant(np.inf, x1.dtype), x1)
    found = tf.minimum(tf.searchsorted(infinite, flat(x2), side, tf.int64), numbers)
    last = numbers if side == "left" else tf.size(x1, tf.int64)
    return tf.reshape(tf.where(tf.math.is_nan(flat(x2)), last, found), sizes(x2))


def where(condition: Any, x1: Any, x2: Any, /) -> Any:
    """The first where the condition holds, else the second."""
    return tf.where(condition, x1, x2)


def unique_all(x: Any, /) -> UniqueAll:
    """The different elements in order, with their places and counts."""
    elements = flat(x)
    order = _order(elements)
    ordered = tf.gather(elements, order)
    new = tf.concat([tf.ones_like(order[:1], tf.bool), ordered[1:] != ordered[:-1]], 0)
    group = tf.cumsum(tf.cast(new, tf.int64)) - 1
    first = flat(tf.where(new))
    counts = tf.math.unsorted_segment_sum(tf.ones_like(group), group, tf.size(first, tf.int64))
    inverse = tf.scatter_nd(order[:, None], group, tf.shape(order, tf.int64))
    return UniqueAll(tf.gather(ordered, first), tf.gather(order, first), tf.reshape(inverse, sizes(x)), counts)


def _order(elements: Any) -> Any:
    """Places in order; of complex numbers, by the real and then by the imaginary part."""
    if elements.dtype not in COMPLEX:
        return argsort(elements)
    order = argsort(tf.math.imag(elements))
    return tf.gather(order, argsort(tf.math.real(tf.gather(elements, order))))


unique_counts, unique_inverse, unique_values = parts_of(unique_all)
