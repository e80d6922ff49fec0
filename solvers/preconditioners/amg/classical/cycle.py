"""Cycle of classical levels: matrices as they are, and smoothers that divide by sums of rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .....backends import get_backend
from .....sparse import Operator
from ....diagonal import DiagonalOperator
from ...cycle.dense import inverse_of_scaled, rounding_of
from ...cycle.level import VISITS
from ...cycle.scales import scales_of
from ...cycle.smoother import steps_for
from ...operators import recast
from ...target import Target
from ..level import EliminatedLevel, WeightedLevel, placed
from ..levels import HostLevel, eigenvalue_bound, is_solved_by_scaling
from ..settings import BOUND, AmgSettings


def weighted_cycle(levels: list[HostLevel], settings: AmgSettings, hermitian: bool, target: Target) -> Operator:
    """The cycle over two levels or more, finest first, in the dtype of `target`.

    The bound of the eigenvalues, 1 relative to the row sums of a Hermitian matrix, needs no products with A.

    Raises:
        ValueError: the coarsest level is too large.

    Source: Baker, Falgout, Kolev and Yang, Multigrid smoothers for ultraparallel computing, SIAM J. Sci. Comput. 33
    (2011), for smoothing with row sums.
    """
    found = _coarsest(levels, settings, hermitian, target)
    for k, level in reversed(list(enumerate(levels[:-1]))):
        below = recast(found, target.stored)
        if level.exact:
            found = eliminated_level(level, below, hermitian, target)
        else:
            found = _level(level, below, settings, hermitian, target, k == 0)
    return found


def is_in_range(levels: list[HostLevel], dtype: np.dtype) -> bool:
    """Are the entries of the diagonals, which smoothers divide by, far from the ends of the range of a dtype?"""
    sizes = np.abs(levels[0].A.diagonal())
    largest = float(np.finfo(dtype).max) ** 0.25
    return bool(np.all((sizes == 0) | ((sizes < largest) & (sizes > 1 / largest))))


def eigenvalues(level: HostLevel, settings: AmgSettings, hermitian: bool) -> float:
    """Bound of the eigenvalues of a level as it is smoothed."""
    if settings.is_classical and (hermitian or settings.smoother_of(hermitian) == "jacobi"):
        return BOUND[hermitian]
    if settings.is_classical:
        return eigenvalue_bound(level.A)
    return level.rho or eigenvalue_bound(level.A)


def _coarsest(levels: list[HostLevel], settings: AmgSettings, hermitian: bool, target: Target) -> Operator:
    A = levels[-1].A
    left, right = scales_of(A, hermitian)
    if is_solved_by_scaling(A, settings.max_coarse):
        return DiagonalOperator(target.bk, target.array((left * right)[None]))
    rounding, terms = rounding_of(target.A.dtype, len(levels)), levels[-1].terms
    inverse = inverse_of_scaled(left, A, right, hermitian, rounding, terms)
    return Target(target.A, target.A.dtype).dense(right[:, None] * inverse * left)


def _level(
    level: HostLevel, coarse: Operator, settings: AmgSettings, hermitian: bool, target: Target, finest: bool
) -> WeightedLevel:
    rho = np.array([eigenvalues(level, settings, hermitian)])
    steps = steps_for(get_backend("numpy"), settings.smoother_of(hermitian), rho, settings.degree)
    weights = -steps[:, 1, :, None] * _inverse_diagonal(level.A, hermitian)
    factor = settings.factor
    P, R = (level.P, level.R) if factor == 1 else (level.P * np.sqrt(factor), level.R * np.sqrt(factor))
    rows = "csr" if target.bk.has_compiled_rows else None  # coarse matrices, P and R are on few diagonals nowhere
    tentative = placed(level.tentative, target.bk, target.dtype, target.like)
    return WeightedLevel(
        target.matrix(level.A, None if finest else rows, copy=False),
        target.matrix(P, rows, copy=False),
        target.matrix(R, rows, copy=False),
        coarse,
        target.array(steps),
        tentative=tentative,
        visits=VISITS[settings.cycle],
        hermitian=hermitian,
        divided=target.array(weights),
    )


def eliminated_level(level: HostLevel, coarse: Operator, hermitian: bool, target: Target) -> EliminatedLevel:
    """The level of unknowns of one of two colours."""
    rows = "csr" if target.bk.has_compiled_rows else None
    return EliminatedLevel(
        target.matrix(level.A, copy=False),
        target.matrix(level.P, rows, copy=False),
        target.matrix(level.R, rows, copy=False),
        coarse,
        target.array(np.ones((1, 2, 1))),
        tentative=placed(level.tentative, target.bk, target.dtype, target.like),
        hermitian=hermitian,
        inverse=target.array(inverse_of_fine(level, level.A)[None]),
    )


def _inverse_diagonal(A: sp.csr_array, hermitian: bool) -> np.ndarray:
    """`(n,)`: of row sums of absolute values for a Hermitian matrix, with one sign, else of the diagonal."""
    left, right = scales_of(A, hermitian, by_rows=hermitian)
    return np.asarray(left * right)


def inverse_of_fine(level: HostLevel, A: sp.csr_array) -> np.ndarray:
    """`(n,)`: `1 / a_ii` of fine unknowns, 0 of others."""
    fine, diagonal = ~np.asarray(level.splitting), A.diagonal()
    return np.where(fine, 1 / np.where(fine, diagonal, 1), 0)
