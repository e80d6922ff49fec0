"""Indexing by known positions: windows of gathers and scatters, single elements, runs along an axis.

Rows 2 and 0 of an array (3, 2), as windows of size (1, 2) whose first axis is left out:

>>> rows = Window((3, 2), (1, 2), [0], [0], [], [], [1], clamps=False)
>>> positions(rows, np.array([[2], [0]]), (2, 2))
array([[4, 5],
       [0, 1]])
>>> positions(rows, np.array([[1], [3]]), (2, 2))  # there is no row 3
array([[ 2,  3],
       [-1, -1]])

One window is a slice, which boxes follow: it starts at

>>> single_start(rows, np.array([[1]]))
[1, 0]

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u = identity(get_backend("numpy"), (5,), float)
>>> for term in roll(u, 1).terms:
...     print(term.lo, term.shape, term.offset)
(0,) (1,) 4
(1,) (4,) 0
>>> pad_by_mode(u, [(1, 0)], "edge").terms[0].offset
0
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...errors import UnsupportedOperation
from ...formats.entries.integers import row_strides
from . import coefficients as co
from .arithmetic import add
from .linear import Linear, linear_among, reshape
from .operands import Operand, shape_of, spread
from .positions import assemble, replace_elements, take
from .structural import broadcast_to, concatenate, cut, pad, reverse

Shape: TypeAlias = tuple[int, ...]


class Window(NamedTuple):
    """The windows that a gather reads, or that a scatter writes, in the words of XLA's gather."""

    shape: Shape  # of the operand
    sizes: Shape  # of one window, along each axis of the operand
    start_map: Sequence[int]  # axis of the operand that each index component moves along
    absent: Sequence[int]  # axes of the operand (window size 1) that the result has no axis for
    operand_batch: Sequence[int]
    index_batch: Sequence[int]
    offset_dims: Sequence[int]  # axes of the result that run inside the window
    clamps: bool  # out of range: the nearest window; else -1


def positions(window: Window, indices: np.ndarray, result: Shape) -> np.ndarray:
    """Flat position in the operand for each element of a result of this shape; -1 where the window is out of range."""
    starts = _starts(indices)
    batch_axes = [axis for axis in range(len(result)) if axis not in window.offset_dims]
    steps = row_strides(window.shape)

    def along(values: np.ndarray, axes: Sequence[int]) -> np.ndarray:
        shape = [1] * len(result)
        for axis, size in zip(axes, values.shape):
            shape[axis] = size
        return values.reshape(shape)

    flat = np.zeros((1,) * len(result), np.int64)
    inside = np.ones((1,) * len(result), bool)
    for component, axis in enumerate(window.start_map):
        start, last = starts[..., component], window.shape[axis] - window.sizes[axis]
        if not window.clamps:
            inside = inside & along((start >= 0) & (start <= last), batch_axes)
        flat = flat + along(np.clip(start, 0, max(last, 0)) * steps[axis], batch_axes)
    for axis, index_axis in zip(window.operand_batch, window.index_batch):
        flat = flat + along(np.arange(window.shape[axis]) * steps[axis], [batch_axes[index_axis]])
    present = [a for a in range(len(window.shape)) if a not in window.absent and a not in window.operand_batch]
    for axis, offset_axis in zip(present, window.offset_dims):
        flat = flat + along(np.arange(window.sizes[axis]) * steps[axis], [offset_axis])
    return np.where(np.broadcast_to(inside, result), np.broadcast_to(flat, result), -1)


def single_start(window: Window, indices: np.ndarray) -> list[int] | None:
    """Where the window starts along each axis if there is one window only and it is in range; else None."""
    if window.operand_batch or indices.size != len(window.start_map):
        return None
    starts = [0] * len(window.shape)
    for axis, start in zip(window.start_map, _starts(indices).reshape(-1)):
        last = window.shape[axis] - window.sizes[axis]
        if window.clamps:
            start = min(max(start, 0), last)
        if not 0 <= start <= last:
            return None
        starts[axis] = int(start)
    return starts


def clamped_start(starts: Sequence[Any], shape: Shape, sizes: Sequence[int]) -> list[int]:
    """The start of one window, clamped so that it is in range."""
    return [min(max(int(start), 0), n - size) for start, n, size in zip(starts, shape, sizes)]


def _starts(indices: np.ndarray) -> np.ndarray:
    return np.minimum(indices, 1 << 62).astype(np.int64) if indices.dtype == np.uint64 else indices.astype(np.int64)


# --- elements at computed positions -----------------------------------------------------------------------------------


def numbers(shape: Sequence[int], first: int = 0) -> np.ndarray:
    """The flat position of each element, counted from `first`."""
    return np.arange(first, first + math.prod(shape)).reshape(tuple(shape))


def replace_at(x: Operand, positions: np.ndarray, source: Operand) -> Operand:
    """`x` with the elements at flat positions replaced by those of `source`, which broadcasts to their shape."""
    bk = linear_among([x, source], "replace_at").bk
    source = spread(bk, source, positions.shape)
    is_same = not isinstance(source, Linear) and co.single_value(source) is not None
    if not is_same and np.bincount(positions.reshape(-1)).max(initial=0) > 1:
        raise UnsupportedOperation(
            "an index occurs twice, and which of the values holds is not defined. Leave one out."
        )
    return replace_elements(bk, x, positions, source)


class Labels:
    """Numbers for the elements of some operands.

    An operation that gives each element one of its operands', or zero, shows which one by what it does to them.
    """

    def __init__(self) -> None:
        self._operands: list[Any] = []
        self._first = 1  # zeros that the operation fills in have none

    def of(self, x: Operand) -> np.ndarray:
        """The numbers of one more operand."""
        self._operands.append(x)
        found = numbers(shape_of(x), self._first)
        self._first += found.size
        return found

    def result(self, found: np.ndarray) -> Linear:
        """What the operation made of the numbers, as what it makes of the operands."""
        return assemble(self._operands, np.asarray(found).astype(np.int64) - 1)


# --- elements along one axis ------------------------------------------------------------------------------------------

_PIECES = 8  # of a shuffled axis that are slices


def along(x: Linear, axis: int, index: np.ndarray) -> Linear:
    """`np.take(x, index, axis)` for indices that are not negative."""
    axis, index = axis % x.ndim, np.asarray(index)
    if not len(index):
        return cut(x, axis, 0, 0)
    steps = np.diff(index)
    jumps = np.abs(steps) > 1
    turns = (steps[1:] != steps[:-1]) & ~jumps[:-1]
    breaks = np.flatnonzero(jumps | np.concatenate([[False], turns])) + 1
    if len(breaks) >= _PIECES:
        distance = row_strides(x.shape)[axis]
        own = np.arange(x.size).reshape(x.shape)
        first = own[(slice(None),) * axis + (slice(0, 1),)]
        return take(x, first + index.reshape([-1 if a == axis else 1 for a in range(x.ndim)]) * distance)
    parts = [_neighbours(x, axis, run) for run in np.split(index, breaks)]
    return parts[0] if len(parts) == 1 else concatenate(parts, axis)


def _neighbours(x: Linear, axis: int, index: np.ndarray) -> Linear:
    first, last, n = int(index[0]), int(index[-1]), len(index)
    piece = cut(x, axis, min(first, last), max(first, last) + 1)
    if last < first:
        return reverse(piece, [axis])
    if n > 1 and first == last:  # one element again and again
        return broadcast_to(piece, [n if a == axis else m for a, m in enumerate(x.shape)])
    return piece


def roll(x: Linear, shifts: Any, axes: Any = None) -> Linear:
    """`np.roll`."""
    if axes is None:
        return reshape(roll(reshape(x, (x.size,)), shifts, 0), x.shape)
    for shift, axis in np.broadcast(shifts, axes):
        n = x.shape[axis]
        if n and shift % n:
            x = along(x, axis, np.roll(np.arange(n), shift))
    return x


def pad_by_mode(x: Linear, widths: Sequence[tuple[int, int]], mode: str) -> Linear:
    """`np.pad` by elements of the array (edge, reflect, symmetric, wrap); negative widths cut."""
    for axis, (lo, hi) in enumerate(widths):
        if (lo, hi) != (0, 0):
            x = along(x, axis, _padded(x.shape[axis], lo, hi, mode))
    return x


def pad_by_mode_adjoint(x: Linear, widths: Sequence[tuple[int, int]], mode: str) -> Linear:
    """The transpose of `pad_by_mode`: each element is added to the one that it came from."""
    for axis, (lo, hi) in enumerate(widths):
        n = x.shape[axis] - lo - hi
        sources = _padded(n, lo, hi, mode)
        inside = pad(x, [(-lo, -hi, 0) if a == axis else (0, 0, 0) for a in range(x.ndim)]) if lo or hi else x
        for k in (*range(lo), *range(lo + n, len(sources))):
            place = (int(sources[k]), n - 1 - int(sources[k]), 0)
            inside = add(
                inside, pad(cut(x, axis, k, k + 1), [place if a == axis else (0, 0, 0) for a in range(x.ndim)])
            )
        x = inside
    return x


def _padded(n: int, lo: int, hi: int, mode: Any) -> np.ndarray:
    """The source of each element along a padded axis."""
    index = np.pad(np.arange(n), (max(lo, 0), max(hi, 0)), mode=mode)
    return index[max(-lo, 0) : len(index) - max(-hi, 0)]
