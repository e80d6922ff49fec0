"""Sums over axes, windows and everything before.

The sum over the second axis of a (2, 3) array is one box per element of that axis, or entries where these are many:

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
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

import numpy as np

from ....backends import Backend
from ...formats.entries.integers import row_strides
from . import coefficients as co
from .arithmetic import add
from .limits import check_entries
from .linear import Linear, map_bias, normal
from .merging import settle
from .structural import Config, pad, slice_
from .terms import Box, Entries, Gathered, Term, box_entries, elements, has_axes, to_entries

_FEW = 32  # elements along summed axes that become one term each


def reduce_sum(x: Linear, axes: Sequence[int]) -> Linear:
    """Sum over axes, which vanish."""
    axes = sorted(int(a) % x.ndim for a in axes)
    if not axes:
        return x
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

    Raises:
        UnsupportedOperation: these are too many.
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
