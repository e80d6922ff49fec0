"""Lost points: does a coarser grid still have what the matrix couples?

A point between two coarse ones along an axis interpolates by its couplings along that axis, collapsed over the others.
Where these are next to nothing of its diagonal it belongs to what passes between the points of the coarser grid: thin
lines and walls, channels, coefficients that jump from cell to cell. Some such points are harmless, many are not: then
coarse points have to be chosen by the couplings, as algebraic multigrid does.

Large blocks with jumps of any size lose no points, nor do smooth coefficients, or layers that are halved along
their strong axes only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_FAINT, _WEAK = 0.003, 0.01  # share of the diagonal, on the finest grid and on coarser ones
_FINEST, _COARSER = 1e-4, 0.003  # of all points between two coarse ones that may be lost there


class LostPoints(NamedTuple):
    """Counts on one grid, over all axes that are halved.

    Attributes:
        points: between two coarse ones.
        faint: those with a share of less than 0.003.
        weak: those with a share of less than 0.01.

    The finest grid is that of the user's stencil, on which few thin lines show clearly. On coarser ones, couplings of
    the Galerkin product cancel at harmless places, too.
    """

    points: int = 0
    faint: int = 0
    weak: int = 0

    @classmethod
    def of(cls, shares: list[np.ndarray], rows: slice) -> LostPoints:
        """Of the shares along each axis, see `weights_and_shares`, in some rows of the coarser grid."""
        found = [share[:, rows] for share in shares]
        return cls(
            sum(share.size for share in found),
            sum(int(np.count_nonzero(share < _FAINT)) for share in found),
            sum(int(np.count_nonzero(share < _WEAK)) for share in found),
        )

    def __str__(self) -> str:
        """As a share of all points."""
        return f"{100 * self.weak / max(self.points, 1):.2g} % of the points"

    def plus(self, other: LostPoints) -> LostPoints:
        """Counts of both together."""
        return LostPoints(*(a + b for a, b in zip(self, other)))

    def too_many(self, finest: bool, points: int | None = None) -> bool:
        """Are they too many for multigrid on grids?

        Args:
            finest: are they those of the finest grid?
            points: of the whole grid, if some of it was not looked at.
        """
        all_points = self.points if points is None else points
        return self.faint > _FINEST * all_points if finest else self.weak > _COARSER * all_points
