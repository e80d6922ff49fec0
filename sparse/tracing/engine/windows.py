"""Where the windows of gathers and scatters lie: flat positions into their operand, for known indices.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from ...formats.entries.integers import row_strides

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
