"""NumPy rules for known operands: arithmetic, comparison, functions of one element at a time.

A number that was broadcast to a grid is added once. Integers are divided towards zero, and by zero by JAX only:

>>> grid = np.broadcast_to(2.0, (100, 100))
>>> ELEMENTWISE["add"]([grid, grid], {}, [grid])
array([[4.]])
>>> i = np.array([-7, 7])
>>> ELEMENTWISE["div"]([i, np.array([2, 2])], {}, [i])
array([-3,  3])
>>> ELEMENTWISE["div"]([i, np.array([2, 0])], {}, [i]) is None
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import special

from ...engine.coefficients import pointwise

Args = Sequence[np.ndarray]
Params = dict[str, Any]


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function(*arrays)` as a rule, which computes once what is the same along an axis."""

    def rule(args: Args, params: Params, avals: Sequence[Any]) -> Any:
        return pointwise(function, args, avals[0].shape)

    return rule


def _floats(function: Callable[..., Any]) -> Callable[..., Any]:
    """Half precision is left to JAX, which computes in single and rounds once."""
    evaluate = once(function)

    def rule(args: Args, params: Params, avals: Sequence[Any]) -> Any:
        usual = all(a.dtype.char in "fdFD" for a in args)
        return evaluate(args, params, avals) if usual else None

    return rule


def _real_floats(function: Callable[..., Any]) -> Callable[..., Any]:
    evaluate = _floats(function)

    def rule(args: Args, params: Params, avals: Sequence[Any]) -> Any:
        return None if any(a.dtype.kind == "c" for a in args) else evaluate(args, params, avals)

    return rule


def _divide(x: np.ndarray, y: np.ndarray) -> Any:
    if x.dtype.kind not in "iu":
        return x / y
    if not y.all():
        return None
    quotient = x // y
    return quotient + ((x % y != 0) & ((x < 0) != (y < 0))) if x.dtype.kind == "i" else quotient  # towards zero


def _remainder(x: np.ndarray, y: np.ndarray) -> Any:
    return None if x.dtype.kind in "iu" and not y.all() else np.fmod(x, y)


def _shift(function: Callable[..., Any]) -> Callable[..., Any]:
    def shifted(x: np.ndarray, by: np.ndarray) -> Any:
        inside = not by.size or (by.min() >= 0 and by.max() < 8 * x.dtype.itemsize)
        return function(x, by) if inside else None

    return shifted


def _shift_right_logical(x: np.ndarray, by: np.ndarray) -> np.ndarray:
    unsigned = f"u{x.dtype.itemsize}"
    return (x.view(unsigned) >> by.view(unsigned)).view(x.dtype)


def _select(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    which, *cases = args
    if which.dtype != bool and not (which.size and which.min() >= 0 and which.max() < len(cases)):
        return None
    if not which.ndim:
        return cases[int(which)]
    if which.dtype != bool:
        return np.take_along_axis(np.stack(cases), which[None], axis=0)[0]  # np.choose takes few cases only
    return np.where(which, cases[-1], cases[0])


def _clamp(low: np.ndarray, x: np.ndarray, high: np.ndarray) -> Any:
    return np.minimum(np.maximum(x, low), high)


def _integer_pow(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    (x,), y = args, params["y"]
    if x.dtype.char not in "fdFD" and (x.dtype.kind not in "iu" or y < 0):
        return None
    if 0 <= y <= 3:  # products, as XLA computes them
        return [np.ones_like(x), x, x * x, x * x * x][y]
    return once(lambda base: base**y if y >= 0 else 1 / base**-y)(args, params, avals)


def _round(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    (x,) = args
    if x.dtype.char not in "fd":
        return None
    if int(params["rounding_method"]) == 1:
        return np.round(x)
    whole = np.trunc(x)  # halves away from zero
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


def _convert(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    (x,), to = args, np.dtype(avals[0].dtype)
    if x.dtype == to:
        return x
    if to.kind == "b":
        return x != 0
    if x.dtype.kind == "c" and to.kind != "c":
        x = x.real
    if x.dtype.kind in "iub" and to.kind in "iu":
        return x.astype(to)
    if to.kind in "iu":
        limits = np.iinfo(to)
        inside = x.dtype.char in "fd" and (not x.size or (np.min(x) > limits.min and np.max(x) < limits.max))
        return x.astype(to) if inside else None  # XLA saturates
    return once(lambda a: a.astype(to))([x], params, avals)


def _bitcast(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    (x,), to = args, np.dtype(avals[0].dtype)
    return np.array(x, order="C").view(to) if to.itemsize == x.dtype.itemsize and to.kind != "b" else None


def _iota(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    if args:
        return None
    shape, axis, dtype = params["shape"], params["dimension"], np.dtype(params["dtype"])
    if dtype.char not in "fdFD" and dtype.kind not in "iu":
        return None
    ends = [1] * len(shape)
    ends[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis]).astype(dtype).reshape(ends), shape)


def _same(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    return list(args)


ELEMENTWISE: dict[str, Callable[[Args, Params, Sequence[Any]], Any]] = {
    "add": once(np.add),
    "add_any": once(np.add),
    "sub": once(np.subtract),
    "mul": once(np.multiply),
    "div": once(_divide),
    "rem": once(_remainder),
    "neg": once(np.negative),
    "sign": once(lambda x: np.sign(x) if x.dtype.kind != "c" else None),
    "abs": once(np.abs),
    "square": once(np.square),
    "max": once(np.maximum),
    "min": once(np.minimum),
    "clamp": once(_clamp),
    "eq": once(np.equal),
    "ne": once(np.not_equal),
    "lt": once(np.less),
    "le": once(np.less_equal),
    "gt": once(np.greater),
    "ge": once(np.greater_equal),
    "and": once(np.bitwise_and),
    "or": once(np.bitwise_or),
    "xor": once(np.bitwise_xor),
    "not": once(np.invert),
    "shift_left": once(_shift(np.left_shift)),
    "shift_right_arithmetic": once(_shift(np.right_shift)),
    "shift_right_logical": once(_shift(_shift_right_logical)),
    "is_finite": once(np.isfinite),
    "real": once(np.real),
    "imag": once(np.imag),
    "conj": once(np.conj),
    "complex": once(lambda x, y: x + 1j * y if np.isfinite(x).all() and np.isfinite(y).all() else None),
    "floor": _real_floats(np.floor),
    "ceil": _real_floats(np.ceil),
    "round": _round,
    "sqrt": _floats(np.sqrt),
    "rsqrt": _real_floats(lambda x: 1 / np.sqrt(x)),
    "cbrt": _real_floats(np.cbrt),
    "exp": _floats(np.exp),
    "exp2": _real_floats(np.exp2),
    "expm1": _real_floats(np.expm1),
    "log": _floats(np.log),
    "log1p": _real_floats(np.log1p),
    "logistic": _real_floats(special.expit),
    "sin": _floats(np.sin),
    "cos": _floats(np.cos),
    "tan": _real_floats(np.tan),
    "asin": _real_floats(np.arcsin),
    "acos": _real_floats(np.arccos),
    "atan": _real_floats(np.arctan),
    "atan2": _real_floats(np.arctan2),
    "sinh": _real_floats(np.sinh),
    "cosh": _real_floats(np.cosh),
    "tanh": _real_floats(np.tanh),
    "erf": _real_floats(special.erf),
    "erfc": _real_floats(special.erfc),
    "erf_inv": _real_floats(special.erfinv),
    "lgamma": _real_floats(special.gammaln),
    "pow": _real_floats(np.power),
    "nextafter": _real_floats(np.nextafter),
    "integer_pow": _integer_pow,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "select_n": _select,
    "iota": _iota,
    "copy": _same,
    "copy_p": _same,
    "pvary": _same,
    "stop_gradient": _same,
    "optimization_barrier": _same,
}
