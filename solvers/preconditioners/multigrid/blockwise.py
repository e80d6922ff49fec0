"""Blockwise set-up of a multigrid level: blocks of rows of the grid, which stay in the cache.

Everything that a point of the coarser grid has comes from the points around it. A part therefore has some rows more on
each side than are kept of it, and numbers are the same, to the last digit, as if the grid were taken at once. Threads
would not help: each of some hundred short operations waits for the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ....backends import Array
from ....sparse.operators.couplings import Couplings, Shift, Stacked
from .weakly_coupled import WeaklyCoupled
from .weights import coarse_grid

_AROUND = 2  # rows of the coarser grid that a number of a level may come from, to either side
_ROWS = 32  # of the coarser grid that are kept of a part: with more it leaves the cache, with less much is done twice
_LEAST = 2**15  # points of a grid that is worth more than one part


class LevelArrays(NamedTuple):
    """Arrays of a level, computed from its stencil coefficients.

    Attributes:
        scale: of its unknowns, `(systems or 1, *grid)`.
        own: its couplings, scaled.
        weights: of the interpolation, `(places, systems or 1, *coarse grid)`.
        coarse: couplings of the next coarser grid.
        weak_points: see `weights_and_weakly_coupled`.
    """

    scale: Array
    own: Couplings
    weights: Array
    coarse: Couplings
    weak_points: list[Array]


def blockwise_setup(
    make: Callable[[Couplings], LevelArrays],
    A: Couplings,
    factors: Shift,
    dtype: np.dtype,
    stops: Callable[[WeaklyCoupled], bool],
) -> tuple[LevelArrays | None, WeaklyCoupled]:
    """`make(A)` for NumPy arrays, block by block, and its weakly coupled points; coefficients and weights in `dtype`.

    Args:
        stops: asked after each block whether there are too many of these already; then there are no arrays.
    """
    grid, factor = coarse_grid(A.grid, factors), factors[0]
    if A.grid[0] * int(np.prod(A.grid[1:])) < _LEAST or grid[0] < 2 * _ROWS:
        made = make(A)
        weak_points = WeaklyCoupled.of(made.weak_points, slice(None))
        if stops(weak_points):
            return None, weak_points
        return made._replace(own=made.own.astype(dtype), weights=made.weights.astype(dtype, copy=False)), weak_points
    whole, weak_points = None, WeaklyCoupled()
    for start in range(0, grid[0], _ROWS):
        end = min(start + _ROWS, grid[0])
        before, after = _around(start, end, grid[0], A.periodic[0])
        part = make(_rows(A, factor * (start - before), factor * (end + after)))
        whole = whole or _Whole(A, grid, part, dtype)
        whole.put(part, slice(start, end), before, factor)
        weak_points = weak_points.plus(WeaklyCoupled.of(part.weak_points, slice(before, before + end - start)))
        if stops(weak_points):
            return None, weak_points
    return whole.made(A, grid), weak_points  # type: ignore[union-attr]


def _around(start: int, end: int, n: int, ring: bool) -> tuple[int, int]:
    """Halo rows of a part before and after its own: none at the ends of the grid."""
    return (_AROUND, _AROUND) if ring else (min(_AROUND, start), min(_AROUND, n - end))


def _rows(A: Couplings, start: int, end: int) -> Couplings:
    """Coefficients of these rows of the first axis, with wrap-around if it is periodic."""
    n = A.grid[0]
    if A.periodic[0]:
        rows = np.arange(start, end) % n
        values = {s: np.take(a, rows, axis=1) for s, a in A.values.items()}
    else:
        end = min(end, n)
        values = {s: a[:, start:end] for s, a in A.values.items()}
    return replace(A, grid=(end - start, *A.grid[1:]), periodic=(False, *A.periodic[1:]), values=values)


class _Whole:
    """Arrays of the whole level, filled part by part."""

    def __init__(self, A: Couplings, grid: Shift, first: LevelArrays, dtype: np.dtype) -> None:
        systems, wide = first.scale.shape[0], first.coarse.diagonal.dtype
        self.shifts, self.coarse_shifts = first.own.shifts, first.coarse.shifts
        self.scale = np.empty((systems, *A.grid), first.scale.dtype)
        self.own = np.empty((len(self.shifts), systems, *A.grid), dtype)
        self.weights = np.empty((len(first.weights), systems, *grid), dtype)
        self.coarse = np.empty((len(self.coarse_shifts), systems, *grid), wide)

    def put(self, part: LevelArrays, rows: slice, before: int, factor: int) -> None:
        """Copy a part without its halo rows."""
        kept = slice(before, before + rows.stop - rows.start)
        own = slice(factor * rows.start, min(factor * rows.stop, self.scale.shape[1]))
        kept_own = slice(factor * before, factor * before + own.stop - own.start)
        self.scale[:, own] = part.scale[:, kept_own]
        for k, shift in enumerate(self.shifts):
            self.own[k, :, own] = part.own.values[shift][:, kept_own]
        self.weights[:, :, rows] = part.weights[:, :, kept]
        for k, shift in enumerate(self.coarse_shifts):
            self.coarse[k, :, rows] = part.coarse.values[shift][:, kept]

    def made(self, A: Couplings, grid: Shift) -> LevelArrays:
        own = replace(A, values=Stacked(self.shifts, self.own))
        coarse = replace(A, grid=grid, values=Stacked(self.coarse_shifts, self.coarse))
        return LevelArrays(self.scale, own, self.weights, coarse, [])
