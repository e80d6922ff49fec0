"""Recognition of index arrays that are slices, so that boxes can follow an indexing with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...formats.entries.integers import affine, row_strides
from .linear import Linear, reshape
from .structural import broadcast_in_dim, pad, reverse, slice_, transpose


class Slices(NamedTuple):
    """`positions[i] = flat(starts + steps * i)`, axis by axis.

    Attributes:
        starts, steps: along each axis of the array that is indexed; a step of 0 where one element is taken.
        counts: elements along each of these axes.
        axes: for each axis of the positions the axis that it runs along; -1 where the same is repeated.
    """

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    counts: tuple[int, ...]
    axes: tuple[int, ...]


def find_slices(positions: np.ndarray, shape: Sequence[int]) -> Slices | None:
    """The slices of an array of `shape` that flat positions are, None if they are none."""
    if not positions.size:
        return None
    corner = (0,) * positions.ndim
    start = int(positions[corner])
    if start < 0:
        return None
    distances = []
    for axis, n in enumerate(positions.shape):
        neighbour = (*corner[:axis], 1, *corner[axis + 1 :])
        distances.append(int(positions[neighbour]) - start if n > 1 else 0)
    found = slices_at(start, distances, positions.shape, shape)
    return found if found is not None and _is_affine(positions, start, distances) else None


def slices_at(start: int, distances: Sequence[int], counts: Sequence[int], shape: Sequence[int]) -> Slices | None:
    """The slices of an array of `shape` that the positions `start + sum(distances * i)`, i below `counts`, are."""
    starts = [int(i) for i in np.unravel_index(start, tuple(shape))] if shape else []
    steps, lengths, axes = [0] * len(shape), [1] * len(shape), []
    for distance, n in zip(distances, counts):
        axis = _axis_of(distance, shape)
        axes.append(axis)
        if axis < 0:
            if distance != 0:
                return None
            continue
        step = distance // row_strides(shape)[axis]
        last = starts[axis] + step * (n - 1)
        if lengths[axis] > 1 or not 0 <= last < shape[axis]:
            return None
        steps[axis], lengths[axis] = step, n
    return Slices(tuple(starts), tuple(steps), tuple(lengths), tuple(axes))


def _axis_of(distance: int, shape: Sequence[int]) -> int:
    """The outermost axis along which positions can be so far apart; -1 if there is none."""
    if distance == 0:
        return -1
    for axis, (n, stride) in enumerate(zip(shape, row_strides(shape))):
        if n > 1 and distance % stride == 0:
            return axis
    return -1


def _is_affine(positions: np.ndarray, start: int, distances: Sequence[int]) -> bool:
    last = start + sum(d * (n - 1) for d, n in zip(distances, positions.shape))
    if int(positions[(-1,) * positions.ndim]) != last:
        return False
    return bool(np.array_equal(positions, affine(start, distances, positions.shape)))


def slice_rows(x: Linear, found: Slices, shape: Sequence[int]) -> Linear:
    """The elements of `x` at the positions of these slices."""
    backward = [a for a, step in enumerate(found.steps) if step < 0]
    starts, limits, steps = [], [], []
    for start, step, count in zip(found.starts, found.steps, found.counts):
        last = start + step * (count - 1)
        starts.append(min(start, last))
        limits.append(max(start, last) + 1)
        steps.append(abs(step) or 1)
    part = slice_(x, starts, limits, steps)
    part = reverse(part, backward) if backward else part
    used = [axis for axis in found.axes if axis >= 0]
    rising = sorted(used)
    part = reshape(part, [found.counts[axis] for axis in rising])
    part = transpose(part, [rising.index(axis) for axis in used])
    return broadcast_in_dim(part, shape, [k for k, axis in enumerate(found.axes) if axis >= 0])


def embed(x: Linear, found: Slices, shape: Sequence[int]) -> Linear | None:
    """An array of `shape` that is `x` at the positions of these slices, else zero; None where a step is not 1."""
    used = [axis for axis in found.axes if axis >= 0]
    if any(step not in (0, 1) for step in found.steps) or any(
        axis < 0 and n > 1 for axis, n in zip(found.axes, x.shape)
    ):
        return None
    part = reshape(x, [n for axis, n in zip(found.axes, x.shape) if axis >= 0])
    rising = sorted(used)
    part = reshape(transpose(part, [used.index(axis) for axis in rising]), found.counts)
    return pad(part, [(lo, n - lo - m, 0) for lo, m, n in zip(found.starts, found.counts, shape)])
