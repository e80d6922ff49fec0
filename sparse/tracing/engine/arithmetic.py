"""Sums, multiples, changes of dtype, and sums over axes and windows.

Sums keep the terms of both, with new factors; what does not depend on the input becomes the bias:

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u = identity(get_backend("numpy"), (3,), float)
>>> v = add(scale(u, 2.0), np.array([5.0, 6.0, 7.0]))
>>> v.terms
(Box(lo=(0,), shape=(3,), offset=0, strides=(1,), factor=2.0, values=None, mask=None),)
>>> v.bias
array([5., 6., 7.])
>>> subtract(v, u).terms[1].factor
-1

The sum over the second axis of a (2, 3) array is one box per element of that axis, or entries where these are many:

>>> u = identity(get_backend("numpy"), (2, 3), float)
>>> for term in reduce_sum(u, [1]).terms:
...     print(term)
Box(lo=(0,), shape=(2,), offset=0, strides=(3,), factor=1, values=None, mask=None)
Box(lo=(0,), shape=(2,), offset=1, strides=(3,), factor=1, values=None, mask=None)
Box(lo=(0,), shape=(2,), offset=2, strides=(3,), factor=1, values=None, mask=None)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ....backends import Backend
from ...errors import NonlinearError, UnsupportedOperation
from ...formats.entries.integers import row_strides
from . import coefficients as co
from .coefficients import Coefficient, Number
from .limits import check_entries
from .linear import Linear, aligned, map_bias, normal, reshape, settle
from .structural import Config, broadcast_to, pad, slice_
from .terms import Box, Entries, Gathered, Term, box_entries, elements, has_axes, to_entries


def add(a: Linear | Coefficient, b: Linear | Coefficient) -> Linear:
    """a + b with NumPy's broadcasting; one of the two may be a coefficient."""
    if not isinstance(a, Linear):
        a, b = b, a
    if not isinstance(a, Linear):
        raise TypeError("add got two coefficients; at least one operand must be a Linear.")
    if not isinstance(b, Linear):
        return _add_coefficient(a, b)
    shape = np.broadcast_shapes(a.shape, b.shape)
    a, b = aligned(broadcast_to(a, shape), broadcast_to(b, shape))
    bias = co.add(a.bk, a.bias, b.bias)
    joint = a.changed(
        a.terms + b.terms,
        bias,
        dtype=np.result_type(a.dtype, b.dtype),
        real_input=a.real_input and b.real_input,
        settled=max(a.settled, b.settled),
    )
    return settle(joint)


def _add_coefficient(x: Linear, c: Coefficient) -> Linear:
    shape = np.broadcast_shapes(x.shape, co.shape_of(c))
    x = replace(broadcast_to(x, shape), dtype=_joint_dtype(x, c))
    if co.is_zero(c):
        return x
    return x.changed(x.terms, co.add(x.bk, x.bias, co.broadcast_to(x.bk, c, shape)))


def _joint_dtype(x: Linear, c: Coefficient) -> np.dtype:
    return np.result_type(x.dtype, c if isinstance(c, (int, float, complex)) else co.dtype_of(x.bk, c))


def subtract(a: Linear | Coefficient, b: Linear | Coefficient) -> Linear:
    """a - b with NumPy's broadcasting; one of the two may be a coefficient."""
    return add(a, negate(b) if isinstance(b, Linear) else co.negative(b))


def negate(x: Linear) -> Linear:
    """-x."""
    return x.changed([term._replace(factor=-term.factor) for term in x.terms], co.negative(x.bias))


def scale(x: Linear, c: Coefficient) -> Linear:
    """x * c with NumPy's broadcasting."""
    shape = np.broadcast_shapes(x.shape, co.shape_of(c))
    dtype, x = _joint_dtype(x, c), broadcast_to(x, shape)
    bias = None if x.bias is None else co.multiply(x.bk, x.bias, c)
    number = co.single_value(c)
    if number is not None:
        return x.changed([term._replace(factor=term.factor * number) for term in x.terms], bias, dtype=dtype)
    return _times(x, c, dtype, bias)


def divide(x: Linear, c: Coefficient) -> Linear:
    """x / c with NumPy's broadcasting."""
    shape = np.broadcast_shapes(x.shape, co.shape_of(c))
    dtype, x = _joint_dtype(x, c), broadcast_to(x, shape)
    if dtype.kind not in "fc":
        raise UnsupportedOperation(f"Dividing an array of {x.dtype} rounds, which is not linear. Use a float dtype.")
    bias = None if x.bias is None else co.divide(x.bk, x.bias, c)
    number = co.single_value(c)
    if number is not None:
        terms = [term._replace(factor=_quotient(term.factor, number)) for term in x.terms]
        return x.changed(terms, bias, dtype=dtype)
    one = dtype.type(1) if co.known(c) else 1
    return _times(x, co.divide(x.bk, one, c), dtype, bias)


def _quotient(a: Number, b: Number) -> Number:
    """As the libraries divide: by zero gives infinity or NaN."""
    with np.errstate(all="ignore"):
        return np.true_divide(a, b).item()


def _times(x: Linear, c: Coefficient, dtype: np.dtype, bias: Coefficient | None) -> Linear:
    """All terms times an array, or a traced number."""
    if co.dtype_of(x.bk, c).kind not in "fc":  # there is no -1 among bools and unsigned integers
        c = co.cast(x.bk, c, dtype)
    if co.shape_of(c):
        c = co.reshape(x.bk, co.broadcast_to(x.bk, c, x.shape), x.base)
    return x.changed([_term_times(x.bk, term, c) for term in x.terms], bias, dtype=dtype)


def _term_times(bk: Backend, term: Term, c: Coefficient) -> Term:
    if isinstance(term, Entries):
        return _product(bk, term, elements(bk, co.reshape(bk, c, (-1,)), term.rows) if co.shape_of(c) else c)
    if isinstance(term, Gathered):
        zeros = _known_zeros(term.values, c)
        product = _product(bk, term, c)
        return product if zeros is None else product._replace(columns=np.where(zeros, np.int32(-1), term.columns))
    if co.shape_of(c) and term.shape != tuple(co.shape_of(c)):
        c = c[term.slices]
    zeros = _known_zeros(term.values, c)
    product = _product(bk, term, c)
    if zeros is None:
        return product
    return product._replace(mask=~zeros if term.mask is None else term.mask & ~zeros)


def _product(bk: Backend, term: Any, c: Coefficient) -> Any:
    return term._replace(values=c if term.values is None else co.multiply(bk, term.values, c))


def _known_zeros(a: Coefficient | None, b: Coefficient) -> np.ndarray | None:
    """Where a product with one traced factor is zero, as the other is known and zero there; None: nowhere."""
    if a is None or co.known(a) == co.known(b):
        return None
    c = a if co.known(a) else b
    if not np.ndim(c):
        return None
    zeros = np.asarray(c) == 0
    return zeros if zeros.any() else None


_SINGLE = 4  # bytes


def convert(x: Linear, dtype: Any) -> Linear:
    """In another dtype. Double to single precision is followed as exact: both are precisions of a matrix."""
    dtype = np.dtype(dtype)
    if dtype == x.dtype:
        return x
    if dtype.kind in "fV" and dtype.itemsize < min(_SINGLE, x.dtype.itemsize):
        raise NonlinearError(
            f"Converting {x.dtype} to {dtype} rounds to less than single precision, so a matrix of {x.dtype} would not "
            "give what the function gives. Keep at least float32 inside of it, and cast what it returns."
        )
    if dtype.kind not in "fc" and not (x.dtype.kind in "iu" and dtype.kind in "iu"):
        raise NonlinearError(f"Converting {x.dtype} to {dtype} rounds, which is not linear. Keep a float dtype.")
    if x.dtype.kind == "c" and dtype.kind != "c":
        raise UnsupportedOperation(f"Converting {x.dtype} to {dtype} drops the imaginary part; use the real part.")
    return x.changed(x.terms, None if x.bias is None else co.cast(x.bk, x.bias, dtype), dtype=dtype)


def real_part(x: Linear) -> Linear:
    """Real part."""
    return _of_entries(x, "The real part", "real", _real_dtype(x.dtype))


def imaginary_part(x: Linear) -> Linear:
    """Imaginary part; raises as `real_part`."""
    if x.dtype.kind != "c":
        return x.changed((), None)
    rotated = x.changed([t._replace(factor=t.factor * -1j) for t in x.terms], None)
    found = _of_entries(rotated, "The imaginary part", "real", _real_dtype(x.dtype))
    if x.bias is None:
        return found
    turned = co.multiply(x.bk, x.bias, -1j)
    return found.changed(found.terms, co.side(x.bk, turned).real(turned))


def conjugate(x: Linear) -> Linear:
    """Complex conjugate; raises as `real_part`."""
    return _of_entries(x, "The complex conjugate", "conj", x.dtype)


def _real_dtype(dtype: np.dtype) -> np.dtype:
    return np.zeros((), dtype).real.dtype


def _of_entries(x: Linear, what: str, method: str, dtype: np.dtype) -> Linear:
    """The part of all entries, which is that of the array where the input is real."""
    if x.dtype.kind != "c":
        return x
    if not (x.real_input or x.is_zero):
        raise UnsupportedOperation(
            f"{what} of a complex input is linear over the real numbers only, so there is no matrix with f(x) = A x. "
            "Pass real and imaginary part as two real inputs."
        )

    def part(c: Coefficient) -> Coefficient:
        return getattr(co.side(x.bk, c), method)(c) if co.dtype_of(x.bk, c).kind == "c" else c

    terms = []
    for term in x.terms:
        if term.values is None or co.dtype_of(x.bk, term.values).kind != "c":
            factor = term.factor.real if method == "real" else term.factor.conjugate()
            terms.append(term._replace(factor=factor))
        else:
            terms.append(term._replace(factor=1, values=part(co.multiply(x.bk, term.values, term.factor))))
    return x.changed(terms, None if x.bias is None else part(x.bias), dtype=dtype)


# --- sums over axes and windows ---------------------------------------------------------------------------------------

_FEW = 32  # elements along summed axes that become one term each


def reduce_sum(x: Linear, axes: Sequence[int], keep: bool = False) -> Linear:
    """Sum over axes, which vanish, or keep the length 1."""
    axes = sorted({int(a) % x.ndim for a in axes})
    if not axes:
        return x
    if keep:
        return reshape(reduce_sum(x, axes), [1 if a in axes else n for a, n in enumerate(x.shape)])
    x = normal(x)
    kept = [a for a in range(x.ndim) if a not in axes]
    shape = tuple(x.shape[a] for a in kept)
    distances = _distances(kept, x.shape)
    terms: list[Term] = []
    rows = None
    for term in x.terms:
        if isinstance(term, Box):
            terms.extend(_sum_box(x.bk, term, axes, kept, distances))
        elif isinstance(term, Gathered) and math.prod(x.shape[a] for a in axes) <= _FEW:
            terms.extend(_sum_gathered(term, axes, x.shape))
        else:
            entries = to_entries(x.bk, term, x.base)
            if rows is None:
                own = np.arange(math.prod(shape), dtype=np.int32).reshape(shape)
                rows = np.broadcast_to(np.expand_dims(own, tuple(axes)), x.shape).reshape(-1)
            terms.append(entries._replace(rows=rows[entries.rows]))
    bias = map_bias(x, lambda b: co.total(x.bk, b, axes))
    return settle(x.changed(terms, bias, shape=shape, base=shape))


def _distances(kept: Sequence[int], shape: Sequence[int]) -> list[int]:
    """How far apart in the result neighbours along each axis are; 0 along the axes that are summed."""
    distances = [0] * len(shape)
    for a, distance in zip(kept, row_strides([shape[a] for a in kept])):
        distances[a] = distance
    return distances


def _sum_box(bk: Backend, box: Box, axes: Sequence[int], kept: Sequence[int], distances: Sequence[int]) -> list[Term]:
    same = [a for a in axes if box.strides[a] == 0 or box.shape[a] == 1]
    if same and box.mask is None:  # the same columns again and again: add up the entries
        box = _sum_same_columns(bk, box, same)
    if math.prod(box.shape[a] for a in axes) > _FEW:
        return [box_entries(bk, box, distances)]
    found: list[Term] = []
    for index in itertools.product(*[range(box.shape[a]) for a in axes]):
        at = dict(zip(axes, index))
        cut = tuple(at.get(a, slice(None)) for a in range(len(box.shape)))
        found.append(
            Box(
                tuple(box.lo[a] for a in kept),
                tuple(box.shape[a] for a in kept),
                box.offset + sum(box.strides[a] * i for a, i in at.items()),
                tuple(box.strides[a] for a in kept),
                box.factor,
                box.values[cut] if has_axes(box.values) else box.values,
                None if box.mask is None else box.mask[cut],
            )
        )
    return found


def _sum_same_columns(bk: Backend, box: Box, axes: Sequence[int]) -> Box:
    """The sum over axes along which the column does not change, which keep the length 1."""
    shape = tuple(1 if a in axes else n for a, n in enumerate(box.shape))
    if has_axes(box.values):
        values = co.reshape(bk, co.total(bk, box.values, axes), shape)
        return box._replace(shape=shape, values=values)
    return box._replace(shape=shape, factor=box.factor * math.prod(box.shape[a] for a in axes))


def _sum_gathered(term: Gathered, axes: Sequence[int], shape: Sequence[int]) -> list[Term]:
    found: list[Term] = []
    for index in itertools.product(*[range(shape[a]) for a in axes]):
        at = dict(zip(axes, index))
        cut = tuple(at.get(a, slice(None)) for a in range(len(shape)))
        values = term.values[cut] if has_axes(term.values) else term.values
        found.append(Gathered(term.columns[cut], term.factor, values))
    return found


def cumulative_sum(x: Linear, axis: int, reverse: bool = False) -> Linear:
    """Running sum along an axis, from the end if `reverse`.

    Every element depends on all before it: about n^2 / 2 entries per line of length n.
    """
    x, axis = normal(x), axis % x.ndim
    n, distance = x.shape[axis], row_strides(x.shape)[axis]
    terms = [_running(x.bk, to_entries(x.bk, term, x.base), n, distance, reverse) for term in x.terms]
    bias = map_bias(x, lambda b: _running_values(x.bk, b, axis, reverse))
    return settle(x.changed(terms, bias))


def _running(bk: Backend, term: Entries, n: int, distance: int, reverse: bool) -> Entries:
    """Each entry once for every row from its own on."""
    place = (term.rows // distance) % n
    counts = place + 1 if reverse else n - place
    check_entries(int(counts.sum(dtype=np.int64)), "A cumulative sum")
    which = np.repeat(np.arange(term.size), counts)
    further = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    rows = term.rows[which] + (-distance if reverse else distance) * further.astype(np.int32)
    return Entries(rows, term.columns[which], term.factor, elements(bk, term.values, which))


def _running_values(bk: Backend, c: co.Coefficient, axis: int, reverse: bool) -> co.Coefficient:
    if co.known(c):
        c = np.flip(c, axis) if reverse else c
        sums = np.cumsum(c, axis, dtype=c.dtype)
        return np.flip(sums, axis) if reverse else sums
    result, n = c, co.shape_of(c)[axis]
    step = 1
    while step < n:  # doubles the number of elements that each sum has
        config = [((0, -step, 0) if not reverse else (-step, 0, 0)) if a == axis else (0, 0, 0) for a in range(c.ndim)]
        shifted = co.pad(bk, result, config)
        back = [((step, 0, 0) if not reverse else (0, step, 0)) if a == axis else (0, 0, 0) for a in range(c.ndim)]
        result = co.add(bk, result, co.pad(bk, shifted, back))
        step *= 2
    return result


def window_sum(
    x: Linear,
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int] | None = None,
    window_dilation: Sequence[int] | None = None,
) -> Linear:
    """Sums over a moving window.

    Args:
        x: the array.
        window: its lengths.
        strides: how far the window moves for the next element of the result.
        padding: zeros before and after.
        base_dilation: distance of the elements of x (1: side by side).
        window_dilation: distance of the elements of the window.
    """
    window, strides = [int(n) for n in window], [int(n) for n in strides]
    base_dilation, window_dilation = (
        [1] * x.ndim if dilation is None else [int(d) for d in dilation]
        for dilation in (base_dilation, window_dilation)
    )
    config: Config = [(int(lo), int(hi), d - 1) for (lo, hi), d in zip(padding, base_dilation)]
    padded = pad(x, config)
    check_entries(math.prod(window) * max(len(x.terms), 1), "A sum over a window")
    for axis in range(x.ndim):
        padded = _window_along(padded, axis, window[axis], strides[axis], window_dilation[axis])
    return padded


def _window_along(x: Linear, axis: int, length: int, stride: int, dilation: int) -> Linear:
    reach = (length - 1) * dilation + 1
    count = max(0, (x.shape[axis] - reach) // stride + 1)
    starts, limits, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    steps[axis] = stride
    result = None
    for k in range(length):
        starts[axis] = k * dilation
        limits[axis] = k * dilation + (count - 1) * stride + 1 if count else k * dilation
        part = slice_(x, starts, limits, steps)
        result = part if result is None else add(result, part)
    if result is None:
        raise ValueError(f"The window has length 0 along axis {axis}; it must have at least one element.")
    return result
