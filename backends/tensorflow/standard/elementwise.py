"""Elementwise functions: TensorFlow's by the standard's names, and what they lack for some dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from .library import COMPLEX, UNSIGNED, WHOLE, cast, in_int64

_Function = Callable[..., Any]

not_equal, equal = tf.not_equal, tf.equal
subtract, multiply = tf.subtract, tf.multiply
remainder = tf.math.floormod
pow = in_int64(UNSIGNED, tf.pow)
negative = in_int64(UNSIGNED, tf.negative)
positive = tf.identity


def _not_of_whole(function: _Function, otherwise: _Function) -> _Function:
    """The function of real and complex numbers; of integers and booleans, `otherwise`."""

    def of_any(x: Any, /) -> Any:
        return otherwise(x) if x.dtype in WHOLE or x.dtype == tf.bool else function(x)

    return of_any


def _of_parts(function: _Function, join: _Function) -> _Function:
    """The function of real numbers, for both parts of complex ones."""

    def of_parts(x: Any) -> Any:
        return join(function(tf.math.real(x)), function(tf.math.imag(x))) if x.dtype in COMPLEX else function(x)

    return of_parts


def _truncated(x: Any) -> Any:
    return tf.where(x < 0, tf.math.ceil(x), tf.math.floor(x))


ceil, floor, round, trunc = (
    _not_of_whole(_of_parts(function, tf.complex), tf.identity)
    for function in (tf.math.ceil, tf.math.floor, tf.math.rint, _truncated)
)
isnan = _not_of_whole(_of_parts(tf.math.is_nan, tf.logical_or), lambda x: tf.zeros_like(x, tf.bool))
isinf = _not_of_whole(_of_parts(tf.math.is_inf, tf.logical_or), lambda x: tf.zeros_like(x, tf.bool))
isfinite = _not_of_whole(_of_parts(tf.math.is_finite, tf.logical_and), lambda x: tf.ones_like(x, tf.bool))


def abs(x: Any, /) -> Any:
    """The absolute value."""
    return tf.identity(x) if x.dtype in UNSIGNED else tf.abs(x)


def sign(x: Any, /) -> Any:
    """x / |x|, and 0 of 0."""
    if x.dtype in UNSIGNED:
        return tf.cast(x > tf.zeros((), x.dtype), x.dtype)
    if x.dtype not in COMPLEX:
        return tf.math.sign(x)
    a, b, _ = _scaled(x)
    size = hypot(a, b)
    size = tf.where(size == 0, tf.ones_like(size), size)
    return tf.complex(a / size, b / size)


def real(x: Any, /) -> Any:
    """The real part."""
    return tf.math.real(x) if x.dtype in COMPLEX else tf.convert_to_tensor(x)


def imag(x: Any, /) -> Any:
    """The imaginary part, 0 of real numbers."""
    return tf.math.imag(x) if x.dtype in COMPLEX else tf.zeros_like(x)


def conj(x: Any, /) -> Any:
    """The conjugate, of real numbers themselves."""
    return tf.math.conj(x) if x.dtype in COMPLEX else tf.convert_to_tensor(x)


def divide(x1: Any, x2: Any, /) -> Any:
    """The quotient; of complex numbers by Smith's algorithm, as NumPy: TensorFlow's is NaN for an infinite divisor."""
    if x1.dtype not in COMPLEX:
        return tf.divide(x1, x2)
    (a, b), (c, d) = ((tf.math.real(x), tf.math.imag(x)) for x in (x1, x2))
    flat = tf.abs(c) >= tf.abs(d)  # else all by i
    a, b, c, d = tf.where(flat, a, b), tf.where(flat, b, -a), tf.where(flat, c, d), tf.where(flat, d, -c)
    zero = c == 0  # then d is 0, too
    ratio = d / tf.where(zero, tf.ones_like(c), c)
    divisor = c + d * ratio
    real, imag = (a + b * ratio) / divisor, (b - a * ratio) / divisor
    return tf.complex(real, imag)


def reciprocal(x: Any, /) -> Any:
    """One over x."""
    return divide(tf.ones((), x.dtype), x) if x.dtype in COMPLEX else tf.math.reciprocal(x)


def floor_divide(x1: Any, x2: Any, /) -> Any:
    """The quotient rounded down; of real numbers by the exact remainder, as in NumPy."""
    if not x1.dtype.is_floating:
        return tf.math.floordiv(x1, x2)
    x1, x2 = tf.stop_gradient(x1), tf.stop_gradient(x2)  # TensorFlow has no derivative of a remainder like C's
    rest, ratio = tf.truncatemod(x1, x2), x1 / x2
    below = (rest != 0) & ((rest < 0) != (x2 < 0))
    whole = tf.math.rint((x1 - rest) / x2 - tf.cast(below, x1.dtype))
    return tf.where(x2 == 0, ratio, tf.where(whole == 0, copysign(tf.zeros_like(ratio), ratio), whole))


def _scaled(x: Any) -> tuple[Any, Any, Any]:
    """Both parts times a power of 4, with which no norm of them overflows or vanishes, and the root of that power.

    TensorFlow's own functions of long arrays of complex numbers square the parts as they are.
    """
    a, b = tf.math.real(x), tf.math.imag(x)
    root = tf.where(tf.maximum(tf.abs(a), tf.abs(b)) > 1, tf.ones_like(a) / 4, 4 * tf.ones_like(a))
    return a * root * root, b * root * root, root


def sqrt(x: Any, /) -> Any:
    """The square root."""
    if x.dtype not in COMPLEX:
        return tf.sqrt(x)
    a, b, root = _scaled(x)
    one = tf.ones_like(a)
    side = tf.where(signbit(b), -one, one)  # not of abs, which has no derivative at 0
    first = tf.sqrt((tf.abs(a) + hypot(a, b)) / 2)
    second = side * b / tf.where(first == 0, one, 2 * first)
    second = tf.where(tf.math.is_inf(b), side * b, second)
    real, imag = tf.where(a < 0, second, first), tf.where(a < 0, first, second)
    return tf.complex(real / root, side * imag / root)


def log(x: Any, /) -> Any:
    """The logarithm."""
    if x.dtype not in COMPLEX:
        return tf.math.log(x)
    return _log_of_parts(tf.math.real(x), tf.math.imag(x))


def _log_of_parts(a: Any, b: Any) -> Any:
    one = tf.ones_like(a)
    scale = tf.where(tf.maximum(tf.abs(a), tf.abs(b)) > a.dtype.max / 4, one / 4, one)
    return tf.complex(tf.math.log(hypot(a * scale, b * scale)) - tf.math.log(scale), tf.atan2(b, a))


def log1p(x: Any, /) -> Any:
    """log(1 + x), exact where x is small."""
    if x.dtype not in COMPLEX:
        return tf.math.log1p(x)
    a, b = tf.math.real(x), tf.math.imag(x)
    large = hypot(a, b) > 1
    near = tf.math.log1p(tf.where(large, tf.zeros_like(x), x))
    return tf.where(large, _log_of_parts(1 + a, b), near)


def log2(x: Any, /) -> Any:
    """The logarithm to the base 2."""
    return _over_real(log(x), math.log(2))


def log10(x: Any, /) -> Any:
    """The logarithm to the base 10."""
    return _over_real(log(x), math.log(10))


def _over_real(x: Any, number: float) -> Any:
    """A quotient part by part: TensorFlow's own of complex numbers is NaN where a part is infinite."""
    divisor = tf.constant(number, x.dtype.real_dtype)
    if x.dtype in COMPLEX:
        return tf.complex(tf.math.real(x) / divisor, tf.math.imag(x) / divisor)
    return x / divisor


def signbit(x: Any, /) -> Any:
    """Is the sign negative, of -0.0 too?"""
    return tf.bitcast(x, {2: tf.int16, 4: tf.int32, 8: tf.int64}[x.dtype.size]) < 0


def copysign(x1: Any, x2: Any, /) -> Any:
    """|x1| with the sign of x2."""
    return tf.where(signbit(x1) == signbit(x2), x1, -x1)


def hypot(x1: Any, x2: Any, /) -> Any:
    """The square root of the sum of squares, of numbers of any magnitude."""
    a, b = tf.abs(x1), tf.abs(x2)
    second = b > a  # not maximum and minimum, whose derivatives both belong to the first of two equal numbers
    large, small = tf.where(second, b, a), tf.where(second, a, b)
    infinite = tf.math.is_inf(a) | tf.math.is_inf(b)
    ratio = small / tf.where((large == 0) | infinite, tf.ones_like(large), large)
    ratio = tf.where(infinite, tf.zeros_like(ratio), ratio)
    return tf.where(infinite, tf.constant(np.inf, large.dtype), large * tf.sqrt(1 + ratio * ratio))


def logaddexp(x1: Any, x2: Any, /) -> Any:
    """log(exp(x1) + exp(x2))."""
    second = x2 > x1
    large, small = tf.where(second, x2, x1), tf.where(second, x1, x2)
    equal_infinite = tf.math.is_inf(large) & (large == small)
    difference = tf.where(equal_infinite, tf.zeros_like(large), small - large)
    return large + tf.math.log1p(tf.exp(difference))


def _logical(function: _Function) -> _Function:
    def logical(x1: Any, x2: Any, /) -> Any:
        return function(cast(x1, tf.bool), cast(x2, tf.bool))

    return logical


def _bitwise(function: _Function, of_booleans: _Function) -> _Function:
    def bitwise(x1: Any, x2: Any, /) -> Any:
        return of_booleans(x1, x2) if x1.dtype == tf.bool else function(x1, x2)

    return bitwise


logical_and, logical_or, logical_xor = map(_logical, (tf.logical_and, tf.logical_or, tf.math.logical_xor))
bitwise_and = _bitwise(tf.bitwise.bitwise_and, tf.logical_and)
bitwise_or = _bitwise(tf.bitwise.bitwise_or, tf.logical_or)
bitwise_xor = _bitwise(tf.bitwise.bitwise_xor, tf.math.logical_xor)


def logical_not(x: Any, /) -> Any:
    """Is an element false, that is 0?"""
    return tf.logical_not(cast(x, tf.bool))


def bitwise_invert(x: Any, /) -> Any:
    """All bits the other way round."""
    return tf.logical_not(x) if x.dtype == tf.bool else tf.bitwise.invert(x)


def bitwise_left_shift(x1: Any, x2: Any, /) -> Any:
    """`x1` times a power of two; 0 where all bits are shifted out."""
    wide, places = _places(x1, x2)
    return tf.where(wide, tf.zeros((), x1.dtype), tf.bitwise.left_shift(x1, places))


def bitwise_right_shift(x1: Any, x2: Any, /) -> Any:
    """`x1` divided by a power of two, rounded down."""
    wide, places = _places(x1, x2)
    shifted = tf.bitwise.right_shift(x1, places)
    last = tf.zeros_like(shifted) if x1.dtype in UNSIGNED else -tf.cast(shifted < 0, x1.dtype)
    return tf.where(wide, last, shifted)


def _places(x1: Any, x2: Any) -> tuple[Any, Any]:
    """Where more bits are shifted than there are, which TensorFlow leaves undefined, and at most all but one."""
    bits = tf.constant(8 * x1.dtype.size, x2.dtype)
    wide = x2 >= bits
    return wide, tf.where(wide, bits - tf.ones((), x2.dtype), x2)


def clip(x: Any, min: Any, max: Any) -> Any:
    """`x` between two bounds."""
    x = tf.identity(x) if min is None else tf.maximum(x, min)
    return x if max is None else tf.minimum(x, max)
