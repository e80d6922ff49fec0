"""Magnitudes of the couplings of a matrix on a grid: along each axis, and around each point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...backends.cores import shared as cores
from ..preconditioners.multigrid.couplings import Couplings, Shift, sum_of_terms

PART = 2**17  # numbers that are computed with at a time: with less, threads wait for each other


def means(A: Couplings) -> list[float]:
    """Mean magnitude of the non-zero couplings along each axis; 0 without any."""
    found = []
    for axis in range(len(A.grid)):
        values = [A.values[s] for s in shifts_along(A, axis) if s[axis] > 0 or not A.is_exactly_hermitian]
        parts = [part for a in values for part in _blocks(a)]
        count = sum(np.count_nonzero(part) for part in parts)
        found.append(float(sum(np.abs(part).sum() for part in parts)) / max(count, 1))
    return found


def _blocks(a: np.ndarray) -> list[np.ndarray]:
    """Views of blocks of the arrays."""
    if not a.flags.c_contiguous:
        return [a]
    flat = a.reshape(-1)
    return [flat[start : start + PART] for start in range(0, flat.size, PART)]


def around(A: Couplings, means: Sequence[float]) -> np.ndarray:
    """`(*grid)`: mean magnitude of a point's couplings, relative to the mean along each axis; 1 without any."""
    found = np.empty(A.grid)

    def fill(first: int, last: int) -> None:
        found[first:last] = _around_few(planes(A, 0, first, last), means)

    cores.in_blocks(fill, A.grid[0], planes_at_a_time(A.grid))
    return found


def _around_few(A: Couplings, means: Sequence[float]) -> np.ndarray:
    sums, counts, some = np.zeros(A.grid), np.zeros(A.grid, np.int8), 0
    for axis, mean in enumerate(means):
        sizes = [np.abs(A.values[s][0]) for s in shifts_along(A, axis)]
        if mean > 0:
            both = np.logical_and.reduce([a > 0 for a in sizes])
            size = sum_of_terms(sizes)
            size /= np.where(both, len(sizes) * mean, mean)  # there are two at most
            sums += size
            counts += size > 0
            some += 1
    if some and counts.min(initial=some) == some:
        return sums / some
    return np.where(sums > 0, sums / np.maximum(counts, 1), 1)


def shifts_along(A: Couplings, axis: int) -> list[Shift]:
    """Offsets of one point along this axis only."""
    return [s for s in A.values if s[axis] and not any(step for k, step in enumerate(s) if k != axis)]


def planes(A: Couplings, axis: int, first: int, last: int) -> Couplings:
    """Coefficients of the points with an index from `first` to `last` - 1 along an axis."""
    at = (slice(None),) * (axis + 1) + (slice(first, last),)
    grid = (*A.grid[:axis], last - first, *A.grid[axis + 1 :])
    rings = (*A.periodic[:axis], False, *A.periodic[axis + 1 :])
    return replace(A, grid=grid, periodic=rings, values={s: a[at] for s, a in A.values.items()})


def planes_at_a_time(grid: Sequence[int]) -> int:
    """Number of planes of the first axis that fit the cache with their intermediates."""
    return max(1, PART * grid[0] // max(math.prod(grid), 1))
