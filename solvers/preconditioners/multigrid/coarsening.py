"""Coarsening: which grids there are, and which axes are coarsened from one to the next."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ....sparse.formats.entries.some_rows import evenly_spread
from ....sparse.operators.couplings import Couplings
from ...factors.planes import numbers_of_blocks

WEAK = 0.25  # of the strongest axis: couplings along an axis that need no coarsening yet
LEAST_RING = 6  # points of a periodic axis that can be halved: there must be three at least
LEAST = 3
_SAMPLE = 50_000  # points that tell how strong couplings are
_MOST_NUMBERS = 4 * 10**7  # of the inverse on the coarsest grid


class Coarsest(NamedTuple):
    """Size of the coarsest grid.

    Attributes:
        most: points at most.
        fine: grids of so many points are solved on where a coarser one would lose too much, see `WeaklyCoupled`.
    """

    most: int
    fine: int


def coarsest(grid: tuple[int, ...]) -> Coarsest:
    """Default size of the coarsest grid."""
    axes = sum(n > 1 for n in grid)
    most = {0: 64, 1: 64, 2: 64**2}.get(axes, 16**3)
    return Coarsest(most, 128**2 if axes == 2 else most)


def coarsening_factors(A: Couplings, directional: bool) -> tuple[int, ...] | None:
    """2 for each axis that is to be halved; None where no axis can be.

    Args:
        directional: leave axes alone along which couplings are weak, which takes values that are known.
    """
    coupled = [any(s[axis] for s in A.values) for axis in range(len(A.grid))]
    possible = [
        along and (n >= LEAST_RING and n % 2 == 0 if ring else n >= LEAST)
        for n, ring, along in zip(A.grid, A.periodic, coupled)
    ]
    if not any(possible):
        return None
    if directional:
        strengths = [s if can else 0.0 for s, can in zip(strengths_of(A), possible)]
        strong = [can and s >= WEAK * max(strengths) for s, can in zip(strengths, possible)]
        return tuple(2 if s else 1 for s in strong)
    return tuple(2 if can else 1 for can in possible)


def strengths_of(A: Couplings) -> list[float]:
    """Strength of the couplings along each axis: the median over a sample of points."""
    some = (0, *np.ix_(*(evenly_spread(n, _least(A.grid)) for n in A.grid)))
    sizes = {s: np.abs(a[some]) for s, a in A.values.items()}
    own = sizes[A.here]
    live = own > 0
    if not live.any():
        return [0.0] * len(A.grid)
    along = [sum((size for s, size in sizes.items() if s[axis]), np.zeros_like(own)) for axis in range(len(A.grid))]
    return [float(np.median(total[live] / own[live])) for total in along]


def _least(grid: tuple[int, ...]) -> int:
    """Size of the sample along each axis; evenly spread, as coefficients may be periodic layers."""
    return int(_SAMPLE ** (1 / max(sum(n > 1 for n in grid), 1)))


def check_coarsest(grid: tuple[int, ...], periodic: tuple[bool, ...]) -> None:
    """Raises ValueError where the coarsest grid is too large to be solved on exactly."""
    numbers = numbers_of_blocks(grid, periodic)
    if numbers > _MOST_NUMBERS:
        raise ValueError(
            f"The coarsest grid is {grid}, and its inverse would have {numbers} numbers; expected at most "
            f"{_MOST_NUMBERS}. A ring is halved while its length is even: choose powers of 2, or use 'amg'."
        )
