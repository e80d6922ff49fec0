"""AMG level that keeps the tentative prolongation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....backends import Array
from ....sparse import Operator, SparseMatrix, storable
from ..cycle.level import Level
from ..cycle.recast import Recast
from ..cycle.scaled import DiagonallyScaled


@storable("level of an algebraic cycle")
@dataclass(eq=False, repr=False)
class AlgebraicLevel(Level):
    """A level whose matrix values can be updated.

    Attributes:
        tentative: the unsmoothed, unscaled prolongation, from which an update makes a new P.
    """

    parts = (*Level.parts, "tentative")

    tentative: Operator = field(kw_only=True)

    def __post_init__(self) -> None:
        if self.tentative.shape != self.P.shape:
            raise ValueError(f"The prolongation {self.P!r} of a level was not made of {self.tentative!r}.")
        super().__post_init__()


@storable("weighted level of an algebraic cycle")
@dataclass(eq=False, repr=False)
class WeightedLevel(AlgebraicLevel):
    """A level whose matrices are not scaled: smoothing divides by a diagonal.

    Attributes:
        divided: the `weights` of the level.
    """

    parts = (*AlgebraicLevel.parts, "divided")

    divided: Array = field(kw_only=True)

    def __post_init__(self) -> None:
        (degree, *_), shape = self.steps.shape, tuple(map(int, self.divided.shape))
        if len(shape) != 3 or (shape[0], shape[2]) != (int(degree), self.P.shape[0]):
            raise ValueError(f"Weights of the shape {shape} do not fit to a smoother of {degree} steps on {self.A!r}.")
        super().__post_init__()

    @property
    def weights(self) -> Array:
        return self.array("divided")


def tentative_matrices(cycle: Operator) -> list[SparseMatrix] | None:
    """Tentative prolongations of all levels, finest first; None for a single level."""
    found: list[Any] = []
    while isinstance(cycle, AlgebraicLevel | DiagonallyScaled | Recast):
        if isinstance(cycle, AlgebraicLevel):
            found.append(cycle.tentative)
        cycle = cycle.coarse if isinstance(cycle, AlgebraicLevel) else cycle.inner
    return found or None


def covers(cycle: Operator, A: SparseMatrix) -> bool:
    """Has the matrix of the finest level an entry wherever A has one?"""
    finest: Any = cycle
    while isinstance(finest, DiagonallyScaled | Recast):
        finest = finest.inner
    first: Any = finest.A if isinstance(finest, AlgebraicLevel) else None
    rows, cols, _ = A.structure.entries()
    if first is None:  # one level only, as of a diagonal matrix
        return bool(np.array_equal(rows, cols))
    old = first.structure.entries()
    if np.array_equal(old.rows, rows) and np.array_equal(old.cols, cols):
        return True
    n = A.shape[1]
    return bool(np.isin(rows.astype(np.int64) * n + cols, old.rows.astype(np.int64) * n + old.cols).all())
