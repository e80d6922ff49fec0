"""The three kinds of term that a traced array is a sum of.

A term says which columns of the matrix the rows of an array depend on, and with which entries. An entry is
`factor * values`: the factor is a number that is always known, so that signs and constants cost nothing; `values` is
None (one), an array, or a traced number without axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ....backends import Backend
from ...formats.entries.integers import affine, row_strides, rows_first, starts_of
from . import coefficients as co
from .coefficients import Coefficient, Number
from .limits import check_entries, check_rows


class Box(NamedTuple):
    """Rows `lo + i` with i in a box of `shape`; row i has the column `offset + sum(strides * i)`.

    Rules for boxes cost the same for arrays of any size, so stencils are followed symbolically.

    Attributes:
        lo, shape: the box in the base shape of the array, never empty.
        offset, strides: the columns.
        factor: known number.
        values: None, or array of the box's shape (for known values often a broadcast view), or traced number.
        mask: known bool array of the box's shape that says where entries are; None: everywhere.
    """

    lo: tuple[int, ...]
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]
    factor: Number = 1
    values: Coefficient = None
    mask: np.ndarray | None = None

    @property
    def coefficient(self) -> Coefficient:
        """Factor times values: a number, or an array of the box's shape."""
        if self.values is None:
            return self.factor
        return self.values if self.factor == 1 else self.values * self.factor

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where the box lies."""
        return tuple(slice(lo, lo + n) for lo, n in zip(self.lo, self.shape))

    @property
    def size(self) -> int:
        """Number of rows."""
        return math.prod(self.shape)


class Gathered(NamedTuple):
    """One column per element of the array: `columns` of the base shape, -1 where there is none.

    `values` has the base shape, or is None or a traced number.
    """

    columns: np.ndarray
    factor: Number = 1
    values: Coefficient = None

    @property
    def size(self) -> int:
        """Number of rows."""
        return self.columns.size


class Entries(NamedTuple):
    """Any entries: flat rows and columns, in any order, duplicates add up. `values` has their length."""

    rows: np.ndarray
    columns: np.ndarray
    factor: Number = 1
    values: Coefficient = None

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self.rows)


Term: TypeAlias = Box | Gathered | Entries


def has_axes(values: Coefficient) -> bool:
    """Is it an array, so that moving the elements of a term moves its elements too?"""
    return values is not None and len(co.shape_of(values)) > 0


def to_gathered(bk: Backend, box: Box, base: Sequence[int]) -> Gathered:
    """One column per element of the base shape."""
    check_entries(math.prod(base), "Following single elements of an array")
    columns = affine(box.offset, box.strides, box.shape)
    if box.mask is not None:
        columns = np.where(box.mask, columns, np.int32(-1))
    widths = [(lo, n - lo - m, 0) for lo, m, n in zip(box.lo, box.shape, base)]
    if box.shape == tuple(base):
        return Gathered(columns, box.factor, box.values)
    values = co.pad(bk, box.values, widths) if has_axes(box.values) else box.values
    return Gathered(co.pad(bk, columns, widths, -1), box.factor, values)


def to_entries(bk: Backend, term: Term, base: Sequence[int]) -> Entries:
    """Flat rows of the base shape, and columns."""
    check_rows(base, "A traced array")
    if isinstance(term, Box):
        return box_entries(bk, term, row_strides(base))
    if isinstance(term, Entries):
        return term
    columns = term.columns.reshape(-1)
    values = co.reshape(bk, term.values, (-1,)) if has_axes(term.values) else term.values
    rows = np.flatnonzero(columns >= 0).astype(np.int32)
    if len(rows) < len(columns):
        columns, values = columns[rows], elements(bk, values, rows)
    return Entries(rows, columns, term.factor, values)


def box_entries(bk: Backend, box: Box, distances: Sequence[int]) -> Entries:
    """As `to_entries`, where the next row along each axis is `distances` away (0: the same row, a sum)."""
    check_entries(box.size, "Writing out all elements of an array")
    start = sum(lo * distance for lo, distance in zip(box.lo, distances))
    rows = affine(start, distances, box.shape).reshape(-1)
    columns = affine(box.offset, box.strides, box.shape).reshape(-1)
    values = co.reshape(bk, box.values, (-1,)) if has_axes(box.values) else box.values
    if box.mask is not None:
        chosen = np.flatnonzero(box.mask)
        rows, columns, values = rows[chosen], columns[chosen], elements(bk, values, chosen)
    return Entries(rows, columns, box.factor, values)


def elements(bk: Backend, values: Coefficient, chosen: np.ndarray) -> Coefficient:
    """Some elements of flat values; what has no axes stays."""
    return co.take(bk, values, chosen) if has_axes(values) else values


def full_values(bk: Backend, term: Any, shape: Sequence[int], dtype: np.dtype) -> Coefficient:
    """Factor times values as an array of `shape`."""
    if term.values is None:
        return np.broadcast_to(np.asarray(term.factor, dtype), tuple(shape))
    values = term.values if term.factor == 1 else co.multiply(bk, co.cast(bk, term.values, dtype), term.factor)
    return co.broadcast_to(bk, co.cast(bk, values, dtype), shape)


# --- boxes under operations that move elements ------------------------------------------------------------------------


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


# --- reshape ----------------------------------------------------------------------------------------------------------


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


# --- rows at any positions --------------------------------------------------------------------------------------------


def take_rows(bk: Backend, term: Term, base: Sequence[int], positions: np.ndarray) -> Term:
    """Row `positions[i]` (flat, of the base shape; -1: an empty row) becomes row i of an array of their shape."""
    if isinstance(term, Entries):
        return take_entries(bk, term, math.prod(base), positions.reshape(-1))
    check_entries(positions.size, "Indexing an array")
    if isinstance(term, Gathered):
        return _take_gathered(bk, term, positions)
    if is_everything(term, base):
        columns = positions.astype(np.int32)
        if term.offset:
            columns = np.where(columns >= 0, columns + np.int32(term.offset), np.int32(-1))
        return Gathered(columns, term.factor, term.values)
    if 4 * positions.size < math.prod(base):
        return _take_few(bk, term, base, positions)
    return _take_gathered(bk, to_gathered(bk, term, base), positions)


def _take_gathered(bk: Backend, term: Gathered, positions: np.ndarray) -> Gathered:
    columns = co.take(bk, term.columns.reshape(-1) + np.int32(1), positions) - np.int32(1)
    values = term.values
    if has_axes(values):
        values = co.take(bk, co.reshape(bk, values, (-1,)), positions)
    return Gathered(columns, term.factor, values)


def _take_few(bk: Backend, box: Box, base: Sequence[int], positions: np.ndarray) -> Gathered:
    """Without writing out the rest of the box."""
    inside = positions >= 0
    index = np.unravel_index(np.where(inside, positions, 0), tuple(base)) if base else ()
    columns = np.full(positions.shape, box.offset, np.int64)
    within = []
    for i, lo, n, stride in zip(index, box.lo, box.shape, box.strides):
        inside &= (i >= lo) & (i < lo + n)
        within.append(np.clip(i - lo, 0, n - 1))
        columns += stride * within[-1]
    flat = np.ravel_multi_index(within, box.shape) if base else np.zeros(positions.shape, np.intp)
    if box.mask is not None:
        inside &= box.mask.reshape(-1)[flat]
    values = box.values
    if has_axes(values):
        values = co.take(bk, co.reshape(bk, values, (-1,)), np.where(inside, flat, -1))
    return Gathered(np.where(inside, columns, -1).astype(np.int32), box.factor, values)


def take_entries(bk: Backend, term: Entries, count: int, positions: np.ndarray) -> Entries:
    """Rows of a term with `count` rows, each as often as it is asked for."""
    wanted = np.flatnonzero(positions >= 0)
    sources = positions[wanted]
    asked = np.bincount(sources, minlength=count)
    if asked.max(initial=0) <= 1:  # no row twice: each entry moves, or goes
        target = np.full(count, -1, np.int32)
        target[sources] = wanted
        rows = target[term.rows]
        kept = np.flatnonzero(rows >= 0)
        if len(kept) == len(rows):
            return term._replace(rows=rows)
        return Entries(rows[kept], term.columns[kept], term.factor, elements(bk, term.values, kept))
    by_row = grouped(term.rows, count)
    which, entry = by_row.members(sources, "Indexing an array")
    rows = wanted[which].astype(np.int32)
    return Entries(rows, term.columns[entry], term.factor, elements(bk, term.values, entry))


class Groups(NamedTuple):
    """Things by the group that they belong to, as in CSR: those of group g are `order[starts[g] : starts[g + 1]]`."""

    order: np.ndarray
    starts: np.ndarray

    def members(self, groups: np.ndarray, what: str) -> tuple[np.ndarray, np.ndarray]:
        """All pairs `(i, member of groups[i])`, as two arrays."""
        first = self.starts[groups]
        counts = self.starts[groups + 1] - first
        total = int(counts.sum(dtype=np.int64))
        check_entries(total, what)
        ends = np.cumsum(counts)
        which = np.repeat(np.arange(len(groups)), counts)
        return which, self.order[np.arange(total) + np.repeat(first - (ends - counts), counts)]


def grouped(groups: np.ndarray, count: int) -> Groups:
    """Sort things by their group, stably, in linear time."""
    starts = starts_of(groups, count)
    rising = not np.any(groups[1:] < groups[:-1])
    return Groups(np.arange(len(groups)) if rising else rows_first(groups, count), starts)
