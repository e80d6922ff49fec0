"""Hierarchies: coarsened from known values, and updated to other values on the same pattern.

An update keeps aggregates or splittings and computes all matrices anew. For known values SciPy does this. For others
the index pairs of the sparse products are computed once per pattern (symbolic set-up); with them new values of A give a
new hierarchy by gathers, products and segment sums (numeric set-up), in compiled programs, too.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend
from ....sparse import Dense, Operator, SparseMatrix
from ....sparse.analysis.facts import is_dominated
from ....sparse.analysis.spectrum import bounded_eigenvalue
from ....sparse.formats import FORMATS, Structure
from ....sparse.formats.compressed import CsrStructure
from ....sparse.formats.entries.integers import sorted_entries, starts_of
from ....sparse.formats.entries.values import Regather
from ....sparse.formats.operations import Meeting, products_of_entries
from ....sparse.operators.concrete import in_scipy
from ...diagonal import DiagonalOperator
from ...memory import Memory
from ..multigrid.coarsest import check_dense, hermitian_and_double, phases, traced_inverse, unit_scale
from ..multigrid.cycle import (
    VISITS,
    CFRelaxation,
    Elimination,
    Level,
    LevelParts,
    PolynomialSmoother,
    Smoother,
    cycle_over,
    levels_of_cycle,
    polynomial,
)
from ..operators import DiagonallyScaled, Permuted, Preconditioner, Recast, inner_dtype, recast, suitable_format
from ..pipeline import Target, build_from_entries, entries_of
from .aggregation import Smoothed, SmoothingPlan, aggregated_levels, with_transfers
from .build_cycle import as_preconditioner, inverted, known_cycle, sparse_form
from .classical import CHECKED, classical_levels, eliminated, is_reusable, threshold_of
from .components import entries_within
from .interpolation import ClassicalRule, EliminationPlan, Injection, InterpolationPlan, ScaledValues
from .levels import (
    HostLevel,
    Tentative,
    adjoint,
    is_diagonal,
    is_rounding,
    kept_for_updates,
    permuted_matrix,
    permuted_rows,
)
from .rows import gathered, inverse_permutation, product, repeated, selected, sorted_rows
from .settings import BOUND, SOLVED_BY_SCALING, AmgSettings

# --- set-up from known values ---


def coarsened(
    A: sp.csr_array,
    settings: AmgSettings,
    hermitian: bool,
    near_nullspace: np.ndarray | None,
    block_size: int,
    components: np.ndarray | None = None,
) -> list[HostLevel]:
    """Levels, finest first; a single one for a small A.

    Args:
        components: labels `(n,)` of the unknowns: classical levels are those of A without entries between components.

    Raises:
        ValueError: A cannot be coarsened.
    """
    if A.shape[0] <= settings.max_coarse or settings.max_levels == 1 or is_diagonal(A):
        return [HostLevel.finest(A)]
    if settings.is_classical:
        if components is not None:
            A = selected(A, repeated(components, A) == gathered(components, A.indices))
        if not A.has_canonical_format:
            A = A.copy()
            A.sum_duplicates()
        return classical_levels([HostLevel.finest(A)], settings, hermitian, components)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of pyamg about speed, and about matrices of several systems
            levels = aggregated_levels(A, settings, hermitian, near_nullspace, block_size)
    except Exception as error:
        raise _failure(settings, str(error).split("\n")[0]) from error
    if not all(np.isfinite(M.data).all() for level in levels for M in (level.A, level.P, level.R) if M is not None):
        raise _failure(settings, "it made numbers that are infinite or NaN.")
    return levels


def _failure(settings: AmgSettings, why: str) -> ValueError:
    return ValueError(
        f"This matrix could not be coarsened by {settings.coarsening!r}: {why} Choose another coarsening, or another "
        "kind of preconditioner."
    )


def galerkin_levels(
    A: sp.csr_array, tentative: Sequence[Tentative], settings: AmgSettings, hermitian: bool, checked: bool = False
) -> list[HostLevel] | None:
    """Levels of A, finest first, on the aggregates or the splittings of another matrix.

    Classical coarsening may have ended early, at a matrix that its diagonal dominated. It goes on where that of A does
    not.

    Args:
        checked: return None if the splittings of classical levels no longer suit A, see `is_reusable`.

    Cost: two products of sparse matrices on each level, one more and 15 with vectors for smoothing.
    """
    levels, theta, interpolated = [HostLevel.finest(A)], threshold_of(A, settings), 0
    for source in tentative:
        level = levels[-1]
        A = level.A
        if isinstance(source, ClassicalRule):
            if checked and interpolated < CHECKED and not is_reusable(source, A, theta):
                return None
            coarse = source.coarse
            pair = eliminated(level, coarse, hermitian, source.labels) if source.keeps_all(A) else None
            if pair is not None:
                levels[-1:] = pair
                continue
            interpolated += 1
            P = source.prolongation(A)
            level = level._replace(P=P, R=adjoint(P), tentative=source, splitting=coarse)
        else:
            level = with_transfers(level, source, None if hermitian else source, settings)
        levels[-1:] = level, level.below(sorted_rows(product(level.R, product(A, level.P)), hermitian))
    A = levels[-1].A
    if settings.is_classical and A.shape[0] > settings.max_coarse and not is_dominated(A, SOLVED_BY_SCALING):
        rule = tentative[-1] if tentative else None
        labels = rule.labels[rule.coarse] if isinstance(rule, ClassicalRule) and rule.labels is not None else None
        levels = classical_levels(levels, settings, hermitian, labels)
    return levels


_TENTATIVE: Memory[list[Tentative]] = Memory(8)


def tentative_of(
    structure: Structure, settings: AmgSettings, near_nullspace: np.ndarray | None, block_size: int
) -> list[Tentative]:
    """Tentative prolongations for matrices of unknown values, finest first, cached by pattern.

    They are those of unit coefficients, which suit any values; those of a matrix with jumps suit only similar ones.
    """
    vectors = None if near_nullspace is None else (near_nullspace.dtype.str, near_nullspace.tobytes())
    key = structure, settings, vectors, block_size
    tentative = _TENTATIVE.get(key)
    if tentative is None:
        rows, cols, _ = structure.entries()
        apart = rows != cols
        ones = sp.csr_array((np.ones(int(apart.sum())), (rows[apart], cols[apart])), structure.shape)
        couplings = sp.csr_array(ones + ones.T)
        couplings.data[:] = 1
        degrees = np.asarray(couplings.sum(axis=1)).reshape(-1)
        laplacian = sp.csr_array(sp.diags_array(np.maximum(degrees, 1.0)) - couplings)
        levels = coarsened(laplacian, settings, True, near_nullspace, block_size)
        tentative = [level.tentative for level in levels if level.tentative is not None]
        _TENTATIVE.keep(key, tentative)
    return tentative


# --- update to other values on the same pattern ---


def updated(M: Preconditioner, A: Operator, checked: bool = True) -> Preconditioner | None:
    """M for the values of another matrix, with the same aggregates or the same splittings.

    None if the pattern has new entries, or the matrix is real and the first one was complex.

    Args:
        checked: compute new splittings for known values that no longer suit the old ones.

    Raises:
        ValueError: M is of another kind or size.
    """
    if M.kind != "amg" or M.shape != A.shape:
        raise ValueError(f"New numbers of {A!r} were given for {M!r}; expected an amg preconditioner of that size.")
    if M.dtype.kind == "c" and A.dtype.kind != "c":
        return None
    settings, entries = AmgSettings(**dict(M.settings)), entries_of(A)
    order, tentative = order_of(M.inner), tentative_matrices(M.inner)
    if not tentative and A.shape[0] <= settings.max_coarse:
        return build_from_entries(A, entries, lambda own, target: inverted(own, target, settings))
    if not _covers(M.inner, sparse_form(entries), _components_of(tentative, order), order):
        return None
    return build_from_entries(
        A, entries, lambda own, target: from_tentative(sparse_form(own), target, tentative, settings, order, checked)
    )


def from_tentative(
    own: SparseMatrix,
    target: Target,
    tentative: Sequence[Tentative | Operator],
    settings: AmgSettings,
    order: np.ndarray | None = None,
    checked: bool = False,
) -> Preconditioner:
    """Set up on a pattern: by SciPy for known values, else in the library.

    Args:
        tentative: sources of the prolongations, finest first, for unknowns in the `order`.
        checked: compute new splittings for known values that no longer suit the old ones.
    """
    components = _components_of(tentative, order)

    def restricted(M: Any) -> SparseMatrix:
        return sparse_form(M) if components is None else entries_within(sparse_form(M), components)

    A = restricted(own)
    known, sources = in_scipy(A), list(map(_on_host, tentative))
    if known is None or any(source is None for source in sources):  # traced
        cycle = traced_cycle(permuted_matrix(restricted(target.A), order), tentative, settings, None)
        return as_preconditioner(cycle, own, target, settings, None, order)
    if isinstance(known, sp.csr_array):
        hermitian, wide = hermitian_and_double(known, "amg")
        wide = permuted_rows(wide, order)
        levels = galerkin_levels(wide, sources, settings, hermitian, checked)
        if levels is None:
            ordered = components if components is None or order is None else components[order]
            levels = coarsened(wide, settings, hermitian, None, settings.block_size or 1, ordered)
        return as_preconditioner(
            known_cycle(levels, settings, hermitian, target), own, target, settings, hermitian, order
        )
    hermitian = all(hermitian_and_double(one, "amg")[0] for one in known)
    cycle = traced_cycle(permuted_matrix(A, order), sources, settings, hermitian)
    return as_preconditioner(target.moved(cycle), own, target, settings, hermitian, order)


def _on_host(source: Any) -> Any:
    """A `Tentative`, also of an operator that a level keeps for updates; None if its values are traced."""
    if isinstance(source, Injection):
        return source.rule
    return source.known() if isinstance(source, Operator) else source


def tentative_matrices(cycle: Operator) -> list[Operator]:
    """Operators that the levels keep for updates, finest first; none for a single level."""
    return [level.kept for level in levels_of_cycle(cycle) if level.kept is not None]


def _components_of(tentative: Sequence[Tentative | Operator], order: np.ndarray | None) -> np.ndarray | None:
    """Component of each unknown of A; None: there is one."""
    first = tentative[0] if tentative else None
    rule = first.rule if isinstance(first, Injection) else first
    labels = rule.labels if isinstance(rule, ClassicalRule) else None
    return labels if labels is None or order is None else labels[inverse_permutation(order)]


def order_of(M: Operator) -> np.ndarray | None:
    """Order of the unknowns in which a hierarchy was set up; None: unchanged.

    Levels smoothed in turns on coarse and fine unknowns have an order, too, but their operators for updates do not.
    """
    if not isinstance(M, Permuted):
        return None
    within: Operator = M.inner
    while isinstance(within, DiagonallyScaled | Recast):
        within = within.inner
    return None if isinstance(within, Level) and isinstance(within.smoother, CFRelaxation) else M.order


def _covers(cycle: Operator, A: SparseMatrix, components: np.ndarray | None, order: np.ndarray | None) -> bool:
    """Does the pattern of the finest level contain that of A within components?"""
    rows, cols, _ = A.structure.entries()
    if components is not None:
        within = components[rows] == components[cols]
        rows, cols = rows[within], cols[within]
    levels = levels_of_cycle(cycle)
    if not levels:  # as of a diagonal matrix
        return bool(np.array_equal(rows, cols))
    if order is not None:
        numbers = inverse_permutation(order)
        rows, cols = numbers[rows], numbers[cols]
    finest: Any = levels[0].A
    old = finest.structure.entries()
    if np.array_equal(old.rows, rows) and np.array_equal(old.cols, cols):
        return True
    n = A.shape[1]
    return bool(np.isin(rows.astype(np.int64) * n + cols, old.rows.astype(np.int64) * n + old.cols).all())


# --- symbolic set-up ---


class ValueLayout(NamedTuple):
    """Layout of values in row order in the format that suits a matrix."""

    structure: Structure
    regather: Regather

    @classmethod
    def of(cls, bk: Backend, rows: CsrStructure) -> ValueLayout:
        format = suitable_format(bk, rows)
        if format == "csr":
            return cls(rows, Regather.unchanged())
        return cls(*rows.convert(FORMATS[format].structure_class))

    def matrix(self, bk: Backend, values: Array, like: Array | None) -> SparseMatrix:
        """The matrix of values `(nnz,)` or `(systems, nnz)` in row order."""
        systems = None if len(values.shape) == 1 else int(values.shape[0])
        return SparseMatrix.build(bk, self.structure, self.regather(bk, (values,), systems), like=like)


class LevelPattern(NamedTuple):
    """Symbolic set-up of a level: its prolongation, and the products A P and Pᴴ (A P)."""

    A: ValueLayout
    P: ValueLayout
    R: ValueLayout
    plan: InterpolationPlan | EliminationPlan | SmoothingPlan
    transposed: np.ndarray  # of each entry of Pᴴ: the index of that of P
    image: Meeting  # of A P
    coarse: Meeting  # of Pᴴ (A P)


@lru_cache(maxsize=8)
def pattern_of(
    bk: Backend, A: Structure, rules: tuple[ClassicalRule | Smoothed, ...]
) -> tuple[tuple[CsrStructure, ...], tuple[LevelPattern, ...]]:
    """CSR structures of the matrices of all levels, and the patterns between them. Cost: sorts of single products.

    The rules, which compute the prolongations from the matrices of levels, are compared by content.
    """
    structures, levels = [_in_rows(A.entries().rows, A.entries().cols, A.shape)], list[LevelPattern]()
    for rule in rules:
        rows, (n, m), plan = structures[-1], rule.shape, rule.plan(structures[-1])
        P = plan.prolongation
        entries = sorted_entries(P.cols, P.rows, (m, n), sum_duplicates=False)
        R = _in_rows(entries.rows, entries.cols, (m, n))
        image = products_of_entries(rows, P)
        coarse = products_of_entries(R, _in_rows(image.rows, image.cols, (n, m)))
        order = np.arange(P.nnz, dtype=np.int32) if entries.order is None else entries.order
        layouts = ValueLayout.of(bk, rows), ValueLayout.of(bk, P), ValueLayout.of(bk, R)
        levels.append(LevelPattern(*layouts, plan, order, image, coarse))
        structures.append(_in_rows(coarse.rows, coarse.cols, (m, m)))
    return tuple(structures), tuple(levels)


def _in_rows(rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> CsrStructure:
    return CsrStructure(starts_of(rows, shape[0]), cols, shape)


# --- numeric set-up ---


def traced_cycle(
    A: SparseMatrix, tentative: Sequence[Tentative | Operator], settings: AmgSettings, hermitian: bool | None
) -> Operator:
    """Cycle for A from the sources of the prolongations, finest first.

    Cost: two products of sparse matrices and 15 with vectors on each level, and an eigenvalue decomposition on the
    coarsest. The symbolic set-up is done once per pattern.

    Source: Vanek, Mandel and Brezina, Algebraic multigrid by smoothed aggregation, Computing 56 (1996).
    """
    bk, like = A.bk, A.anchor()
    sources: list[Any] = [kept_for_updates(T, bk, A.dtype, like) for T in tentative]
    rules = [T.rule if isinstance(T, Injection) else Smoothed(T.structure, settings.smooths) for T in sources]
    structures, levels = pattern_of(bk, A.structure, tuple(rules))
    if settings.is_classical and structures[-1].shape[0] > settings.max_coarse and len(rules) + 1 < settings.max_levels:
        # Classical coarsening ended early, at a matrix that its diagonal dominated, which nothing says of this one.
        left = replace(settings, max_levels=settings.max_levels - len(rules))
        if more := tentative_of(structures[-1], left, None, 1):
            return traced_cycle(A, [*tentative, *more], settings, hermitian)
    by_rows = settings.is_classical and hermitian is not False
    current = _scaled_values(bk, structures[0], bk.constant(A.entry_arrays()), by_rows and bool(tentative))
    phase = _phase(bk, structures[0], current.values, each=hermitian is False)
    last = len(phase.shape) - 1
    turned = bk.take_in_bounds(phase, structures[0].rows, last) * current.values
    current, outer = current._replace(values=turned), _as_rows(current.scale)
    terms = bk.abs(_diagonal(bk, structures[0], current.values))
    dtype = np.dtype(bk.dtype(outer))
    within = inner_dtype(settings.precision, dtype) if tentative else dtype
    parts = []
    for k, (level, T) in enumerate(zip(levels, sources), 1):
        a, plan, rows, rows_below = current.values, level.plan, structures[k - 1], structures[k]
        matrix = level.A.matrix(bk, a, like)
        rho = _bound(bk, matrix, rows, current, settings, hermitian)
        p = plan.values(bk, current, T, rho)
        r = bk.conj(bk.take_in_bounds(p, level.transposed, last))
        values = level.coarse.values(bk, r, level.image.values(bk, a, p))
        diagonal = _diagonal(bk, rows, a)
        values, terms = _without_rounding_residues(bk, rows_below, values, plan.prolongation, p, diagonal, terms)
        current = _scaled_values(bk, rows_below, values, by_rows and k < len(tentative))
        terms = terms * bk.abs(current.scale) ** 2
        p = p * (bk.take_in_bounds(current.scale, plan.prolongation.cols, last) * float(np.sqrt(settings.factor)))
        P = level.P.matrix(bk, p, like)
        R = level.R.matrix(bk, bk.conj(bk.take_in_bounds(p, level.transposed, last)), like)
        smoother = _smoother(matrix, T, rho, settings, hermitian, within)
        parts.append(LevelParts(smoother, P.astype(within), R.astype(within), T))
    coarsest: Operator
    if np.array_equal(structures[-1].rows, structures[-1].cols):
        coarsest = DiagonalOperator(bk, bk.full_like(_as_rows(current.scale), 1))
    else:
        check_dense(structures[-1].shape[0])
        dense = SparseMatrix.build(bk, structures[-1], (current.values,), like=like).dense()
        coarsest = Dense(bk, traced_inverse(bk, dense, terms))
    cycle = recast(cycle_over(parts, coarsest, VISITS[settings.cycle]), dtype)
    return DiagonallyScaled(cycle, outer, _as_rows(phase) * outer)


def _scaled_values(bk: Backend, A: CsrStructure, values: Array, by_rows: bool = False) -> ScaledValues:
    """Values scaled to a unit diagonal (zero where A has none).

    Args:
        by_rows: to unit sums of the absolute values in rows instead, see `scales_of`.
    """
    last = len(values.shape) - 1
    if by_rows:
        size = bk.sum_entries(bk.abs(values), A.rows, A.shape[0], sorted=True)
    else:
        size = bk.abs(_diagonal(bk, A, values))
    scale = bk.astype(unit_scale(bk, size), bk.dtype(values))
    left, right = bk.take_in_bounds(scale, A.rows, last), bk.take_in_bounds(scale, A.cols, last)
    return ScaledValues(values * left * right, scale, values)


def _smoother(
    A: SparseMatrix, T: Operator, rho: Array, settings: AmgSettings, hermitian: bool | None, dtype: np.dtype
) -> Smoother:
    bk, inside = A.bk, A.astype(dtype)
    if hermitian is False or not isinstance(T, Injection) or not T.rule.eliminates:
        coefficients = polynomial(bk, settings.smoother_of(hermitian), rho, settings.degree)
        alphas, weights = (bk.astype(bk.astype(each, A.dtype), dtype) for each in coefficients)
        return PolynomialSmoother(inside, alphas, weights[:, :, None], bool(hermitian))
    diagonal = A.diagonals()  # (systems or 1, n): 1 / a_ii of fine unknowns, 0 of others
    some = bk.constant(~T.rule.coarse) & (diagonal != 0)
    inverse = bk.where(some, 1 / bk.where(some, diagonal, 1), 0 * diagonal)
    return Elimination(inside, bk.astype(inverse, dtype), bool(hermitian))


def _without_rounding_residues(
    bk: Backend, structure: CsrStructure, values: Array, P: CsrStructure, p: Array, diagonal: Array, terms: Array
) -> tuple[Array, Array]:
    """Values of a coarse matrix without rows of mere rounding, as in `HostLevel.below`, and its `terms`.

    Args:
        structure: structure of the coarse matrix.
        P, p: structure and values of the prolongation.
        diagonal, terms: of the finer matrix, `(n,)` or `(systems, n)`; terms are real.
    """
    last = len(values.shape) - 1
    squares = bk.sum_entries(p * bk.conj(p) * bk.take_in_bounds(diagonal, P.rows, last), P.cols, P.shape[1])
    terms = bk.sum_entries(bk.abs(p) ** 2 * bk.take_in_bounds(terms, P.rows, last), P.cols, P.shape[1])
    own = _diagonal(bk, structure, values)
    repaired = bk.where(is_rounding(bk, own, squares, terms), squares, own)
    on_diagonal = bk.asarray(structure.rows == structure.cols, like=values)
    return bk.where(on_diagonal, bk.take_in_bounds(repaired, structure.rows, last), values), terms


def _diagonal(bk: Backend, A: CsrStructure, values: Array) -> Array:
    return A.diagonal(bk, (values,), int(values.shape[0]) if len(values.shape) == 2 else None)


def _phase(bk: Backend, A: CsrStructure, values: Array, each: bool) -> Array:
    """Phases `(n,)` or `(systems, n)` of the rows, with which the smoother converges.

    One phase for all rows of a system preserves a Hermitian matrix; with `each` there is one for each row. For a real
    diagonal it is -1 if no entry is positive; for a complex one it cancels the phase of the sum.
    """
    diagonal, dtype = _as_rows(_diagonal(bk, A, values)), bk.dtype(values)
    one = bk.full_like(diagonal, 1)
    if each:
        units = phases(bk, diagonal)
        return units if len(values.shape) == 2 else units[0]
    real = bk.real(diagonal)
    highest, lowest = (bk.max_abs(bk.where(part, real, 0 * real)) for part in (real > 0, real < 0))
    units = bk.astype(bk.where((highest == 0) & (lowest > 0), -1 + 0 * highest, 1 + 0 * highest), dtype)
    if dtype.kind == "c":
        total, sizes = bk.sum(diagonal, 1, keepdims=True), bk.sum(bk.abs(diagonal), 1, keepdims=True)
        size, imaginary = bk.abs(total), bk.sum(bk.abs(bk.real(-1j * diagonal)), 1, keepdims=True)
        turned = bk.conj(total) / bk.astype(bk.where(size > 0, size, 1 + 0 * size), dtype)
        eps = float(np.finfo(dtype).eps)
        units = bk.where((2 * size > sizes) & (imaginary > 100 * eps * sizes), turned, units)
    units = units * one
    return units if len(values.shape) == 2 else units[0]


def _bound(
    bk: Backend,
    A: SparseMatrix,
    rows: CsrStructure,
    current: ScaledValues,
    settings: AmgSettings,
    hermitian: bool | None,
) -> Array:
    """`(systems or 1,)`: bounds of the eigenvalues of a level."""
    scale, last = bk.real(current.scale), len(current.values.shape) - 1
    left, right = bk.take_in_bounds(scale, rows.rows, last), bk.take_in_bounds(scale, rows.cols, last)
    relative = bk.abs(current.values) * left / right  # entries of the matrix divided by its diagonal
    sums = bk.max_abs(_as_rows(bk.sum_entries(relative, rows.rows, rows.shape[0], sorted=True)))[:, 0]
    if settings.is_classical:
        return bk.full_like(sums, BOUND[hermitian is not False])
    rho = bounded_eigenvalue(bk, A, sums)
    return bk.where(rho > 0, rho, 1)


def _as_rows(x: Array) -> Array:
    """Reshape to `(systems, n)`; `(1, n)` for a single matrix."""
    return x if len(x.shape) == 2 else x[None]
