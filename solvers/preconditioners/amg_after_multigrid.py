"""From multigrid on grids to classical AMG, where conjugate gradients take too many iterations with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...sparse import Operator
from ...sparse.analysis.analysis import analysed
from .amg.amg import amg
from .amg.level import AlgebraicLevel
from .base import Preconditioner
from .cycle.either import Either
from .cycle.level import Level
from .cycle.recast import Recast
from .cycle.scaled import DiagonallyScaled
from .pipeline import constant_linear_part

MOST_ITERATIONS = 40  # iterations with multigrid on grids, which takes 6 to 15 where it suits the matrix


def is_on_grids(M: Operator | None) -> bool:
    """Is M multigrid for a single matrix, with a grid as its finest level and coarser ones below it?"""
    if not isinstance(M, Preconditioner) or M.kind != "multigrid" or M.systems is not None:
        return False
    found: Any = M.inner
    while isinstance(found, DiagonallyScaled | Recast | Either):
        found = found.first if isinstance(found, Either) else found.inner
    return isinstance(found, Level) and not isinstance(found, AlgebraicLevel)


@dataclass(frozen=True)
class ClassicalAMG:
    """Makes classical AMG of A, to take the place of multigrid on grids, in its precision; hashable."""

    precision: str | None

    @classmethod
    def like(cls, M: Operator | None) -> ClassicalAMG:
        return cls(dict(M.settings).get("precision") if isinstance(M, Preconditioner) else None)

    def __call__(self, A: Operator) -> Preconditioner:
        """
        Raises:
            ValueError, UnsupportedOperation, NonlinearError: the entries of A cannot be found, or not coarsened.
        """
        A = constant_linear_part(A)
        with analysed(A):
            return amg(A, coarsening="classical", precision=self.precision).on_grid_of(A)
