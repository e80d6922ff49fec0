"""AMG level that keeps what an update makes its prolongation of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....sparse import Operator, SparseMatrix, storable
from ....sparse.formats.making.build import from_csr
from ..cycle.level import Level
from ..cycle.recast import Recast
from ..cycle.scaled import DiagonallyScaled
from .classical.rule import ClassicalRule, Injection
from .hierarchy import Tentative
from .pattern import ProlongationRule
from .smoothing import Smoothed


@storable("level of an algebraic cycle")
@dataclass(eq=False, repr=False)
class AlgebraicLevel(Level):
    """A level whose matrix values can be updated.

    Attributes:
        tentative: the unsmoothed, unscaled prolongation, from which an update makes a new P; of classical levels an
            `Injection`.
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


def placed(tentative: Tentative, bk: Backend, dtype: np.dtype, like: Array | None) -> Operator:
    """What a level keeps for updates, beside an array of a library."""
    if isinstance(tentative, ClassicalRule):
        return Injection.of(tentative, bk, dtype, like)
    return from_csr(bk, tentative.astype(dtype), prune=False, format="csr", like=like)


def known_tentative(kept: Operator) -> Tentative | None:
    """What `placed` was given; None where numbers of it are traced."""
    if isinstance(kept, Injection):
        return kept.rule
    found: Any = kept.known()
    return found


def rule_of(kept: Operator, smooths: bool) -> ProlongationRule:
    """How the prolongation of a level is made of its matrix.

    Args:
        smooths: are tentative prolongations of aggregates smoothed?
    """
    if isinstance(kept, Injection):
        return kept.rule
    tentative: Any = kept
    return Smoothed(tentative.structure, smooths)


def tentative_matrices(cycle: Operator) -> list[Operator] | None:
    """What all levels keep for updates, finest first; None for a single level."""
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
