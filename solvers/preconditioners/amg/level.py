"""AMG level that keeps what an update makes its prolongation of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....sparse import Operator, SparseMatrix, storable
from ....sparse.formats.making.build import from_csr
from ..cycle.cf_relaxation import CFRelaxationLevel
from ..cycle.level import Level
from ..operators import DiagonallyScaled, Permuted, Recast
from .aggregation import Smoothed
from .classical.renewal import ClassicalRule, Injection
from .levels import Tentative
from .pattern import ProlongationRule


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


@storable("level without fine unknowns of an algebraic cycle")
@dataclass(eq=False, repr=False)
class EliminatedLevel(AlgebraicLevel):
    """A level whose fine unknowns are coupled to coarse ones only, and eliminated: `P coarse R + D_F^-1`.

    A and the steps are for updates.

    Attributes:
        inverse: `(1, n)`, `1 / a_ii` of fine unknowns, 0 of coarse ones.

    Cost: one product with P and R each.
    """

    parts = (*AlgebraicLevel.parts, "inverse")

    inverse: Array = field(kw_only=True)

    @property
    def products_with_A(self) -> int:
        return 0

    def apply(self, x: Array) -> Array:
        change = self.bk.materialize(self.coarse.apply(self.bk.materialize(self.R.apply(x))))
        return self.P.add_to(self.array("inverse") * x, change)

    def of_negative(self, e: Array) -> Array:
        return self.apply(-e)


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


def eliminated_by(kept: Operator) -> np.ndarray | None:
    """Mask of the fine unknowns, where these are eliminated."""
    if not isinstance(kept, Injection) or not kept.rule.eliminates:
        return None
    return ~kept.rule.coarse


def tentative_matrices(cycle: Operator) -> list[Operator] | None:
    """What all levels keep for updates, finest first; None for a single level."""
    found: list[Any] = []
    level = _next_level(cycle)
    while level is not None:
        found.append(level.tentative)
        level = _next_level(level.coarse)
    return found or None


def _next_level(cycle: Operator) -> AlgebraicLevel | CFRelaxationLevel | None:
    """The finest level of a cycle; None for the coarsest solve."""
    while isinstance(cycle, DiagonallyScaled | Recast | Permuted):
        cycle = cycle.inner
    return cycle if isinstance(cycle, AlgebraicLevel | CFRelaxationLevel) else None


def components_kept(tentative: Sequence[Operator], order: np.ndarray | None) -> np.ndarray | None:
    """Labels of the unknowns of A within whose components a hierarchy was made; None: of one component."""
    first = tentative[0] if tentative else None
    if not isinstance(first, Injection) or first.rule.components is None:
        return None
    labels = first.rule.components.entries().cols
    found = np.empty_like(labels)
    found[slice(None) if order is None else order] = labels
    return found


def order_of(M: Operator) -> np.ndarray | None:
    """Order of the unknowns in which a hierarchy was made; None: as they are.

    Levels of coarse and fine unknowns in turns have an order, too, in which what they keep is not.
    """
    if not isinstance(M, Permuted):
        return None
    within: Operator = M.inner
    while isinstance(within, DiagonallyScaled | Recast):
        within = within.inner
    return None if isinstance(within, CFRelaxationLevel) else M.order


def covers(cycle: Operator, A: SparseMatrix) -> bool:
    """Has the matrix of the finest level an entry wherever A has one?"""
    level: Any = _next_level(cycle)
    first: Any = None if level is None else level.A
    rows, cols, _ = A.structure.entries()
    if first is None:  # one level only, as of a diagonal matrix
        return bool(np.array_equal(rows, cols))
    old = first.structure.entries()
    if np.array_equal(old.rows, rows) and np.array_equal(old.cols, cols):
        return True
    n = A.shape[1]
    return bool(np.isin(rows.astype(np.int64) * n + cols, old.rows.astype(np.int64) * n + old.cols).all())
