"""Numeric set-up of AMG on a known pattern: Galerkin products of values that may be traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....backends import Array, Backend
from ....sparse import Dense, Operator, SparseMatrix
from ....sparse.analysis.spectrum import bounded_eigenvalue
from ....sparse.formats.compressed import CsrStructure
from ...diagonal import DiagonalOperator
from ..cycle.dense import check_dense, traced_inverse
from ..multigrid.cycle import VISITS, Elimination, LevelParts, PolynomialSmoother, Smoother, cycle_over, polynomial
from ..operators import DiagonallyScaled, inner_dtype, recast
from .kept import eliminated_by, rule_of
from .levels import values_without_rounding_residues
from .pattern import LevelPattern, pattern_of
from .scaled_values import ScaledValues, scaled_values
from .settings import BOUND, AmgSettings


class Below(NamedTuple):
    """The next coarser level: its structure, and whether it is scaled by its rows."""

    structure: CsrStructure
    by_rows: bool


def renewed(A: SparseMatrix, tentative: Sequence[Operator], settings: AmgSettings, hermitian: bool | None) -> Operator:
    """Cycle for A from what levels keep for updates, finest first: numeric set-up.

    Cost: two products of sparse matrices and 15 with vectors on each level, and an eigenvalue decomposition on the
    coarsest. What depends on patterns only is found once for each.

    Source: Vanek, Mandel and Brezina, Algebraic multigrid by smoothed aggregation, Computing 56 (1996).
    """
    bk, like = A.bk, A.anchor()
    pattern = pattern_of(bk, A.structure, tuple(rule_of(T, settings.smooths) for T in tentative))
    structures = [*(level.rows for level in pattern.levels), pattern.coarsest]
    by_rows = settings.is_classical and hermitian is not False
    current = scaled_values(bk, structures[0], bk.constant(A.entry_arrays()), by_rows and bool(tentative))
    phase = _phase(bk, structures[0], current.values, each=hermitian is False)
    rows = bk.take_in_bounds(phase, structures[0].entries().rows, len(phase.shape) - 1)
    current, outer = current._replace(values=rows * current.values), _as_rows(current.scale)
    terms = bk.abs(_diagonal(bk, structures[0], current.values))
    dtype = np.dtype(bk.dtype(outer))
    within = inner_dtype(settings.precision, dtype) if tentative else dtype
    parts = []
    for k, (level, T) in enumerate(zip(pattern.levels, tentative), 1):
        below = Below(structures[k], by_rows and k < len(tentative))
        (A_, P, R, rho), current, terms = _level(bk, level, below, current, terms, T, settings, hermitian, like)
        fine = None if hermitian is False else eliminated_by(T)
        if fine is None:
            coefficients = polynomial(bk, settings.smoother_of(hermitian), rho, settings.degree)
            alphas, weights = (bk.astype(bk.astype(each, bk.dtype(current.values)), within) for each in coefficients)
            smoother: Smoother = PolynomialSmoother(A_.astype(within), alphas, weights[:, :, None], bool(hermitian))
        else:
            inverse = bk.astype(_inverse_of_some(bk, A_, fine), within)
            smoother = Elimination(A_.astype(within), inverse, bool(hermitian))
        parts.append(LevelParts(smoother, P.astype(within), R.astype(within), T))
    coarsest = _coarsest(bk, pattern.coarsest, current, terms, like)
    cycle = recast(cycle_over(parts, coarsest, VISITS[settings.cycle]), dtype)
    return DiagonallyScaled(cycle, outer, _as_rows(phase) * outer)


def _inverse_of_some(bk: Backend, A: SparseMatrix, fine: np.ndarray) -> Array:
    """`(systems or 1, n)`: `1 / a_ii` of fine unknowns, 0 of others."""
    diagonal = A.diagonals()
    some = bk.constant(fine) & (diagonal != 0)
    return bk.where(some, 1 / bk.where(some, diagonal, 1), 0 * diagonal)


def _diagonal(bk: Backend, A: CsrStructure, values: Array) -> Array:
    return A.diagonal(bk, (values,), int(values.shape[0]) if len(values.shape) == 2 else None)


def _coarsest(bk: Backend, A: CsrStructure, current: ScaledValues, terms: Array, like: Array | None) -> Operator:
    """Coarsest solve: a dense (pseudo-)inverse, or the identity for a (scaled) diagonal matrix.

    Raises:
        ValueError: it is too large.
    """
    if np.array_equal(A.entries().rows, A.cols):
        return DiagonalOperator(bk, bk.full_like(_as_rows(current.scale), 1))
    check_dense(A.shape[0])
    return Dense(bk, traced_inverse(bk, SparseMatrix.build(bk, A, (current.values,), like=like).dense(), terms))


def _phase(bk: Backend, A: CsrStructure, values: Array, each: bool) -> Array:
    """Unit factors `(n,)` or `(systems, n)` of the rows, with which the smoother converges.

    One phase for all rows of a system, which a Hermitian matrix stays one with; or with `each`, one for each row. Of a
    real diagonal -1 where no entry is positive; of a complex one against the phase of its sum.
    """
    systems = None if len(values.shape) == 1 else int(values.shape[0])
    diagonal = _as_rows(A.diagonal(bk, (values,), systems))
    one = bk.full_like(diagonal, 1)
    if each:
        size = bk.abs(diagonal)
        found = bk.where(size > 0, bk.conj(diagonal) / bk.astype(bk.where(size > 0, size, 1), bk.dtype(values)), one)
        return found if systems is not None else found[0]
    real = bk.real(diagonal)
    highest, lowest = (bk.max_abs(bk.where(part, real, 0 * real)) for part in (real > 0, real < 0))
    found = bk.astype(bk.where((highest == 0) & (lowest > 0), -1 + 0 * highest, 1 + 0 * highest), bk.dtype(values))
    if bk.dtype(values).kind == "c":
        total, sizes = bk.sum(diagonal, 1, keepdims=True), bk.sum(bk.abs(diagonal), 1, keepdims=True)
        size, imaginary = bk.abs(total), bk.sum(bk.abs(bk.real(-1j * diagonal)), 1, keepdims=True)
        turned = bk.conj(total) / bk.astype(bk.where(size > 0, size, 1 + 0 * size), bk.dtype(values))
        eps = float(np.finfo(bk.dtype(values)).eps)
        found = bk.where((2 * size > sizes) & (imaginary > 100 * eps * sizes), turned, found)
    found = found * one
    return found if systems is not None else found[0]


def _level(
    bk: Backend,
    level: LevelPattern,
    below: Below,
    current: ScaledValues,
    terms: Array,
    T: Operator,
    settings: AmgSettings,
    hermitian: bool | None,
    like: Array | None,
) -> tuple[tuple[SparseMatrix, SparseMatrix, SparseMatrix, Array], ScaledValues, Array]:
    """A, P and R of a level with bounds of its eigenvalues, and the next coarser level with its `terms`."""
    a, last, plan = current.values, len(current.values.shape) - 1, level.plan
    A = level.A.matrix(bk, a, like)
    rho = _bound(bk, A, level.rows, current, settings, hermitian)
    p = plan.values(bk, current, T, rho)
    r = bk.conj(bk.take_in_bounds(p, level.transposed, last))
    values = level.coarse.values(bk, r, level.image.values(bk, a, p))
    diagonal = _diagonal(bk, level.rows, a)
    values, terms = values_without_rounding_residues(bk, below.structure, values, plan.prolongation, p, diagonal, terms)
    coarse = scaled_values(bk, below.structure, values, below.by_rows)
    p = p * (bk.take_in_bounds(coarse.scale, plan.prolongation.cols, last) * float(np.sqrt(settings.factor)))
    P = level.P.matrix(bk, p, like)
    R = level.R.matrix(bk, bk.conj(bk.take_in_bounds(p, level.transposed, last)), like)
    return (A, P, R, rho), coarse, terms * bk.abs(coarse.scale) ** 2


def _bound(
    bk: Backend,
    A: SparseMatrix,
    rows: CsrStructure,
    current: ScaledValues,
    settings: AmgSettings,
    hermitian: bool | None,
) -> Array:
    """`(systems or 1,)`: bounds of the eigenvalues of a level."""
    sums = _row_sums(bk, rows, current)
    if settings.is_classical:
        return bk.full_like(sums, BOUND[hermitian is not False])
    rho = bounded_eigenvalue(bk, A, sums)
    return bk.where(rho > 0, rho, 1)


def _row_sums(bk: Backend, A: CsrStructure, current: ScaledValues) -> Array:
    """`(systems or 1,)`: the largest sum of |entries| in a row of the matrix divided by its diagonal."""
    scale, last = bk.real(current.scale), len(current.values.shape) - 1
    rows = A.entries().rows
    entries = bk.abs(current.values) * bk.take_in_bounds(scale, rows, last) / bk.take_in_bounds(scale, A.cols, last)
    return bk.max_abs(_as_rows(bk.sum_entries(entries, rows, A.shape[0], sorted=True)))[:, 0]


def _as_rows(x: Array) -> Array:
    """Reshape to `(systems, n)`; `(1, n)` for a single matrix."""
    return x if len(x.shape) == 2 else x[None]
