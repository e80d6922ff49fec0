"""Which levels stay cut: until few points are left for each device, on a grid that is padded so that halves fit."""

from __future__ import annotations

import math
from typing import NamedTuple

from .....backends import Cut
from .....sparse.operators.couplings import Shift

_SIDE = 8  # points along each axis of what a device has of the gathered grid, at most
_MOST_PADDING = 1.5  # times as many points
_LEAST_RING, _LEAST = 6, 3  # as in `coarsening`


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


def plan_of(grid: tuple[int, ...], cut: Cut, periodic: tuple[bool, ...]) -> CutPlan:
    """Coarsen until a device has at most 8^d points, and no further: it then solves on all of them.

    Rings are not padded, so that their blocks are halved while their length is even. With as much padding as half of
    the points the grid is gathered earlier.

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
    best = CutPlan(_padded(grid, cut, periodic, 0), (), most)
    for count in range(1, max(grid).bit_length() + 1):
        if _share(best, cut) <= most:
            break
        padded = _padded(grid, cut, periodic, count)
        factors = _factors(padded, cut, periodic, count)
        if factors is None or math.prod(padded) > _MOST_PADDING * math.prod(grid):
            break
        best = CutPlan(padded, factors, most)
    return best


def _share(plan: CutPlan, cut: Cut) -> int:
    """Points that a device has of the gathered grid."""
    return math.prod(cut.local(plan.grids[-1]))


def _padded(grid: tuple[int, ...], cut: Cut, periodic: tuple[bool, ...], count: int) -> tuple[int, ...]:
    """The grid whose blocks can be halved `count` times, or as often as their axis is long enough."""
    found = []
    for n, parts, ring in zip(grid, cut.parts, periodic):
        halvings, left = 0, n
        while halvings < count and left >= _LEAST:
            halvings, left = halvings + 1, -(-left // 2)
        unit = parts * 2**halvings
        found.append(n if ring or parts == 1 else -(-n // unit) * unit)
    return tuple(found)


def _factors(grid: tuple[int, ...], cut: Cut, periodic: tuple[bool, ...], count: int) -> tuple[Shift, ...] | None:
    """Of so many levels; None where there are not so many."""
    found = []
    for _ in range(count):
        factors = []
        for n, parts, ring in zip(grid, cut.parts, periodic):
            if ring and parts > 1 and n // parts % 2:
                return None
            halved = n >= _LEAST_RING and n % 2 == 0 if ring else n >= _LEAST and n // parts * parts == n
            factors.append(2 if halved and (parts == 1 or n // parts % 2 == 0) else 1)
        if max(factors) == 1:
            return None
        found.append(tuple(factors))
        grid = tuple(-(-n // f) for n, f in zip(grid, factors))
    return tuple(found)
