"""Cycle of a hierarchy with known values: scaling, order and smoothers of its levels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ....backends import get_backend
from ....sparse import Matrix, Operator, SparseMatrix
from ....sparse.analysis.facts import is_dominated
from ...diagonal import DiagonalOperator
from ..multigrid.coarsest import exact_inverse, inverse_of_scaled, rounding_of, scales_of, times_diagonals
from ..multigrid.cycle import (
    VISITS,
    CFRelaxation,
    Elimination,
    LevelParts,
    PolynomialSmoother,
    Smoother,
    cycle_over,
    numbers_stored,
    polynomial,
    work_of,
)
from ..operators import DiagonallyScaled, Preconditioner, inner_dtype, note_on_precision, recast
from ..pipeline import Target
from .levels import HostLevel, eigenvalue_bound, is_diagonal, kept_for_updates
from .rows import on_diagonal, permuted, repeated, selected
from .settings import BOUND, SOLVED_BY_SCALING, AmgSettings


class LevelForm(NamedTuple):
    """Form of the matrix of a level: `diag(left) A diag(right)`, with its unknowns in an order.

    Attributes:
        left, right: `(n,)`; None: ones. Without a `left` smoothers divide by a diagonal.
        order: unknown `order[k]` becomes number k; None: unchanged.
    """

    left: np.ndarray | None = None
    right: np.ndarray | None = None
    order: np.ndarray | None = None


def known_cycle(levels: list[HostLevel], settings: AmgSettings, hermitian: bool, target: Target) -> Operator:
    """The cycle over all levels, finest first, on the arrays of a library.

    Levels of aggregates, and those of very large or small numbers, are scaled on both sides to a unit diagonal, or to
    unit row sums if they are classical and Hermitian. Other classical levels are not scaled, which saves a tenth of
    the set-up, and their smoothers divide by these diagonals. If A is not Hermitian, coarse and fine unknowns are
    smoothed in turns, unless settings say otherwise.

    Source: Baker, Falgout, Kolev and Yang, Multigrid smoothers for ultraparallel computing, SIAM J. Sci. Comput. 33
    (2011), for smoothing with row sums.
    """
    several = len(levels) > 1
    within = replace(target, dtype=inner_dtype(settings.precision, target.dtype)) if several else target
    in_turns = settings.is_classical and several and not hermitian and settings.uses_cf_relaxation
    forms = _forms(levels, settings, hermitian, within.dtype, in_turns)
    parts = [
        _level(level, form, coarse_form, settings, hermitian, within, in_turns and not level.exact, finest=k == 0)
        for k, (level, form, coarse_form) in enumerate(zip(levels[:-1], forms[:-1], forms[1:]))
    ]
    A, (left, right, _) = levels[-1].A, forms[-1]
    unscaled = left is None or not several
    if left is None:
        left, right = scales_of(A, hermitian)
    right = np.ones(A.shape[0]) if right is None else right
    large = settings.is_classical and A.shape[0] > settings.max_coarse
    coarsest: Operator
    if is_diagonal(A) or (large and is_dominated(A, SOLVED_BY_SCALING)):
        coarsest = DiagonalOperator(within.bk, within.array((left * right if unscaled else np.ones(len(left)))[None]))
    else:
        rounding = rounding_of(target.dtype, len(levels))
        inverse = inverse_of_scaled(left, A, right, hermitian, rounding, levels[-1].terms)
        coarsest = target.dense(right[:, None] * inverse * left if unscaled else inverse)
    cycle = recast(cycle_over(parts, coarsest, VISITS[settings.cycle]), target.stored)
    left, right, order = forms[0]
    if left is not None and several:
        sides = (np.ones(len(left)) if right is None else right, left)
        cycle = DiagonallyScaled(cycle, *(target.array((s if order is None else s[order])[None]) for s in sides))
    return cycle if order is None else target.permuted(cycle, order)


def _forms(
    levels: list[HostLevel], settings: AmgSettings, hermitian: bool, dtype: np.dtype, in_turns: bool
) -> list[LevelForm]:
    # Smoothers of levels that are not scaled divide by the finest diagonal.
    sizes, largest = np.abs(levels[0].A.diagonal()), float(np.finfo(dtype).max) ** 0.25
    in_range = bool(np.all((sizes == 0) | ((sizes < largest) & (sizes > 1 / largest))))
    unscaled = settings.is_classical and len(levels) > 1 and in_range
    if in_turns:
        return [LevelForm() if level.exact and unscaled else _form_in_turns(level) for level in levels]
    if unscaled:
        return [LevelForm()] * len(levels)
    by_rows = settings.is_classical and hermitian
    scales = [*(scales_of(level.A, hermitian, by_rows) for level in levels[:-1]), scales_of(levels[-1].A, hermitian)]
    return [LevelForm(left, right) for left, right in scales]


def _form_in_turns(level: HostLevel) -> LevelForm:
    """Coarse unknowns first, divided by a diagonal D.

    D is the diagonal of A, or the sum of the other entries of a row within the coarse or the fine unknowns if that is
    larger, so that Jacobi steps on either of them do not diverge. In rows of zeros it is 1.
    """
    diagonal, splitting = level.A.diagonal(), level.splitting
    size = np.abs(diagonal)
    unit = np.where(size == 0, 1, diagonal) / np.where(size == 0, 1, size)
    order = None
    if splitting is not None:
        sizes = abs(level.A)
        within = np.where(splitting, sizes @ splitting.astype(float), sizes @ (~splitting).astype(float)) - size
        size = np.where(within > (1 + 1e-12) * size, within, size)
        if not level.exact:
            order = np.concatenate([np.flatnonzero(splitting), np.flatnonzero(~splitting)]).astype(np.int32)
    return LevelForm(1 / np.where(size == 0, 1, size * unit), None, order)


def _level(
    level: HostLevel,
    form: LevelForm,
    coarse_form: LevelForm,
    settings: AmgSettings,
    hermitian: bool,
    target: Target,
    in_turns: bool,
    finest: bool,
) -> LevelParts:
    factor, unscaled = 1.0 if level.exact else float(np.sqrt(settings.factor)), form.left is None
    A = level.A if in_turns else times_diagonals(form.left, level.A, form.right)
    P = times_diagonals(factor if form.right is None else factor / form.right, level.P, coarse_form.right)
    if hermitian and not unscaled:
        R = sp.csr_array(P.conj().T)
    else:
        right = None if form.left is None else 1 / form.left
        R = times_diagonals(factor if coarse_form.left is None else factor * coarse_form.left, level.R, right)
    P, R = permuted(P, form.order, coarse_form.order), permuted(R, coarse_form.order, form.order)
    rows = "csr" if target.bk.has_compiled_rows and (unscaled or in_turns) else None  # never on few diagonals
    smoother: Smoother
    if level.exact:
        fine, diagonal = ~np.asarray(level.splitting), A.diagonal()
        inverse = np.where(fine, 1 / np.where(fine, diagonal, 1), 0)
        smoother = Elimination(target.matrix(A, copy=not unscaled), target.array(inverse[None]), hermitian)
    elif in_turns:
        smoother = _relaxation(level, form, target)
    else:
        kind = settings.smoother_of(hermitian)
        if settings.is_classical and (hermitian or kind == "jacobi"):
            rho = BOUND[hermitian]
        else:
            rho = (None if settings.is_classical else level.rho) or eigenvalue_bound(level.A)
        alphas, weights = polynomial(get_backend("numpy"), kind, np.array([rho]), settings.degree)
        weights = weights[:, :, None]
        if unscaled:
            left, right = scales_of(A, hermitian, by_rows=hermitian)
            weights = weights * (left * right)
        matrix = target.matrix(A, None if finest else rows, copy=not unscaled)
        smoother = PolynomialSmoother(matrix, target.array(alphas), target.array(weights), hermitian)
    P, R = (target.matrix(M, rows, copy=not unscaled) for M in (P, R))
    return LevelParts(smoother, P, R, kept_for_updates(level.tentative, target.bk, target.dtype, target.like))


def _relaxation(level: HostLevel, form: LevelForm, target: Target) -> CFRelaxation:
    """Smoother by `N = I - diag(left) A`, without zeros and with coarse unknowns first."""
    A, k = level.A, int(np.count_nonzero(np.asarray(level.splitting)))
    data, diagonal = A.data * repeated(-np.asarray(form.left), A), on_diagonal(A)
    data[diagonal] += 1
    data[diagonal & (np.abs(data) <= 4 * np.finfo(data.dtype).eps)] = 0  # 1 / a_ii times a_ii, up to rounding
    N = permuted(selected(A, data != 0, data), form.order, form.order)
    n, fine = A.shape[0], N[k:]
    to_coarse = fine.indices < k
    FC, FF = selected(fine, to_coarse), selected(fine, ~to_coarse)
    FC = sp.csr_array((FC.data, FC.indices, FC.indptr), (n - k, k))
    FF = sp.csr_array((FF.data, FF.indices - k, FF.indptr), (n - k, n - k))
    rows = "csr" if target.bk.has_compiled_rows else None  # blocks are never on few diagonals
    matrices: Any = (target.matrix(M, rows, copy=False) for M in (A, N[:k], FC, FF))
    return CFRelaxation(*matrices)


# --- the cycle as a preconditioner ---


def inverted(own: Matrix, target: Target, settings: AmgSettings) -> Preconditioner:
    """The (pseudo-)inverse of a small matrix, as a preconditioner."""
    cycle, hermitian = exact_inverse(own, "amg")
    return as_preconditioner(cycle, own, target, settings, hermitian)


def as_preconditioner(
    cycle: Operator,
    own: Matrix,
    target: Target,
    settings: AmgSettings,
    hermitian: bool | None,
    order: np.ndarray | None = None,
) -> Preconditioner:
    """The cycle as a preconditioner in the order of A, with its costs and settings."""
    cycle = cycle if order is None else target.permuted(cycle, order)
    costs = numbers_stored(cycle), work_of(cycle), own.nnz
    return Preconditioner(cycle, "amg", hermitian, *costs, settings.pairs(), note_on_precision(cycle))


def sparse_form(matrix: Matrix) -> SparseMatrix:
    """The matrix in a sparse format."""
    sparse: Any = matrix if isinstance(matrix, SparseMatrix) else matrix.to("csr")
    return sparse
