"""Which elements of its operands an operation needs for some elements of its result."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...engine.windows import strides_of
from ..known.elementwise import ELEMENTWISE

Positions: TypeAlias = np.ndarray  # flat, int64; -1: no element
MOST_SUMMED = 256  # elements of a sum
_NOT_BY_POINTS = {"iota", "bitcast_convert_type", "optimization_barrier"}


def _index(where: Positions, shape: Sequence[int]) -> list[np.ndarray]:
    return list(np.unravel_index(where, tuple(shape))) if len(shape) else []


def _flat(index: Sequence[Any], shape: Sequence[int], like: Positions) -> Positions:
    """Positions in an array, whose axes of length 1 are broadcast."""
    flat = np.zeros(like.shape, np.int64)
    for i, n, stride in zip(index, shape, strides_of(shape)):
        if n > 1:
            flat += i * stride
    return flat


def _pointwise(equation: Any, where: Positions, shapes: Any, shape: Any) -> Any:
    index = None if all(s in (shape, ()) for s in shapes) else _index(where, shape)
    return [where if s == shape else _flat(index or [], s, where) for s in shapes]


def _same_order(equation: Any, where: Positions, shapes: Any, shape: Any) -> Any:
    return None if equation.params.get("dimensions") and equation.primitive.name == "reshape" else [where]


def _broadcast(equation: Any, where: Positions, shapes: Any, shape: Any) -> Any:
    index = _index(where, shape)
    return [_flat([index[axis] for axis in equation.params["broadcast_dimensions"]], s, where) for s in shapes]


def _slice(equation: Any, where: Positions, shapes: Any, shape: Any) -> Any:
    starts, strides = equation.params["start_indices"], equation.params["strides"] or (1,) * len(shape)
    return [_flat([a + i * s for i, a, s in zip(_index(where, shape), starts, strides)], shapes[0], where)]


def _transpose(equation: Any, where: Positions, shapes: Any, shape: Any) -> Any:
    index = _index(where, shape)
    order = np.argsort(equation.params["permutation"])
    return [_flat([index[axis] for axis in order], shapes[0], where)]


def _reverse(equation: Any, where: Positions, shapes: Any, shape: Any) -> Any:
    axes = equation.params["dimensions"]
    index = [n - 1 - i if axis in axes else i for axis, (i, n) in enumerate(zip(_index(where, shape), shape))]
    return [_flat(index, shapes[0], where)]


def _concatenate(equation: Any, where: Positions, shapes: Any, shape: Any) -> Any:
    axis, index, sources, start = equation.params["dimension"], _index(where, shape), [], 0
    for s in shapes:
        own = [i - start if a == axis else i for a, i in enumerate(index)]
        inside = (own[axis] >= 0) & (own[axis] < s[axis])
        sources.append(np.where(inside, _flat(own, s, where), -1))
        start += s[axis]
    return sources


def _stack(equation: Any, where: Positions, shapes: Any, shape: Any) -> Any:
    index = _index(where, shape)
    number = index.pop(equation.params["axis"])
    return [np.where(number == k, _flat(index, s, where), -1) for k, s in enumerate(shapes)]


def _pad(equation: Any, where: Positions, shapes: Any, shape: Any) -> Any:
    inside, own = np.ones(where.shape, bool), []
    for i, n, (lo, _, between) in zip(_index(where, shape), shapes[0], equation.params["padding_config"]):
        place, rest = np.divmod(i - lo, between + 1)
        inside &= (rest == 0) & (place >= 0) & (place < n)
        own.append(place)
    return [np.where(inside, _flat(own, shapes[0], where), -1), np.zeros_like(where)]


def _reduce_sum(equation: Any, where: Positions, shapes: Any, shape: Any) -> Any:
    axes = equation.params["axes"]
    summed = [shapes[0][a] for a in axes]
    if not 0 < math.prod(summed) <= MOST_SUMMED:
        return None
    strides = strides_of(shapes[0])
    kept = [a for a in range(len(shapes[0])) if a not in axes]
    base = np.zeros(where.shape, np.int64)
    for i, a in zip(_index(where, shape), kept):
        base += i * strides[a]
    steps = np.zeros((), np.int64)
    for a in axes:
        steps = np.add.outer(steps, np.arange(shapes[0][a]) * strides[a])
    return [base[:, None] + steps.reshape(-1)]


def _convolution(equation: Any, where: Positions, shapes: Any, shape: Any) -> Any:
    """Image and kernel elements of each product in the sum, `(elements, products)`."""
    p = equation.params
    numbers = p["dimension_numbers"]
    image, kernel = ([s[a] for a in spec] for s, spec in zip(shapes, (numbers.lhs_spec, numbers.rhs_spec)))
    if p["batch_group_count"] != 1 or not 0 < math.prod(kernel[1:]) <= MOST_SUMMED:
        return None
    index = _index(where, shape)
    batch, out, *space = (index[a][:, None] for a in numbers.out_spec)
    feature, *taps = (t.reshape(1, -1) for t in np.indices(kernel[1:]))
    own = [batch, out // (kernel[0] // p["feature_group_count"]) * kernel[1] + feature]
    inside = np.ones((len(where), math.prod(kernel[1:])), bool)
    places = zip(space, taps, image[2:], p["window_strides"], p["rhs_dilation"], p["lhs_dilation"], p["padding"])
    for i, tap, n, stride, step, between, (lo, _) in places:
        place, rest = np.divmod(i * stride + tap * step - lo, between)
        inside &= (rest == 0) & (place >= 0) & (place < n)
        own.append(place)
    like = np.zeros(inside.shape, np.int64)
    image_source = _flat([own[i] for i in np.argsort(numbers.lhs_spec)], shapes[0], like)
    weights = [out, feature, *taps]
    kernel_source = _flat([weights[i] for i in np.argsort(numbers.rhs_spec)], shapes[1], like)
    return [np.where(inside, image_source, -1), kernel_source]


Rule = Callable[[Any, Positions, Any, Any], Any]
POINTS: dict[str, Rule] = {
    **{name: _pointwise for name in ELEMENTWISE if name not in _NOT_BY_POINTS},
    "reshape": _same_order,
    "squeeze": _same_order,
    "expand_dims": _same_order,
    "broadcast_in_dim": _broadcast,
    "slice": _slice,
    "transpose": _transpose,
    "rev": _reverse,
    "concatenate": _concatenate,
    "stack": _stack,
    "pad": _pad,
    "reduce_sum": _reduce_sum,
    "conv_general_dilated": _convolution,
}
