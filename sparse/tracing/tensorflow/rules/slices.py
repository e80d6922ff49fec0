"""Rules for slices and their derivatives, and for splitting along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import tensorflow as tf

from ...engine.linear import Linear, reshape
from ...engine.operations.indexing import numbers
from ...engine.operations.replace import cut
from ...engine.positions import scatter_add
from ...engine.refusals import integers
from ...engine.structural import pad, reverse, slice_
from .structure import linear_operand

Index = tuple[Any, ...]


def index_of(op: tf.Operation, begin: Any, end: Any, strides: Any) -> Index:
    """What NumPy calls the same part."""
    starts, stops, steps = (integers("slice", x) for x in (begin, end, strides))
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    no_begin, no_end, dots, new, shrunk = (int(op.get_attr(name)) for name in names)
    found: list[Any] = []
    for k, (start, stop, step) in enumerate(zip(starts, stops, steps)):
        bit = 1 << k
        if dots & bit:
            found.append(Ellipsis)
        elif new & bit:
            found.append(None)
        elif shrunk & bit:
            found.append(start)
        else:
            found.append(slice(None if no_begin & bit else start, None if no_end & bit else stop, step))
    return tuple(found)


def _per_axis(shape: Sequence[int], index: Index) -> list[tuple[int, int, int]]:
    """Start, stop and step along each axis; a number is a slice of one element."""
    own = [i for i in index if i is not None]
    if Ellipsis in own:
        k = own.index(Ellipsis)
        own[k : k + 1] = [slice(None)] * (len(shape) - len(own) + 1)
    own += [slice(None)] * (len(shape) - len(own))
    slices = [slice(i % n, i % n + 1) if isinstance(i, int) else i for i, n in zip(own, shape)]
    return [s.indices(n) for s, n in zip(slices, shape)]


def _part(x: Linear, index: Index) -> Linear:
    """`x[index]` for slices, numbers, new axes and dots."""
    shape = np.broadcast_to(np.zeros(()), x.shape)[index].shape
    starts, limits, steps, backward = [], [], [], []
    for axis, (start, stop, step) in enumerate(_per_axis(x.shape, index)):
        if step < 0:
            count = max(0, -((start - stop) // step))
            start, stop, step = start + (count - 1) * step, start + 1, -step
            backward.append(axis)
            stop = stop if count else start
        starts.append(start)
        limits.append(max(stop, start))
        steps.append(step)
    part = slice_(x, starts, limits, steps)
    return reshape(reverse(part, backward) if backward and part.size else part, shape)


def _strided_slice(op: tf.Operation, x: Any, begin: Any, end: Any, strides: Any) -> Any:
    return _part(linear_operand(x, begin, end, strides), index_of(op, begin, end, strides))


def _strided_slice_gradient(op: tf.Operation, shape: Any, begin: Any, end: Any, strides: Any, x: Any) -> Any:
    lengths, index = integers("shape", shape), index_of(op, begin, end, strides)
    widths = _widths(lengths, index)
    if widths is not None:
        return pad(reshape(x, [n - lo - hi for n, (lo, hi, _) in zip(lengths, widths)]), widths)
    return scatter_add(np.zeros(lengths, x.dtype), numbers(lengths)[index].reshape(x.shape), x)


def _widths(shape: Sequence[int], index: Index) -> list[tuple[int, int, int]] | None:
    """What lies around a part without steps."""
    found = []
    for n, (start, stop, step) in zip(shape, _per_axis(shape, index)):
        if step != 1:
            return None
        found.append((start, n - max(stop, start), 0))
    return found


def _slice(op: tf.Operation, x: Any, begin: Any, size: Any) -> Any:
    x = linear_operand(x, begin, size)
    starts, sizes = integers("slice", begin), integers("slice", size)
    return slice_(x, starts, [n if m < 0 else a + m for a, m, n in zip(starts, sizes, x.shape)])


def _split(op: tf.Operation, x: Any, sizes: Any, axis: Any) -> list[Linear]:
    (axis,) = integers("axis", axis)
    n = x.shape[axis]
    lengths = integers("lengths", sizes)
    lengths = [n - sum(m for m in lengths if m >= 0) if m < 0 else m for m in lengths]
    ends = np.cumsum([0, *lengths])
    return [cut(x, axis % x.ndim, int(a), int(b)) for a, b in pairwise(ends)]


def _split_evenly(op: tf.Operation, axis: Any, x: Any) -> list[Linear]:
    (axis,), count = integers("axis", axis), len(op.outputs)
    return _split(op, x, np.full(count, x.shape[axis] // count), np.asarray(axis))


def _unpack(op: tf.Operation, x: Linear) -> list[Linear]:
    axis = op.get_attr("axis") % x.ndim
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    return [reshape(cut(x, axis, k, k + 1), shape) for k in range(x.shape[axis])]


SLICES: dict[str, Callable[..., Any]] = {
    "StridedSlice": _strided_slice,
    "StridedSliceGrad": _strided_slice_gradient,
    "Slice": _slice,
    "Split": _split_evenly,
    "SplitV": _split,
    "Unpack": _unpack,
}
