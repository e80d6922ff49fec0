"""Row-major numbering of grid points."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Distance in row-major order between neighbours along each axis."""
    strides, distance = [], 1
    for n in reversed(shape):
        strides.append(distance)
        distance *= n
    return tuple(reversed(strides))


def affine(start: int, strides: Sequence[int], shape: Sequence[int]) -> np.ndarray:
    """`start + sum(strides * i)` for all i in `shape`, int32. Every result must be below 2^31."""
    found = np.full((1,) * len(shape), start, np.int32)
    for axis in reversed(range(len(shape))):
        if shape[axis] > 1:
            steps = np.arange(shape[axis], dtype=np.int32) * np.int32(strides[axis])
            found = found + steps.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(found, tuple(shape))


def points(lo: Sequence[int], shape: Sequence[int], grid: Sequence[int]) -> np.ndarray:
    """Numbers of the points of a box on a grid, in its order, int32."""
    strides = row_strides(grid)
    return affine(sum(a * s for a, s in zip(lo, strides)), strides, shape).reshape(-1)
