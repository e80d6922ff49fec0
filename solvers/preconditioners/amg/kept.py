"""What a cycle keeps for new numbers of its matrix: the order of the unknowns, and of each level how P is made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....sparse import Operator, SparseMatrix
from ....sparse.formats.making.build import from_csr
from ..multigrid.cycle import CFRelaxation, Level, levels_of_cycle
from ..operators import DiagonallyScaled, Permuted, Recast
from .classical.renewal import ClassicalRule, Injection
from .levels import Tentative
from .pattern import ProlongationRule
from .smoothing import Smoothed


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
    found = [level.kept for level in levels_of_cycle(cycle) if level.kept is not None]
    return found or None


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
    return None if isinstance(within, Level) and isinstance(within.smoother, CFRelaxation) else M.order


def covers(cycle: Operator, A: SparseMatrix) -> bool:
    """Has the matrix of the finest level an entry wherever A has one?"""
    first: Any = next((level.A for level in levels_of_cycle(cycle)), None)
    rows, cols, _ = A.structure.entries()
    if first is None:  # one level only, as of a diagonal matrix
        return bool(np.array_equal(rows, cols))
    old = first.structure.entries()
    if np.array_equal(old.rows, rows) and np.array_equal(old.cols, cols):
        return True
    n = A.shape[1]
    return bool(np.isin(rows.astype(np.int64) * n + cols, old.rows.astype(np.int64) * n + old.cols).all())
