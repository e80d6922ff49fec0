"""Numeric set-up of AMG on a known pattern: Galerkin products of values that may be traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ....backends import Array, Backend
from ....sparse import Dense, Operator, SparseMatrix
from ....sparse.analysis.spectrum import bounded_eigenvalue
from ....sparse.formats.compressed import CsrStructure
from ....sparse.formats.entries.regather import take_or_zero
from ...diagonal import DiagonalOperator
from ..cycle.dense import check_dense, traced_inverse
from ..cycle.level import VISITS
from ..cycle.recast import inner_dtype, recast
from ..cycle.scaled import DiagonallyScaled
from ..cycle.smoother import steps_for
from .level import AlgebraicLevel
from .pattern import LevelPattern, pattern_of
from .settings import OMEGA, AmgSettings


class Current(NamedTuple):
    """Matrix of a level in CSR order, scaled to a unit diagonal (zero where A has none)."""

    values: Array  # (nnz,) or (systems, nnz)
    scale: Array  # (n,) or (systems, n): the matrix is what it was before, times this from both sides


def renewed(
    A: SparseMatrix, tentative: Sequence[SparseMatrix], settings: AmgSettings, hermitian: bool | None
) -> Operator:
    """Cycle for A from tentative prolongations, finest first: numeric set-up.

    Cost: two products of sparse matrices and 15 with vectors on each level, and an eigenvalue decomposition on the
    coarsest. What depends on patterns only is found once for each.

    Source: Vanek, Mandel and Brezina, Algebraic multigrid by smoothed aggregation, Computing 56 (1996).
    """
    bk, like = A.bk, A.anchor()
    pattern = pattern_of(bk, A.structure, tuple(T.structure for T in tentative), settings.smooths)
    structures = [*(level.rows for level in pattern.levels), pattern.coarsest]
    current = unit_diagonal(bk, structures[0], bk.constant(A.entry_arrays()))
    phase = _phase(bk, structures[0], current.values, each=hermitian is False)
    rows = bk.take_in_bounds(phase, structures[0].entries().rows, len(phase.shape) - 1)
    current, outer = current._replace(values=rows * current.values), _as_rows(current.scale)
    made = []
    for level, T, coarser in zip(pattern.levels, tentative, structures[1:]):
        parts, current = _level(bk, level, coarser, current, T, settings, hermitian, like)
        made.append((parts, T))
    found = _coarsest(bk, pattern.coarsest, current, like)
    dtype = np.dtype(bk.dtype(outer))
    within = inner_dtype(settings.precision, dtype) if made else dtype
    for (A_, P, R, steps), T in reversed(made):
        matrices, steps = (A_.astype(within), P.astype(within), R.astype(within)), bk.astype(steps, within)
        below = recast(found, within)
        found = AlgebraicLevel(*matrices, below, steps, VISITS[settings.cycle], bool(hermitian), tentative=T)
    return DiagonallyScaled(recast(found, dtype), outer, _as_rows(phase) * outer)


def _coarsest(bk: Backend, A: CsrStructure, current: Current, like: Array | None) -> Operator:
    """Coarsest solve: a dense (pseudo-)inverse, or the identity for a (scaled) diagonal matrix.

    Raises:
        ValueError: it is too large.
    """
    if np.array_equal(A.entries().rows, A.cols):
        return DiagonalOperator(bk, bk.full_like(_as_rows(current.scale), 1))
    check_dense(A.shape[0])
    return Dense(bk, traced_inverse(bk, SparseMatrix.build(bk, A, (current.values,), like=like).dense()))


def unit_diagonal(bk: Backend, A: CsrStructure, values: Array) -> Current:
    """Values `(nnz,)` or `(systems, nnz)`, scaled."""
    diagonal = bk.abs(A.diagonal(bk, (values,), None if len(values.shape) == 1 else int(values.shape[0])))
    scale = bk.where(diagonal > 0, 1 / bk.sqrt(bk.where(diagonal > 0, diagonal, 1)), 1)
    scale = bk.astype(scale, bk.dtype(values))
    rows, last = A.entries().rows, len(values.shape) - 1
    return Current(values * bk.take_in_bounds(scale, rows, last) * bk.take_in_bounds(scale, A.cols, last), scale)


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
    below: CsrStructure,
    current: Current,
    T: SparseMatrix,
    settings: AmgSettings,
    hermitian: bool | None,
    like: Array | None,
) -> tuple[tuple[SparseMatrix, SparseMatrix, SparseMatrix, Array], Current]:
    """A, P and R of a level with the coefficients of its smoother, and the next coarser level."""
    a, last = current.values, len(current.values.shape) - 1
    A = level.A.matrix(bk, a, like)
    rho = bounded_eigenvalue(bk, A, _row_sums(bk, level.rows, current))
    rho = bk.where(rho > 0, rho, 1)
    t = bk.astype(bk.constant(T.entry_arrays()), bk.dtype(a))
    t = t / bk.take_in_bounds(current.scale, T.structure.entries().rows, last)
    p = _or_zero(bk, t, level.tentative)
    if level.smoothing is not None and level.smoothed is not None:
        omega = bk.astype(OMEGA / rho, bk.dtype(a))
        omega = omega[:, None] if last else omega[0]
        p = p - omega * _or_zero(bk, level.smoothing.values(bk, a, t), level.smoothed)
    r = bk.conj(bk.take_in_bounds(p, level.turned, last))
    coarse = unit_diagonal(bk, below, level.coarse.values(bk, r, level.image.values(bk, a, p)))
    p = p * (bk.take_in_bounds(coarse.scale, level.prolongation.cols, last) * float(np.sqrt(settings.factor)))
    P = level.P.matrix(bk, p, like)
    R = level.R.matrix(bk, bk.conj(bk.take_in_bounds(p, level.turned, last)), like)
    steps = bk.astype(steps_for(bk, settings.smoother_of(hermitian), rho, settings.degree), bk.dtype(a))
    return (A, P, R, steps), coarse


def _row_sums(bk: Backend, A: CsrStructure, current: Current) -> Array:
    """`(systems or 1,)`: the largest sum of |entries| in a row of the matrix divided by its diagonal."""
    scale, last = bk.real(current.scale), len(current.values.shape) - 1
    rows = A.entries().rows
    entries = bk.abs(current.values) * bk.take_in_bounds(scale, rows, last) / bk.take_in_bounds(scale, A.cols, last)
    return bk.max_abs(_as_rows(bk.sum_entries(entries, rows, A.shape[0], sorted=True)))[:, 0]


def _or_zero(bk: Backend, values: Array, places: np.ndarray) -> Array:
    """Gather values, 0 for index -1."""
    if places.size and places.min() >= 0:
        return bk.take_in_bounds(values, places, len(values.shape) - 1)
    return take_or_zero(bk, values, places)


def _as_rows(x: Array) -> Array:
    """Reshape to `(systems, n)`; `(1, n)` for a single matrix."""
    return x if len(x.shape) == 2 else x[None]
