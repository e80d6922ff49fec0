"""Which levels stay cut: until few points are left for each device, on a grid that is padded so that halves fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from .....backends import Cut
from .....sparse.operators.couplings import Shift
from ..coarsening import LEAST, LEAST_RING, WEAK

_SIDE = 8  # points along each axis of what a device has of the gathered grid, at most
_MOST_PADDING = 2  # times as many points


class CutPlan(NamedTuple):
    """The levels on which arrays are cut.

    Attributes:
        grid: the finest one, with points that are added at the end of open axes.
        factors: by which each of these grids is coarsened; the grid below the last one is gathered.
        most: points that a device should have of the gathered grid, at most.
    """

    grid: tuple[int, ...]
    factors: tuple[Shift, ...]
    most: int

    @property
    def grids(self) -> list[tuple[int, ...]]:
        """Those that are cut, and the gathered one."""
        found = [self.grid]
        for factors in self.factors:
            found.append(tuple(-(-n // f) for n, f in zip(found[-1], factors)))
        return found


def plan_of(
    grid: tuple[int, ...], cut: Cut, periodic: tuple[bool, ...], strengths: Sequence[float] | None = None
) -> CutPlan:
    """Coarsen until a device has at most 8^d points, and no further: it then solves on all of them.

    Rings are not padded, so that their blocks are halved while their length is even. Where padding would double the
    points, the grid is gathered earlier.

    Args:
        strengths: of the couplings along each axis, if known: axes along which they are weak are not coarsened yet. On
            the coarser grid they are a quarter for an axis that was halved, as differences are of second order.

    Raises:
        ValueError: the parts do not divide a ring.
    """
    for n, parts, ring in zip(grid, cut.parts, periodic):
        if ring and n % parts:
            raise ValueError(
                f"multigrid was asked for a periodic axis of {n} points in {parts} parts; expected a multiple. Choose "
                "another mesh or grid, or preconditioner='jacobi'."
            )
    most = _SIDE ** max(sum(n > 1 for n in grid), 1)
    best, lengths, factors = CutPlan(_padded(grid, cut, periodic, ()), (), most), grid, list[Shift]()
    strong = [1.0] * len(grid) if strengths is None else list(strengths)
    while math.prod(cut.local(best.grids[-1])) > most:
        step = _step(lengths, cut, periodic, strong)
        if step is None:
            break
        factors.append(step)
        padded = _padded(grid, cut, periodic, factors)
        if math.prod(padded) > _MOST_PADDING * math.prod(grid):
            break
        best = CutPlan(padded, tuple(factors), most)
        lengths = tuple(-(-n // f) for n, f in zip(lengths, step))
        strong = [s / f**2 for s, f in zip(strong, step)]
    return best


def _step(lengths: Shift, cut: Cut, periodic: Sequence[bool], strengths: Sequence[float]) -> Shift | None:
    """Factors of the next level; None where there is none."""
    long = [n >= (LEAST_RING if ring else LEAST) for n, ring in zip(lengths, periodic)]
    largest = max((s for s, can in zip(strengths, long) if can), default=0)
    halved = [can and s >= WEAK * largest for s, can in zip(strengths, long)]
    even = [not ring or n // parts % 2 == 0 for n, parts, ring in zip(lengths, cut.parts, periodic)]
    if not any(halved) or not all(fits for fits, needed in zip(even, halved) if needed):
        return None
    return tuple(2 if half else 1 for half in halved)


def _padded(grid: Shift, cut: Cut, periodic: Sequence[bool], factors: Sequence[Shift]) -> Shift:
    """The grid whose blocks can be halved so."""
    units = [parts * math.prod(f[axis] for f in factors) for axis, parts in enumerate(cut.parts)]
    return tuple(
        n if ring or parts == 1 else -(-n // unit) * unit
        for n, ring, parts, unit in zip(grid, periodic, cut.parts, units)
    )
