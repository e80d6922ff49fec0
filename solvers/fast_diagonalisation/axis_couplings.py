"""Couplings of a matrix on a grid by axis: off-diagonals, row sums, means of both, and magnitudes around a point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ...backends.cores import shared as cores
from ...sparse.operators.couplings import Couplings, Shift, sum_of_terms

PART = 2**17  # numbers that are computed with at a time: with less, threads wait for each other


class AxisCouplings(NamedTuple):
    """Means along one axis: couplings of points i and i + 1 (mod n), and the share of the row sums, `(n,)`."""

    up: np.ndarray
    rows: np.ndarray
    ring: bool


class CouplingsByAxis(NamedTuple):
    """Couplings of a matrix, split by axis.

    Attributes:
        up: for each axis the coupling of a point to the next one along it, `(*grid)`.
        rows: the row sums, `(*grid)`.
        lines: means of both over the other axes.
    """

    up: list[np.ndarray]
    rows: np.ndarray
    lines: list[AxisCouplings]


def couplings_by_axis(A: Couplings, root: np.ndarray | None) -> CouplingsByAxis:
    """Split D^-1/2 A D^-1/2, some planes at a time, in the cache."""
    grid, rank = A.grid, len(A.grid)
    up, rows = [np.empty(grid, A.diagonal.dtype) for _ in grid], np.empty(grid, A.diagonal.dtype)
    inverse = None if root is None else inverse_with_rim(root, A.periodic)
    sums: list[tuple[int, list[list[np.ndarray]]]] = []

    def read(first: int, last: int) -> None:
        part = planes(A, 0, first, last)
        own, rest = scaled_planes(part, None if inverse is None else inverse[first : last + 2])
        for all_of_it, one in zip([*up, rows], [*own, rest]):
            all_of_it[first:last] = one
        sums.append((first, [[_sum_beside(one, axis) for one in (own[axis], rest)] for axis in range(rank)]))

    cores.in_blocks(read, grid[0], planes_at_a_time(grid))
    found = [one for _, one in sorted(sums, key=lambda one: one[0])]
    lines: list[AxisCouplings] = []
    for axis, n in enumerate(grid):
        steps, own = (_joined([one[axis][k] for one in found], axis) / (rows.size / n) for k in range(2))
        lines.append(AxisCouplings(steps, own - own.mean() * (rank - 1) / rank, A.periodic[axis]))
    return CouplingsByAxis(up, rows, lines)


def _joined(parts: list[np.ndarray], axis: int) -> np.ndarray:
    """Join means of parts along the first axis."""
    return np.concatenate(parts) if axis == 0 else np.sum(parts, axis=0)


def inverse_with_rim(root: np.ndarray, periodic: Sequence[bool]) -> np.ndarray:
    """1 / root with halo points at both ends of each axis: wrapped if periodic, else 0."""
    found = np.zeros([n + 2 for n in root.shape])
    np.divide(1, root, out=found[(slice(1, -1),) * root.ndim])
    for axis, ring in enumerate(periodic):
        if ring:
            lines = np.moveaxis(found, axis, 0)
            lines[0], lines[-1] = lines[-2], lines[1]
    return found


def scaled_planes(A: Couplings, inverse: np.ndarray | None) -> tuple[list[np.ndarray], np.ndarray]:
    """Couplings to the next points along each axis, and row sums; `inverse` is a scaling with halo points."""
    up: list[np.ndarray | None] = [None] * len(A.grid)
    rows = np.zeros(A.grid, A.diagonal.dtype)
    for s, a in A.values.items():
        beside = tuple(slice(1 + step, 1 + step + n) for step, n in zip(s, A.grid))
        own = a[0] if inverse is None else a[0] * inverse[beside]
        rows += own
        for axis, step in enumerate(s):
            if step == 1:
                up[axis] = own if up[axis] is None else up[axis] + own
    found = [np.zeros_like(rows) if one is None else one for one in up]
    if inverse is None:
        return found, rows
    here = inverse[(slice(1, -1),) * len(A.grid)]
    return [here * one for one in found], here * rows


def _sum_beside(a: np.ndarray, axis: int) -> np.ndarray:
    """Sum over the other axes."""
    return a.sum(axis=tuple(k for k in range(a.ndim) if k != axis))


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
