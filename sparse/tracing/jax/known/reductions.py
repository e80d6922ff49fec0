"""NumPy rules for known operands: sums and other reductions, sorting, products of arrays.

>>> REDUCTIONS["cumsum"]([np.array([1, 2, 3])], {"axis": 0, "reverse": True}, [])
array([6, 5, 3])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

Args = Sequence[np.ndarray]
Params = dict[str, Any]
Rule = Callable[[Args, Params, Sequence[Any]], Any]
MAX_TERMS = 2**26  # of a convolution; longer ones are left to XLA


def _usual(x: np.ndarray) -> bool:
    """Not half precision, whose sums XLA accumulates in single precision."""
    return x.dtype.char in "fdFD?" or x.dtype.kind in "iu"


def _reduce(function: Callable[..., Any], empty: Any = None) -> Rule:
    def rule(args: Args, params: Params, avals: Sequence[Any]) -> Any:
        (x,), axes = args, tuple(params["axes"])
        if not _usual(x):
            return None
        if not x.size and empty is None:
            return None
        return function(x, axis=axes) if x.dtype.kind == "b" or empty is None else function(x, axis=axes, dtype=x.dtype)

    return rule


def _arg(function: Callable[..., Any]) -> Rule:
    def rule(args: Args, params: Params, avals: Sequence[Any]) -> Any:
        (x,), axes = args, params["axes"]
        return function(x, axis=axes[0]) if len(axes) == 1 and x.size and x.dtype.kind in "fiub" else None

    return rule


def _cumulative(function: Any) -> Rule:
    def rule(args: Args, params: Params, avals: Sequence[Any]) -> Any:
        (x,), axis = args, params["axis"]
        if not _usual(x) or x.dtype.kind == "b":
            return None
        x = np.flip(x, axis) if params["reverse"] else x
        result = function.accumulate(x, axis=axis, dtype=x.dtype)
        return np.flip(result, axis) if params["reverse"] else result

    return rule


def _sort(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    axis, keys = params["dimension"], params["num_keys"]
    if any(not _usual(x) or x.dtype.kind == "c" for x in args[:keys]):
        return None
    if any(x.dtype.kind == "f" and np.isnan(x).any() for x in args[:keys]):
        return None  # XLA has its own order of these
    if len(args) == 1:
        return [np.sort(args[0], axis, kind="stable")]
    order = order_by(args[:keys], axis)
    return [np.take_along_axis(x, order, axis) for x in args]


def order_by(keys: Args, axis: int) -> np.ndarray:
    """Positions along an axis in the order of the first key, of equal elements in that of the next one."""
    return np.asarray(np.lexsort(tuple(keys)[::-1], axis=axis))


def _dot_general(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    a, b = args
    (a_sum, b_sum), (a_batch, b_batch) = params["dimension_numbers"]
    if not (_usual(a) and _usual(b)) or "b" in (a.dtype.kind, b.dtype.kind):
        return None
    to = np.dtype(avals[0].dtype)
    if to.kind in "iu" and to != a.dtype:
        return None
    letters = iter(range(52))
    a_axes = [next(letters) for _ in range(a.ndim)]
    b_axes = [next(letters) for _ in range(b.ndim)]
    for i, j in (*zip(a_sum, b_sum), *zip(a_batch, b_batch)):
        b_axes[j] = a_axes[i]
    batch = [a_axes[i] for i in a_batch]
    free = [a_axes[i] for i in range(a.ndim) if i not in (*a_sum, *a_batch)]
    free += [b_axes[j] for j in range(b.ndim) if j not in (*b_sum, *b_batch)]
    return np.einsum(a.astype(to), a_axes, b.astype(to), b_axes, batch + free, optimize=True)


def _window_sum(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    (x,) = args
    spread = dilate(x, params["base_dilation"])
    if not _usual(x):
        return None
    padded = np.pad(spread, params["padding"])
    views = windows(padded, params["window_dimensions"], params["window_strides"], params["window_dilation"])
    return views.sum(axis=tuple(range(x.ndim, 2 * x.ndim)), dtype=x.dtype)


def dilate(x: np.ndarray, factors: Sequence[int] | None) -> np.ndarray:
    """With zeros between elements."""
    if factors is None or all(f == 1 for f in factors):
        return x
    result = np.zeros([(n - 1) * f + 1 if n else 0 for n, f in zip(x.shape, factors)], x.dtype)
    result[tuple(slice(None, None, f) for f in factors)] = x
    return result


def windows(x: np.ndarray, sizes: Sequence[int], strides: Sequence[int], dilation: Sequence[int] | None) -> np.ndarray:
    """A view `(*positions, *sizes)` of all windows of `x`."""
    dilation = dilation or (1,) * x.ndim
    reach = [(size - 1) * d + 1 for size, d in zip(sizes, dilation)]
    count = [max(0, (n - r) // s + 1) for n, r, s in zip(x.shape, reach, strides)]
    if 0 in count:
        return np.zeros((*count, *sizes), x.dtype)
    steps = [step * s for step, s in zip(x.strides, strides)]
    inner = [step * d for step, d in zip(x.strides, dilation)]
    return np.lib.stride_tricks.as_strided(x, (*count, *sizes), (*steps, *inner), writeable=False)


def _convolution(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    numbers, groups = params["dimension_numbers"], params["feature_group_count"]
    if not all(_usual(x) for x in args) or params["batch_group_count"] != 1:
        return None
    image, kernel = args[0].transpose(numbers.lhs_spec), args[1].transpose(numbers.rhs_spec)
    terms = math.prod(avals[0].shape) * math.prod(kernel.shape[1:])
    if terms == 0 or terms > MAX_TERMS:
        return None
    to = np.dtype(avals[0].dtype)
    image = dilate(image.astype(to), (1, 1, *params["lhs_dilation"]))
    image = _pad_or_cut(image, ((0, 0), (0, 0), *params["padding"]))
    batch, features = image.shape[:2]
    grouped = image.reshape(batch, groups, features // groups, *image.shape[2:])
    kernel = kernel.reshape(groups, kernel.shape[0] // groups, *kernel.shape[1:]).astype(to)
    ones = (1,) * 3
    views = windows(
        grouped, (*ones, *kernel.shape[3:]), (*ones, *params["window_strides"]), (*ones, *params["rhs_dilation"])
    )
    d = kernel.ndim - 3
    views = views.reshape(*views.shape[: 3 + d], *views.shape[6 + d :])  # (batch, group, in, *space, *window)
    space, window = list(range(10, 10 + d)), list(range(30, 30 + d))
    result = np.einsum(views, [0, 1, 2, *space, *window], kernel, [1, 3, 2, *window], [0, 1, 3, *space], optimize=True)
    result = result.reshape(batch, -1, *result.shape[3:])
    return result.transpose(np.argsort(numbers.out_spec))


def _pad_or_cut(x: np.ndarray, widths: Sequence[tuple[int, int]]) -> np.ndarray:
    x = np.pad(x, [(max(lo, 0), max(hi, 0)) for lo, hi in widths])
    return x[tuple(slice(max(-lo, 0), n - max(-hi, 0)) for (lo, hi), n in zip(widths, x.shape))]


def _top_k(args: Args, params: Params, avals: Sequence[Any]) -> Any:
    (x,) = args
    if params.get("axis", x.ndim - 1) not in (-1, x.ndim - 1) or x.dtype.char not in "fd" or np.isnan(x).any():
        return None
    order = np.argsort(-x, axis=-1, kind="stable")[..., : params["k"]]
    return [np.take_along_axis(x, order, -1), order]


REDUCTIONS: dict[str, Rule] = {
    "reduce_sum": _reduce(np.sum, 0),
    "reduce_prod": _reduce(np.prod, 1),
    "reduce_max": _reduce(np.max),
    "reduce_min": _reduce(np.min),
    "reduce_and": _reduce(np.bitwise_and.reduce),
    "reduce_or": _reduce(np.bitwise_or.reduce),
    "reduce_xor": _reduce(np.bitwise_xor.reduce),
    "argmax": _arg(np.argmax),
    "argmin": _arg(np.argmin),
    "cumsum": _cumulative(np.add),
    "cumprod": _cumulative(np.multiply),
    "cummax": _cumulative(np.maximum),
    "cummin": _cumulative(np.minimum),
    "sort": _sort,
    "top_k": _top_k,
    "dot_general": _dot_general,
    "reduce_window_sum": _window_sum,
    "conv_general_dilated": _convolution,
}
