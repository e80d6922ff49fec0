"""Rules for ufuncs and sums. A rule has the parameters of NumPy's function, some of them `Linear`s."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...engine.arithmetic import (
    add,
    conjugate,
    convert,
    cumulative_sum,
    divide,
    imaginary_part,
    negate,
    real_part,
    reduce_sum,
    scale,
    subtract,
)
from ...engine.linear import Linear
from ...engine.operands import NotLinear
from ...engine.positions import select
from ...engine.products import multiply, quotient
from ...engine.structural import cut, pad
from ..values import Value, cast, plus, reshape, take
from .products import matmul


def _operand(x: Any) -> Any:
    """Python's numbers stay: their dtype gives way. Arrays are copied, as the function may write to them later."""
    if isinstance(x, Linear | int | float | complex):
        return x
    x = np.asarray(x)
    return x.copy() if x.flags.writeable and x.ndim else x


def _summand(x: Any, other: Any) -> Any:
    """As `_operand`, with numbers of Python in the dtype of the sum."""
    x = _operand(x)
    return np.asarray(x, np.result_type(other.dtype, x)) if isinstance(x, int | float | complex) else x


def _multiply(x: Any, y: Any) -> Any:
    if isinstance(x, sp.spmatrix) or isinstance(y, sp.spmatrix):
        return matmul(x, y)  # as SciPy's matrices do, unlike its arrays
    return multiply(_operand(x), _operand(y))


def _power(x: Any, y: Any) -> Any:
    if isinstance(y, Linear) or np.ndim(y) or y != 1:
        raise NotLinear
    return scale(x, _operand(y) if isinstance(y, np.ndarray) else 1)


def _axes(axis: Any, ndim: int) -> list[int]:
    if axis is None:
        return list(range(ndim))
    return [int(a) + ndim * (int(a) < 0) for a in (axis if isinstance(axis, tuple | list) else (axis,))]


def total(
    a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False, initial: Any = 0, where: Any = True
) -> Any:
    """`np.sum`."""
    if isinstance(where, Linear):
        raise NotLinear("the condition depends on it")
    if where is not True:
        where = np.broadcast_to(where, a.shape)
        a = select(where, [np.broadcast_to(np.zeros((), a.dtype), a.shape), a])
    axes = _axes(axis, a.ndim)
    a = a if dtype is None else cast(a, dtype)
    result = reduce_sum(a, axes) if axes else a
    if keepdims is True:
        result = reshape(result, [1 if k in axes else n for k, n in enumerate(a.shape)])
    return plus(result, initial) if isinstance(initial, Linear) or initial not in (0, np._NoValue) else result


def _reduced(
    a: Any, axis: Any = 0, dtype: Any = None, keepdims: Any = False, initial: Any = 0, where: Any = True
) -> Any:
    return total(a, axis, dtype, keepdims, initial, where)


def mean(a: Any, axis: Any = None, dtype: Any = None, keepdims: Any = False, where: Any = True) -> Any:
    """`np.mean`."""
    count = math.prod(a.shape[k] for k in _axes(axis, a.ndim))
    if where is not True:
        count = np.sum(np.broadcast_to(where, a.shape), axis=axis, keepdims=keepdims is True)
    return divide(total(a, axis, dtype, keepdims, where=where), count)


def _average(a: Any, axis: Any = None, weights: Any = None) -> Any:
    if weights is None:
        return mean(a, axis)
    if isinstance(weights, Linear):
        raise NotLinear("the weights depend on it")
    weights = np.asarray(weights)
    if weights.shape != a.shape:
        weights = weights.reshape([-1 if k == axis % a.ndim else 1 for k in range(a.ndim)])
    sums = np.sum(np.broadcast_to(weights, a.shape), axis=axis)
    return divide(total(scale(a, weights), axis), sums)


def _cumulative(a: Any, axis: Any = None, dtype: Any = None) -> Any:
    a = a if dtype is None else cast(a, dtype)
    return cumulative_sum(reshape(a, (a.size,)) if axis is None else a, 0 if axis is None else axis)


def _accumulated(a: Any, axis: Any = 0, dtype: Any = None) -> Any:
    return _cumulative(a, axis, dtype)


def difference(a: Any, n: int = 1, axis: int = -1) -> Any:
    """`np.diff`."""
    for _ in range(n):
        length = a.shape[axis]
        a = subtract(cut(a, axis, min(1, length), length), cut(a, axis, 0, max(length - 1, 0)))
    return a


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    n = y.shape[axis]
    if isinstance(x, Linear) or isinstance(dx, Linear):
        raise NotLinear("the distances depend on it")
    widths = dx if x is None else np.diff(np.asarray(x), axis=axis if np.ndim(x) > 1 else -1)
    if np.ndim(widths) == 1:
        widths = np.reshape(widths, [-1 if k == axis % y.ndim else 1 for k in range(y.ndim)])
    return divide(total(scale(add(cut(y, axis, 1, n), cut(y, axis, 0, n - 1)), widths), axis), 2.0)


def _outer(rule: Callable[..., Any]) -> Callable[..., Any]:
    def outer(x: Any, y: Any) -> Any:
        x, y = (v if isinstance(v, Linear) else np.asarray(v) for v in (x, y))
        return rule(reshape(x, (*x.shape, *(1,) * y.ndim)), y)

    return outer


def _gradient(f: Any, *spacings: Any, axis: Any = None, edge_order: int = 1) -> Any:
    """Central differences, whose weights NumPy tells along each axis."""
    axes = _axes(axis, f.ndim)
    distances = list(spacings) * (len(axes) if len(spacings) == 1 else 1) or [1.0] * len(axes)
    found = []
    for k, spacing in zip(axes, distances):
        n = f.shape[k]
        rows = np.arange(n)
        weights = _gradient_weights(n, spacing, edge_order)
        result: Value | None = None
        for shift in range(-2, 3):
            inside = (rows + shift >= 0) & (rows + shift < n)
            weight = weights[shift + 2]
            if not weight[inside].any():
                continue
            lo, hi = int(rows[inside][0]), int(rows[inside][-1]) + 1
            shifted = cut(f, k, lo + shift, hi + shift)
            term = scale(shifted, weight[lo:hi].reshape([-1 if a == k else 1 for a in range(f.ndim)]))
            term = pad(term, [(lo, n - hi, 0) if a == k else (0, 0, 0) for a in range(f.ndim)])
            result = term if result is None else add(result, term)
        found.append(convert(result, f.dtype) if isinstance(result, Linear) else result)
    return found[0] if len(found) == 1 else tuple(found)


def _gradient_weights(n: int, spacing: Any, edge_order: Any) -> np.ndarray:
    """`(5, n)`: the weight of the element at -2, ..., 2 in each row, by unit vectors of five colours."""
    weights = np.zeros((5, n))
    for colour in range(5):
        images = np.gradient((np.arange(n) % 5 == colour).astype(float), spacing, edge_order=edge_order)
        for shift in range(-2, 3):
            own = (np.arange(n) + shift) % 5 == colour
            weights[shift + 2][own] = images[own]
    return weights


def _trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Any:
    own = np.diagonal(np.arange(a.size).reshape(a.shape), offset, axis1, axis2)
    return total(take(a, own), -1, dtype)


def _ldexp(x: Any, exponent: Any) -> Any:
    if isinstance(exponent, Linear):
        raise NotLinear("the exponent depends on it")
    powers = np.ldexp(np.ones((), x.dtype), exponent)
    return scale(x, powers)


def _by_one(ufunc: Callable[..., Any], x: Linear) -> Linear:
    return scale(x, ufunc(np.ones((), x.dtype)))


UFUNCS: dict[Any, Callable[..., Any]] = {
    np.add: lambda x, y: add(_summand(x, y), _summand(y, x)),
    np.subtract: lambda x, y: subtract(_summand(x, y), _summand(y, x)),
    np.multiply: _multiply,
    np.divide: lambda x, y: quotient(x, _operand(y)),
    np.negative: negate,
    np.positive: lambda x: x,
    np.conjugate: lambda x: conjugate(x) if x.dtype.kind == "c" else x,
    np.power: _power,
    np.float_power: _power,
    np.matmul: matmul,
    np.ldexp: _ldexp,
    **{ufunc: partial(_by_one, ufunc) for ufunc in (np.deg2rad, np.radians, np.rad2deg, np.degrees)},
}
METHODS: dict[str, dict[Any, Callable[..., Any]]] = {
    "reduce": {np.add: _reduced},
    "accumulate": {np.add: _accumulated},
    "outer": {ufunc: _outer(UFUNCS[ufunc]) for ufunc in (np.add, np.subtract, np.multiply)},
}
SUMS: dict[Any, Callable[..., Any]] = {
    np.sum: total,
    np.mean: mean,
    np.average: _average,
    np.cumsum: _cumulative,
    np.diff: difference,
    np.ediff1d: lambda ary: difference(reshape(ary, (ary.size,))),
    np.gradient: _gradient,
    np.trace: _trace,
    np.real: lambda val: real_part(val),
    np.imag: lambda val: imaginary_part(val),
    **{getattr(np, name): _trapezoid for name in ("trapezoid", "trapz") if name in np.__dict__},
}
