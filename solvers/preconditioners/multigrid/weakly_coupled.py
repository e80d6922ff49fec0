"""Weakly coupled points: can a coarser grid represent what the matrix couples?

A point between two coarse ones along an axis interpolates by its couplings along that axis, collapsed over the others.
Where these are next to nothing of its diagonal it belongs to what passes between the points of the coarser grid: thin
lines and walls, channels, coefficients that jump from cell to cell. A few such points are harmless, many are not: then
coarse points have to be chosen by the couplings, as algebraic multigrid does.

Couplings may be next to nothing one by one, as beside a thin line, each point of which leaves an error that varies
slowly along it: conjugate gradients need an iteration or two for each. Or they cancel, as those of Galerkin products
do here and there: a small share of all points does no harm. On the finest grid, that of the user's stencil, a smaller
share shows that coarser ones will lose more.

Large blocks with jumps of any size have no such points, nor do smooth coefficients, or layers that are halved along
their strong axes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

_WEAK, _ISOLATED = 0.01, 0.001  # of the diagonal: the sum of the couplings, and that of their sizes
_MOST_WEAK = {True: 6e-4, False: 0.003}  # of all points between two coarse ones, on the finest grid and on others
_MOST_ISOLATED = 7
_DOMINATED = 0.2  # of the diagonal that is no coupling: smoothing alone solves for such a point


def weakly_coupled(
    diagonal: np.ndarray, excess: np.ndarray, strength: np.ndarray, terms: list[np.ndarray]
) -> np.ndarray:
    """0 for points that are coupled to a coarser grid, 1 for weakly coupled, 2 for isolated ones; int8.

    Args:
        diagonal: of points between two coarse ones along an axis.
        excess: sums of their rows.
        strength: sums of their couplings along the axis, positive where they are of the opposite sign of the diagonal.
        terms: these couplings, one by one.
    """
    weak = (strength < _WEAK * diagonal) & (excess <= _DOMINATED * diagonal) & (diagonal > 0)
    found = weak.astype(np.int8)
    if weak.any():
        sizes = np.sum([np.abs(a[weak]) for a in terms], axis=0)
        found[weak] += sizes < _ISOLATED * diagonal[weak]
    return found


class WeaklyCoupled(NamedTuple):
    """Counts from one grid to the next, over all axes that are halved.

    Attributes:
        points: between two coarse ones.
        weak: those with couplings towards these that sum to less than 0.01 of the diagonal.
        isolated: those among them with couplings of less than 0.001 without regard to signs.
    """

    points: int = 0
    weak: int = 0
    isolated: int = 0

    @classmethod
    def of(cls, points: Sequence[np.ndarray], rows: slice) -> WeaklyCoupled:
        """Of `weakly_coupled` along each axis, in some rows of the coarser grid."""
        found = [each[:, rows] for each in points]
        return cls(
            sum(each.size for each in found),
            sum(int(np.count_nonzero(each)) for each in found),
            sum(int(np.count_nonzero(each == 2)) for each in found),
        )

    def plus(self, other: WeaklyCoupled) -> WeaklyCoupled:
        """Counts of both together."""
        return WeaklyCoupled(*(a + b for a, b in zip(self, other)))

    def too_many(self, finest: bool, points: int) -> bool:
        """Are they too many for multigrid on grids?

        Args:
            finest: are they those of the finest grid?
            points: of the whole grid, some of which may not have been looked at.
        """
        return self.isolated > _MOST_ISOLATED or self.weak > max(_MOST_WEAK[finest] * points, _MOST_ISOLATED)

    def __str__(self) -> str:
        return f"{self.weak} of {self.points} points that were examined"
