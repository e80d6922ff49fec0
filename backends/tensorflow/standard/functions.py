"""Dtypes, new tensors, elementwise functions, reductions, orders and shapes: `tf.*` by the standard's names."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import reduce, wraps
from math import prod as product
from typing import Any

import numpy as np
import tensorflow as tf

from ...standard.library import DTYPES, ArrayLibrary, axes_of, named, one_axis
from ...standard.promotion import UniqueAll, parts_of

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


# --- New tensors; dtypes are given, see `backends/standard/creation.py` -----------------------------------------------

_HOST = 1  # of DLPack's kinds of devices


def asarray(obj: Any, /, *, dtype: Any, device: Any, copy: bool | None) -> Any:
    """A tensor of a tensor, or of a copy of an array of NumPy."""
    with on_device(device):
        if isinstance(obj, (tf.Tensor, tf.Variable)):
            x = tf.convert_to_tensor(obj)
            x = x if dtype is None else cast(x, dtype)
            return tf.identity(x) if copy or device is not None else x
        if copy is False:
            raise ValueError("xp.asarray got copy=False and an array of another library, of which TensorFlow copies.")
        # TensorFlow may keep the memory of an array of NumPy, which its owner may write to
        return tf.convert_to_tensor(np.array(obj, None if dtype is None else dtype.as_numpy_dtype))


def astype(x: Any, dtype: Any, /, *, copy: bool, device: Any) -> Any:
    """`x` in another dtype."""
    return asarray(x, dtype=dtype, device=device, copy=copy)


def _filled(value: int) -> Any:
    def filled(shape: Any, *, dtype: Any, device: Any) -> Any:
        return full(shape, value, dtype=dtype, device=device)

    def filled_like(x: Any, /, *, dtype: Any, device: Any) -> Any:
        return full(sizes(x), value, dtype=dtype, device=device)

    return filled, filled_like


zeros, zeros_like = _filled(0)
ones, ones_like = _filled(1)
empty, empty_like = zeros, zeros_like


def full(shape: Any, fill_value: Any, *, dtype: Any, device: Any) -> Any:
    """A number, or a tensor without axes, everywhere."""
    with on_device(device):
        if isinstance(fill_value, (tf.Tensor, tf.Variable)):
            return tf.fill(shape, tf.cast(fill_value, dtype))
        return tf.fill(shape, tf.constant(np.asarray(fill_value).astype(dtype.as_numpy_dtype)))


def full_like(x: Any, /, fill_value: Any, *, dtype: Any, device: Any) -> Any:
    """A number everywhere, in the shape of `x`."""
    return full(sizes(x), fill_value, dtype=dtype, device=device)


def arange(start: Any, stop: Any, step: Any, *, dtype: Any, device: Any) -> Any:
    """`start + i step` below `stop`."""
    with on_device(device):
        return tf.constant(np.arange(start, stop, step).astype(dtype.as_numpy_dtype))


def linspace(start: Any, stop: Any, num: int, *, dtype: Any, device: Any, endpoint: bool) -> Any:
    """`num` numbers from `start` to `stop`."""
    with on_device(device):
        return tf.constant(np.linspace(start, stop, num, endpoint=endpoint).astype(dtype.as_numpy_dtype))


def eye(n_rows: int, n_cols: int, /, *, k: int, dtype: Any, device: Any) -> Any:
    """Ones on the k-th diagonal."""
    with on_device(device):
        return tf.cast(tf.range(n_rows)[:, None] + k == tf.range(n_cols), dtype)


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[Any]:
    """Coordinates of a grid, one array for each axis; TensorFlow's multiplies by ones: inf becomes NaN."""
    if indexing not in ("xy", "ij"):
        raise ValueError(f"xp.meshgrid got indexing={indexing!r}; expected 'xy' or 'ij'.")
    count = len(arrays)
    axes = [1, 0, *range(2, count)] if indexing == "xy" and count > 1 else [*range(count)]
    lines = [
        tf.reshape(x, [-1 if other == axis else 1 for other in range(count)])
        for x, axis in zip(arrays, axes, strict=True)
    ]
    shape = [sizes(flat(arrays[axes.index(axis)]))[0] for axis in range(count)]
    return [tf.broadcast_to(x, shape) for x in lines]


def tril(x: Any, /, *, k: int = 0) -> Any:
    """The part below the k-th diagonal, with it."""
    row, column = _rows_and_columns(x)
    return tf.where(column - row <= k, x, tf.zeros((), x.dtype))


def triu(x: Any, /, *, k: int = 0) -> Any:
    """The part above the k-th diagonal, with it."""
    row, column = _rows_and_columns(x)
    return tf.where(column - row >= k, x, tf.zeros((), x.dtype))


def _rows_and_columns(x: Any) -> tuple[Any, Any]:
    *_, rows, columns = sizes(x)
    return tf.range(rows)[:, None], tf.range(columns)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Any:
    """A tensor of another library's array; by way of the host's memory, as TensorFlow ends the process at some."""
    if isinstance(x, tf.Tensor):
        return asarray(x, dtype=None, device=device, copy=copy)
    if x.__dlpack_device__()[0] != _HOST:
        shared = tf.experimental.dlpack.from_dlpack(x.__dlpack__())
        return asarray(shared, dtype=None, device=device, copy=copy)
    return asarray(np.from_dlpack(x), dtype=None, device=device, copy=copy)


# --- Elementwise functions: TensorFlow's by the standard's names, and what they lack for some dtypes ------------------

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


# --- Reductions over one axis, several or none (`axis=()`), and sums along an axis ------------------------------------

Axis = int | Sequence[int] | None


def _total(function: _Function, name: str) -> _Function:
    def total(x: Any, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Any:
        return over(function, x if dtype is None else tf.cast(x, dtype), axis, keepdims)

    return named(total, name)


def _of_truth(function: _Function, name: str) -> _Function:
    def of_truth(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
        return over(function, cast(x, tf.bool), axis, keepdims)

    return named(of_truth, name)


sum, prod = _total(tf.reduce_sum, "sum"), _total(tf.reduce_prod, "prod")
any, all = _of_truth(tf.reduce_any, "any"), _of_truth(tf.reduce_all, "all")


def _extreme(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The largest or smallest element; NaN where there is one, which XLA drops."""

    def extreme(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> Any:
        found = over(function, _not_empty(x, axis, name), axis, keepdims)
        if not x.dtype.is_floating:
            return found
        not_numbers = over(tf.reduce_any, tf.math.is_nan(x), axis, keepdims)
        return tf.where(not_numbers, tf.constant(np.nan, x.dtype), found)

    return named(extreme, name)


max, min = _extreme(tf.reduce_max, "max"), _extreme(tf.reduce_min, "min")


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

    return named(cumulative, name)


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


# --- Sorting, searching and sets --------------------------------------------------------------------------------------


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

    return named(place, name)


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


# --- Shapes, and elements by their places -----------------------------------------------------------------------------

broadcast_to = tf.broadcast_to
matrix_transpose = tf.linalg.matrix_transpose


def common_shape(*shapes: Sequence[Any]) -> Any:
    """The shape to which arrays of these shapes are broadcast."""
    if builtins.all(isinstance(n, int) for shape in shapes for n in shape):
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
    if builtins.any(x.shape[a] not in (1, None) for a in axes):
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
    count = builtins.max(len(x.shape), len(repetitions))
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
    if not builtins.any(
        isinstance(part, tf.Tensor) or builtins.any(isinstance(n, tf.Tensor) for n in part) for part in parts
    ):
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
