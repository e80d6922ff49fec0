"""Axis couplings of a matrix on a grid: its off-diagonals along each axis and its row sums, and means of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...backends.cores import shared as cores
from ..preconditioners.multigrid.couplings import Couplings
from .sizes import planes, planes_at_a_time


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
