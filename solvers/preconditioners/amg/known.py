"""Cycle of a hierarchy with known values, scaled to unit diagonals on all levels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from ....backends import get_backend
from ....sparse import Operator
from ...diagonal import DiagonalOperator
from ..cycle.dense import inverse_of_scaled, rounding_of
from ..cycle.level import VISITS
from ..cycle.scales import Scales, scales_of, times_diagonals
from ..cycle.smoother import steps_for
from ..operators import DiagonallyScaled, inner_dtype, recast
from ..target import Target
from .classical.cf_cycle import cf_cycle
from .classical.cycle import eigenvalues, inverse_of_fine, is_in_range, weighted_cycle
from .level import AlgebraicLevel, EliminatedLevel, placed
from .levels import HostLevel, is_diagonal, is_solved_by_scaling
from .settings import AmgSettings


def known_cycle(levels: list[HostLevel], settings: AmgSettings, hermitian: bool, target: Target) -> Operator:
    """The cycle over all levels, finest first, on the arrays of a library.

    Raises:
        ValueError: the coarsest level is too large.
    """
    within = replace(target, dtype=inner_dtype(settings.precision, target.dtype)) if len(levels) > 1 else target
    if settings.is_classical and len(levels) > 1 and not hermitian and settings.uses_cf_relaxation:
        return cf_cycle(levels, settings.max_coarse, within, target.dtype)
    if settings.is_classical and len(levels) > 1 and is_in_range(levels, within.dtype):
        return recast(weighted_cycle(levels, settings, hermitian, within), target.stored)
    by_rows = settings.is_classical and hermitian
    scales = [*(scales_of(level.A, hermitian, by_rows) for level in levels[:-1]), scales_of(levels[-1].A, hermitian)]
    left, right = scales[0]
    coarsest = levels[-1].A
    if is_diagonal(coarsest) or (settings.is_classical and is_solved_by_scaling(coarsest, settings.max_coarse)):
        found: Operator = DiagonalOperator(target.bk, target.array(np.ones((1, len(scales[-1].left)))))
    else:
        last, rounding = scales[-1], rounding_of(target.dtype, len(levels))
        inverse = inverse_of_scaled(last.left, coarsest, last.right, hermitian, rounding, levels[-1].terms)
        if len(levels) == 1:
            return target.dense(right[:, None] * inverse * left)
        found = target.dense(inverse)
    for level, own, below in reversed(list(zip(levels[:-1], scales[:-1], scales[1:]))):
        found = _level(level, own, below, recast(found, within.stored), settings, hermitian, within)
    return DiagonallyScaled(recast(found, target.stored), target.array(right[None]), target.array(left[None]))


def _level(
    level: HostLevel,
    own: Scales,
    below: Scales,
    coarse: Operator,
    settings: AmgSettings,
    hermitian: bool,
    target: Target,
) -> AlgebraicLevel:
    factor, host = float(np.sqrt(settings.factor)), get_backend("numpy")
    A = times_diagonals(own.left, level.A, own.right)
    P = times_diagonals(factor / own.right, level.P, below.right)
    R = sp.csr_array(P.conj().T) if hermitian else times_diagonals(factor * below.left, level.R, 1 / own.left)
    rho = np.array([eigenvalues(level, settings, hermitian)])
    steps = target.array(steps_for(host, settings.smoother_of(hermitian), rho, settings.degree))
    tentative = placed(level.tentative, target.bk, target.dtype, target.like)
    parts = (target.matrix(A), target.matrix(P), target.matrix(R), coarse, steps, VISITS[settings.cycle], hermitian)
    if level.exact:
        inverse = target.array(inverse_of_fine(level, A)[None])
        return EliminatedLevel(*parts, tentative=tentative, inverse=inverse)
    return AlgebraicLevel(*parts, tentative=tentative)
