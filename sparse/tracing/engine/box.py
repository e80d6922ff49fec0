"""Index arithmetic of boxes under operations that move elements: a few integers, whatever the size of the array."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from ....backends import Backend
from ...formats.entries.integers import row_strides
from . import coefficients as co
from .coefficients import Coefficient
from .terms import Box, has_axes


def _cut(values: Coefficient, slices: Sequence[slice]) -> Coefficient:
    return values[tuple(slices)] if has_axes(values) else values


def slice_box(box: Box, slices: Sequence[slice]) -> Box | None:
    """The rows in `slices` (start, stop and step given, steps positive), counted anew; None if there are none."""
    offset = box.offset
    lo, shape, strides, cuts = [], [], [], []
    for begin, n, stride, wanted in zip(box.lo, box.shape, box.strides, slices):
        start, stop, step = wanted.start, wanted.stop, wanted.step
        first = max(0, -((start - begin) // step))  # rounded up
        last = (min(begin + n, stop) - 1 - start) // step
        if last < first:
            return None
        inner = start + first * step - begin
        offset += stride * inner
        lo.append(first)
        shape.append(last - first + 1)
        strides.append(stride * step)
        cuts.append(slice(inner, inner + (last - first) * step + 1, step))
    if all(cut.stop - cut.start == n and cut.step == 1 for cut, n in zip(cuts, box.shape)):
        values, mask = box.values, box.mask
    else:
        values, mask = _cut(box.values, cuts), _cut(box.mask, cuts)
    return Box(tuple(lo), tuple(shape), offset, tuple(strides), box.factor, values, mask)


def transpose_box(bk: Backend, box: Box, axes: Sequence[int]) -> Box:
    """Axes in a new order."""
    lo, shape, strides = (tuple(part[a] for a in axes) for part in (box.lo, box.shape, box.strides))
    values = co.transpose(bk, box.values, axes) if has_axes(box.values) else box.values
    mask = None if box.mask is None else box.mask.transpose(axes)
    return Box(lo, shape, box.offset, strides, box.factor, values, mask)


def flip_box(bk: Backend, box: Box, axes: Sequence[int], base: Sequence[int]) -> Box:
    """The order reversed along axes."""
    lo, strides, offset = list(box.lo), list(box.strides), box.offset
    for a in axes:
        lo[a] = base[a] - box.lo[a] - box.shape[a]
        offset += box.strides[a] * (box.shape[a] - 1)
        strides[a] = -box.strides[a]
    values = co.flip(bk, box.values, axes) if has_axes(box.values) else box.values
    mask = None if box.mask is None else np.flip(box.mask, tuple(axes))
    return Box(tuple(lo), box.shape, offset, tuple(strides), box.factor, values, mask)


def broadcast_box(bk: Backend, box: Box, base: Sequence[int], shape: Sequence[int], dims: Sequence[int]) -> Box:
    """Axis k becomes axis `dims[k]` of `shape`. An axis of length 1 of the array (not of the box) is repeated."""
    lo, lengths, strides = [0] * len(shape), list(shape), [0] * len(shape)
    for k, d in enumerate(dims):
        if base[k] == shape[d]:
            lo[d], lengths[d], strides[d] = box.lo[k], box.shape[k], box.strides[k]
    values = co.expand(bk, box.values, lengths, dims) if has_axes(box.values) else box.values
    mask = None if box.mask is None else co.expand(bk, box.mask, lengths, dims)
    return Box(tuple(lo), tuple(lengths), box.offset, tuple(strides), box.factor, values, mask)


def restrict_box(box: Box, mask: np.ndarray) -> Box | None:
    """Only the rows where `mask` (of the base shape) holds; a smaller box without a mask where they form one."""
    part = mask[box.slices]
    bounds = bounding_slices(part)
    if bounds is None:
        return None
    part = part[bounds]
    smaller = slice_box(box._replace(lo=(0,) * len(box.lo)), [slice(s.start, s.stop, 1) for s in bounds])
    if smaller is None:
        return None
    smaller = smaller._replace(lo=tuple(lo + s.start for lo, s in zip(box.lo, bounds)))
    if part.all():
        return smaller
    return smaller._replace(mask=part if smaller.mask is None else part & smaller.mask)


def bounding_slices(mask: np.ndarray) -> tuple[slice, ...] | None:
    """The smallest box that holds all true elements; None where there are none."""
    bounds = []
    for axis in range(mask.ndim):
        along = np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))
        if not len(along):
            return None
        bounds.append(slice(int(along[0]), int(along[-1]) + 1))
    return tuple(bounds) if mask.ndim or bool(mask) else None


# --- reshape --------------------------------------------------------------------------------------------------------


class _Part(NamedTuple):
    """What a box is along some axes."""

    lo: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def reshape_box(bk: Backend, box: Box, old: Sequence[int], new: Sequence[int]) -> Box | None:
    """The box in an array of another shape with the same elements; None where it is none there.

    The axes are divided into groups of equal length, old and new. In each group the box must be one range of rows,
    and that range a box of the new axes.
    """
    parts = []
    for before, after in axis_groups(old, new):
        flat = _merged([(old[a], box.lo[a], box.shape[a], box.strides[a]) for a in before])
        part = None if flat is None else _split(*flat, [new[a] for a in after])
        if part is None:
            return None
        parts.append(part)
    lo, shape, strides = (tuple(n for part in parts for n in part[k]) for k in range(3))
    values = co.reshape(bk, box.values, shape) if has_axes(box.values) else box.values
    mask = None if box.mask is None else box.mask.reshape(shape)
    return Box(lo, shape, box.offset, strides, box.factor, values, mask)


def axis_groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[range, range]]:
    """The finest division of both into consecutive axes of the same number of elements (not zero)."""
    groups = []
    i = j = 0
    while i < len(old) or j < len(new):
        first_old, first_new = i, j
        left, i = (old[i], i + 1) if i < len(old) else (1, i)
        right, j = (new[j], j + 1) if j < len(new) else (1, j)
        while left != right:
            if left < right:
                left, i = left * old[i], i + 1
            else:
                right, j = right * new[j], j + 1
        groups.append((range(first_old, i), range(first_new, j)))
    return groups


def _merged(axes: Iterable[tuple[int, int, int, int]]) -> tuple[int, int, int] | None:
    """One range `(lo, length, stride)` for axes given as `(length of the array, lo, length, stride)`."""
    lo, length, stride = 0, 1, 0
    for n, inner_lo, inner_length, inner_stride in axes:
        if n == 1:
            continue
        if length == 1:
            lo, length, stride = lo * n + inner_lo, inner_length, inner_stride
        elif inner_length == n and stride == inner_stride * n:
            lo, length, stride = lo * n, length * n, inner_stride
        else:
            return None
    return lo, length, stride


def _split(lo: int, length: int, stride: int, lengths: Sequence[int]) -> _Part | None:
    """The range as a box of axes of these lengths."""
    begin, shape = [], []
    steps = row_strides(lengths)
    for step in steps:
        if lo % step == 0 and length % step == 0:  # whole blocks of the axes behind; these are full from here on
            begin.append(lo // step)
            shape.append(length // step)
            lo, length = 0, step
        elif lo // step == (lo + length - 1) // step:  # within one block
            begin.append(lo // step)
            shape.append(1)
            lo %= step
        else:
            return None
    return _Part(tuple(begin), tuple(shape), tuple(stride * step for step in steps))


def follows_rows(box: Box, base: Sequence[int]) -> bool:
    """Does the column move with the row, so that the box lies on one diagonal?"""
    return all(n == 1 or s == r for n, s, r in zip(box.shape, box.strides, row_strides(base)))


def diagonal_of(box: Box, base: Sequence[int]) -> int:
    """Column minus row of its first row."""
    return box.offset - sum(lo * r for lo, r in zip(box.lo, row_strides(base)))


def is_everything(box: Box, base: Sequence[int]) -> bool:
    """Does it fill the base shape with consecutive columns and a plain number?"""
    if box.shape != tuple(base) or box.mask is not None or has_axes(box.values):
        return False
    return follows_rows(box, base) and math.prod(base) > 0
