"""Coefficients: NumPy arrays or numbers where they are known, arrays of a backend where they are not.

Known coefficients are computed by NumPy at once, also while a framework compiles; the others by the backend, so that
derivatives follow. Neither kind is ever written to, so views are handed on freely.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ....backends import Backend, get_backend
from ...formats.entries.values import take_or_zero

Coefficient: TypeAlias = Any
Number: TypeAlias = int | float | complex
_HOST = get_backend("numpy")
_NUMBERS = (int, float, complex)  # their dtype gives way to that of arrays


def known(c: Coefficient) -> bool:
    """Is it an array of NumPy or a number?"""
    return isinstance(c, (np.ndarray, np.generic, *_NUMBERS))


def shape_of(c: Coefficient) -> tuple[int, ...]:
    """Its shape as Python integers."""
    return np.shape(c) if known(c) else tuple(int(n) for n in c.shape)


def dtype_of(bk: Backend, c: Coefficient) -> np.dtype:
    """Its NumPy dtype."""
    return np.asarray(c).dtype if known(c) else np.dtype(bk.dtype(c))


def side(bk: Backend, *coefficients: Coefficient) -> Backend:
    """The backend that computes with them: NumPy's where all are known."""
    return _HOST if all(known(c) for c in coefficients) else bk


def as_array(bk: Backend, c: Coefficient, dtype: np.dtype | None = None, like: Coefficient = None) -> Coefficient:
    """An array of `bk`, of `dtype`."""
    if known(c):
        c = np.asarray(c, dtype)
        return c if bk is _HOST else bk.asarray(c, c.dtype, None if like is None or known(like) else like)
    return c if dtype is None or bk.dtype(c) == dtype else bk.astype(c, dtype)


def cast(bk: Backend, c: Coefficient, dtype: np.dtype) -> Coefficient:
    """Another dtype; the same array where it has it."""
    return as_array(side(bk, c), c, dtype)


def _binary(bk: Backend, function: Callable[[Any, Any], Any], a: Coefficient, b: Coefficient) -> Coefficient:
    if known(a) and known(b):
        with np.errstate(all="ignore"):
            return function(a, b) if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS) else function(*_arrays(a, b))
    traced = b if known(a) else a
    dtype = np.result_type(*(c if isinstance(c, _NUMBERS) else dtype_of(bk, c) for c in (a, b)))
    return function(as_array(bk, a, dtype, traced), as_array(bk, b, dtype, traced))


def _arrays(*coefficients: Coefficient) -> list[Coefficient]:
    """Python's numbers stay: their dtype gives way."""
    return [c if isinstance(c, _NUMBERS) else np.asarray(c) for c in coefficients]


def multiply(bk: Backend, a: Coefficient, b: Coefficient) -> Coefficient:
    """a * b."""
    return _binary(bk, operator.mul, a, b)


def divide(bk: Backend, a: Coefficient, b: Coefficient) -> Coefficient:
    """a / b."""
    return _binary(bk, lambda a, b: np.true_divide(a, b) if known(a) and known(b) else a / b, a, b)


def add(bk: Backend, a: Coefficient | None, b: Coefficient | None) -> Coefficient | None:
    """a + b, where None is zero."""
    if a is None or b is None:
        return b if a is None else a
    return _binary(bk, operator.add, a, b)


def negative(c: Coefficient | None) -> Coefficient | None:
    """-c."""
    return None if c is None else -c


def where(bk: Backend, condition: Coefficient, a: Coefficient, b: Coefficient) -> Coefficient:
    """a where the condition holds, else b; of the dtype of a and b."""
    own = side(bk, condition, a, b)
    if own is _HOST:
        return np.where(condition, a, b)
    dtype = np.result_type(*(c if isinstance(c, _NUMBERS) else dtype_of(bk, c) for c in (a, b)))
    like = next(c for c in (condition, a, b) if not known(c))
    return own.where(as_array(own, condition, like=like), as_array(own, a, dtype, like), as_array(own, b, dtype, like))


def is_zero(c: Coefficient | None) -> bool:
    """Is it known to be zero everywhere?"""
    if c is None:
        return True
    if not known(c):
        return False
    c = _one_element(np.asarray(c))
    return not (np.any(_sample(c)) or np.any(c))


def single_value(c: Coefficient) -> Number | None:
    """The number that a known array repeats everywhere, None where there is none."""
    if not known(c):
        return None
    c = _one_element(np.asarray(c))
    if not c.size:
        return None
    first = c[(0,) * c.ndim]
    if c.size > 1 and not (np.all(_sample(c) == first) and np.all(c == first)):
        return None
    return first.item()


def largest(c: np.ndarray) -> float:
    """The largest finite absolute value of a known array."""
    if not c.size:
        return 0.0
    found = float(max(c.max(), -c.min())) if c.dtype.kind == "f" else float(np.abs(c).max())
    return found if np.isfinite(found) else float(np.abs(c[np.isfinite(c)]).max(initial=0))


def _one_element(c: np.ndarray) -> np.ndarray:
    """Without the axes along which a broadcast array repeats itself."""
    if 0 in c.shape or not any(s == 0 and n > 1 for s, n in zip(c.strides, c.shape)):
        return c
    return c[tuple(slice(0, 1) if s == 0 else slice(None) for s in c.strides)]


def _sample(c: np.ndarray) -> np.ndarray:
    """A few elements, which mostly tell without a look at all."""
    return c[tuple(slice(None, None, max(1, n // 8)) for n in c.shape)]


def pointwise(function: Callable[..., Any], arrays: Sequence[np.ndarray], shape: Sequence[int]) -> Any:
    """A function of one element at a time of known arrays, computed once where all repeat along an axis of `shape`.

    Constants are often one number broadcast to a grid; their products then cost nothing:

    >>> pointwise(np.add, [np.broadcast_to(1, (1000, 1000)), np.array(2)], (1000, 1000))
    array([[3]])
    """
    arrays = [a if a.ndim in (0, len(shape)) else np.broadcast_to(a, shape) for a in arrays]
    same = [axis for axis in range(len(shape)) if shape[axis] > 1 and all(_repeats(a, axis) for a in arrays)]
    if not same:
        return function(*arrays)
    first = tuple(slice(0, 1) if axis in same else slice(None) for axis in range(len(shape)))
    return function(*[a[first] if a.ndim else a for a in arrays])


def _repeats(a: np.ndarray, axis: int) -> bool:
    return not a.ndim or a.strides[axis] == 0 or a.shape[axis] == 1


# --- moving elements --------------------------------------------------------------------------------------------------


def broadcast_to(bk: Backend, c: Coefficient, shape: Sequence[int]) -> Coefficient:
    """Repeated along axes; a view where it is known."""
    if shape_of(c) == tuple(shape):
        return c
    return np.broadcast_to(c, tuple(shape)) if known(c) else bk.broadcast_to(c, tuple(shape))


def reshape(bk: Backend, c: Coefficient, shape: Sequence[int]) -> Coefficient:
    """The same elements in row-major order."""
    return side(bk, c).reshape(c, tuple(shape))


def expand(bk: Backend, c: Coefficient, shape: Sequence[int], dims: Sequence[int]) -> Coefficient:
    """Axis k becomes axis `dims[k]` (rising) of an array of `shape`, which repeats along the others."""
    lengths = [1] * len(shape)
    for d, n in zip(dims, shape_of(c)):
        lengths[d] = n
    return broadcast_to(bk, reshape(bk, c, lengths), shape)


def transpose(bk: Backend, c: Coefficient, axes: Sequence[int]) -> Coefficient:
    """Axes in a new order."""
    return side(bk, c).permute_dims(c, tuple(axes))


def flip(bk: Backend, c: Coefficient, axes: Sequence[int]) -> Coefficient:
    """The order reversed along axes."""
    return side(bk, c).flip(c, tuple(axes)) if axes else c


def pad(bk: Backend, c: Coefficient, config: Sequence[tuple[int, int, int]], fill: Coefficient = 0) -> Coefficient:
    """`(lo, hi, interior)` per axis: elements before, after (negative: cut) and between neighbours."""
    if known(c) and known(fill):
        return pad_known(np.asarray(c), config, fill)
    dtype = dtype_of(bk, c)
    c = as_array(bk, c, dtype, fill)
    padded = _pad_traced(bk, c, config)
    if known(fill) and not np.any(fill):
        return padded
    inside = pad_known(np.ones(shape_of(c), bool), config, False)
    return where(bk, inside, padded, broadcast_to(bk, as_array(bk, fill, dtype, c), inside.shape))


def pad_known(c: np.ndarray, config: Sequence[tuple[int, int, int]], fill: Coefficient) -> np.ndarray:
    """`pad` of a known array by a known number."""
    spread = [n + max(n - 1, 0) * between for n, (_, _, between) in zip(c.shape, config)]
    shape = [max(lo + n + hi, 0) for n, (lo, hi, _) in zip(spread, config)]
    fill = np.asarray(fill, c.dtype)
    padded = np.full(shape, fill, c.dtype) if any(fill.tobytes()) else np.zeros(shape, c.dtype)  # -0 is no 0
    source, target = [], []
    for n, length, (lo, _, between) in zip(c.shape, shape, config):
        step = between + 1
        first = max(0, -(lo // step))  # the first element that is not cut
        count = max(0, min(n, -((lo - length) // step)) - first)
        source.append(slice(first, first + count))
        begin = max(lo + first * step, 0)
        target.append(slice(begin, begin + max((count - 1) * step + 1, 0), step) if count else slice(0, 0))
    padded[tuple(target)] = c[tuple(source)]
    return padded


def _pad_traced(bk: Backend, c: Coefficient, config: Sequence[tuple[int, int, int]]) -> Coefficient:
    shape = shape_of(c)
    for axis, (_, _, between) in enumerate(config):
        if between and shape[axis] > 1:  # zeros behind each element, then without the last ones
            before, after = shape[:axis], shape[axis + 1 :]
            n = shape[axis]
            c = bk.reshape(c, (*before, n, 1, *after))
            c = bk.pad(c, [(0, 0)] * (axis + 1) + [(0, between)] + [(0, 0)] * len(after))
            c = bk.reshape(c, (*before, n * (between + 1), *after))
            shape = (*before, (n - 1) * (between + 1) + 1, *after)
            c = c[tuple(slice(0, m) for m in shape)]
    if any(lo < 0 or hi < 0 for lo, hi, _ in config):
        c = c[tuple(slice(max(-lo, 0), max(n - max(-hi, 0), max(-lo, 0))) for n, (lo, hi, _) in zip(shape, config))]
    widths = [(max(lo, 0), max(hi, 0)) for lo, hi, _ in config]
    target = [max(lo + n + hi, 0) for n, (lo, hi, _) in zip(shape, config)]
    if 0 in target or any(lo < -n or hi < -n for n, (lo, hi, _) in zip(shape, config)):
        return bk.zeros(target, bk.dtype(c), c)
    return bk.pad(c, widths)


def take(bk: Backend, c: Coefficient, positions: np.ndarray) -> Coefficient:
    """Elements of a flat array; zero where the position is negative."""
    own = side(bk, c)
    return take_or_zero(own, c, positions) if (positions < 0).any() else own.take_in_bounds(c, positions)


def concatenate(bk: Backend, parts: Sequence[Coefficient], axis: int = 0) -> Coefficient:
    """Along an axis, in the common dtype."""
    if len(parts) == 1:
        return parts[0]
    own = side(bk, *parts)
    dtype = np.result_type(*(dtype_of(bk, c) for c in parts))
    like = next((c for c in parts if not known(c)), None)
    return own.concat([as_array(own, c, dtype, like) for c in parts], axis)


def segment_sum(bk: Backend, c: Coefficient, ids: np.ndarray, count: int) -> Coefficient:
    """Sums of the elements `(nnz,)` with the same id."""
    if not len(ids):
        return side(bk, c).zeros((count,), dtype_of(bk, c), None if known(c) else c)
    return side(bk, c).segment_sum(c, ids, count)


def total(bk: Backend, c: Coefficient, axes: Sequence[int]) -> Coefficient:
    """Sum over axes."""
    return side(bk, c).sum(c, tuple(axes)) if axes else c
