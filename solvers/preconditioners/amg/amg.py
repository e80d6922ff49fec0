"""Algebraic multigrid: pyamg coarsens, the cycle consists of matrices of the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....sparse import Matrix, Operator, SparseMatrix, as_operator
from ....sparse.analysis.facts import is_m_matrix
from ....sparse.analysis.symmetry import is_hermitian
from ....sparse.operators.concrete import in_scipy
from ..base import Preconditioner
from ..cycle.checked import hermitian_and_double
from ..cycle.cost import numbers_stored, work_of
from ..cycle.permuted import permuted
from ..cycle.recast import note_on_precision
from ..cycle.small import exact_inverse
from ..cycle.target import Target
from ..pipeline import built, entries_of, of_operator
from .choose import SMOOTHED, Facts, choose_coarsening
from .coarsen import coarsened
from .components import components_for, entries_within
from .frozen import tentative_of
from .galerkin import galerkin_levels
from .hierarchy import HostLevel, Tentative, levels_of_pyamg
from .known import known_cycle
from .level import components_kept, covers, known_tentative, order_of, placed, tentative_matrices
from .order import nearer_order, reordered_matrix, rows_in
from .renewed import renewed
from .settings import COARSENINGS, GIVEN, AmgSettings, in_dtype, near_nullspace_columns


@of_operator()
def amg(
    own: Matrix,
    target: Target,
    *,
    coarsening: str | None = None,
    near_nullspace: Any = None,
    block_size: int | None = None,
    cycle: str = "V",
    smoother: str | None = None,
    degree: int = 2,
    strength: float | None = None,
    over_correction: float | None = None,
    max_levels: int = 20,
    max_coarse: int = 300,
    precision: str | None = None,
    hierarchy: Any = None,
    pattern: Any = None,
) -> Preconditioner:
    """One cycle of algebraic multigrid, for matrices of elliptic equations on any mesh.

    Hermitian for a Hermitian A, and positive definite with it. Where the values of A are known, pyamg looks at them
    when the hierarchy is made; where they are traced, or differ among the systems of a batch, unknowns are put together
    as for unit coefficients on the same pattern, and all numbers are computed in the library.

    Args:
        near_nullspace: vectors that A nearly maps to zero, on the first axis: `(k, n)`, or `(k, points, unknowns per
            point)`, such as `rigid_motions(points)` for elasticity; default: constants.
        block_size: unknowns per point, which stay together; default: as `near_nullspace` says, else 1.
        coarsening: "smoothed-aggregation", the default; "aggregation", which stores less and takes more steps, with
            corrections times 1.6; "classical", PMIS with extended+i interpolation, for scalar equations whose
            coefficients may jump anywhere; "ruge-stuben"; "root-node"; "energy-minimising"; "adaptive", which finds
            `near_nullspace`.
        cycle: "V" or "W". There is no K-cycle: it is not linear, as it solves with Krylov's methods in between.
        smoother: "chebyshev", or "jacobi", which is the default where A is known not to be Hermitian.
        degree: of the smoother's polynomial; so many products with A before and after the coarser levels.
        strength: how strong a coupling is at least by which unknowns are put together, of 1; default 0, and 0.25 for
            "classical" and "ruge-stuben".
        over_correction: factor of corrections by coarser levels; default 1, for "aggregation" 1.6.
        max_levels, max_coarse: at most so many levels (20), and unknowns on the coarsest one (300), unless it cannot be
            made smaller. It is solved with a dense (pseudo-)inverse.
        precision: "single" computes on all levels but the coarsest in single precision where A is in double: two thirds
            of the memory and of the time, and as many iterations.
        hierarchy: a `MultilevelSolver` of pyamg for A, whose levels are taken.
        pattern: where the values of A are not known: a known matrix with the same places of entries, whose values
            decide instead of unit coefficients; or a preconditioner of this kind, which gets the numbers of A: unknowns
            stay together as they are, other settings are those of that one.

    Raises:
        ValueError: a setting that has no such value, a zero on the diagonal of a row that is not empty, or a matrix
            that could not be coarsened.
        UnsupportedOperation: entries of A are not known where they are needed.

    Stores 2 to 4 times as many numbers as A has entries, and costs 7 to 11 products with A.

    Source: Vanek, Mandel and Brezina, Algebraic multigrid by smoothed aggregation, Computing 56 (1996); Braess, Towards
    algebraic multigrid for elliptic problems of second order, Computing 55 (1995), for "aggregation"; Bell, Olson and
    Schroder, PyAMG: algebraic multigrid solvers in Python, JOSS 7 (2022), for what it makes.
    """
    _refuse_two(coarsening, hierarchy)
    settings = AmgSettings(
        coarsening=coarsening or (GIVEN if hierarchy is not None else AmgSettings.coarsening),
        cycle=cycle,
        smoother=smoother,
        degree=degree,
        strength=strength,
        block_size=block_size,
        max_levels=max_levels,
        max_coarse=max_coarse,
        over_correction=over_correction,
        precision=precision,
    )
    if isinstance(pattern, Preconditioner):
        _refuse_more(settings, coarsening, near_nullspace, hierarchy)
        return _renewal(pattern, target.A)
    if hierarchy is not None:
        _refuse_beside(near_nullspace=near_nullspace, pattern=pattern, block_size=block_size, strength=strength)
    vectors, block_size = near_nullspace_columns(near_nullspace, own.shape[0], settings.block_size)
    columns = in_dtype(vectors, own.dtype)
    known = in_scipy(own)
    if settings.coarsening == GIVEN:
        return _of_hierarchy(own, target, known, hierarchy, settings)
    order = nearer_order(own, block_size)
    columns = columns if columns is None or order is None else columns[order]
    choice = None if coarsening is not None else Facts(False, False, columns is not None, block_size > 1)
    if isinstance(known, sp.csr_array):
        if pattern is not None:
            _known_pattern(pattern, own)  # which says nothing more
        return _of_known(own, target, known, settings, choice, order, columns, block_size)
    fixed = None if pattern is None else hermitian_and_double(_known_pattern(pattern, own), "amg")
    if choice is not None:
        choice = choice if fixed is None else choice._replace(known=True, hermitian=fixed[0])
        settings = replace(settings, coarsening=choose_coarsening(choice).coarsening)
    if own.shape[0] <= settings.max_coarse or settings.max_levels == 1 or own.systems == 0:
        return _small(own, target, settings)
    sparse = _sparse(own)
    if fixed is not None:
        return _of_pattern(sparse, target, *fixed, settings, order, columns, block_size)
    found = list(tentative_of(reordered_matrix(sparse, order).structure, settings, columns, block_size))
    return _on_pattern(sparse, target, _placed(found, sparse), settings, order)


def _of_pattern(
    own: SparseMatrix,
    target: Target,
    hermitian: bool,
    pattern: sp.csr_array,
    settings: AmgSettings,
    order: np.ndarray | None,
    columns: np.ndarray | None,
    block_size: int,
) -> Preconditioner:
    """Set up in the library from the hierarchy of known values."""
    components = components_for(pattern, None, block_size) if hermitian and settings.is_classical else None
    if components is not None:
        own, target = entries_within(own, components), _within(target, components)
        components = components if order is None else components[order]
    levels = coarsened(rows_in(pattern, order), settings, hermitian, columns, block_size, components)
    found = [level.tentative for level in levels if level.tentative is not None]
    return _on_pattern(own, target, _placed(found, own), settings, order)


def _of_known(
    own: Matrix,
    target: Target,
    known: sp.csr_array,
    settings: AmgSettings,
    choice: Facts | None,
    order: np.ndarray | None,
    columns: np.ndarray | None,
    block_size: int,
) -> Preconditioner:
    """Set up from known values; `choice`: by the table, and by smoothed aggregation where that coarsening fails."""
    hermitian, wide = hermitian_and_double(known, "amg")
    components = None
    if hermitian and (choice is not None or settings.is_classical):
        components = components_for(wide, None if choice is None else columns, block_size)
        components = components if components is None or order is None else components[order]
    row = None
    if choice is not None:
        facts = choice._replace(known=True, hermitian=hermitian, components=components is not None)
        row = choose_coarsening(facts._replace(m_matrix=not hermitian and is_m_matrix(known)))
        settings = replace(settings, coarsening=row.coarsening)
    wide = rows_in(wide, order)
    try:
        levels = coarsened(wide, settings, hermitian, columns, block_size, components)
        found = _of_levels(own, target, levels, settings, hermitian, order)
        return found if row is None else replace(found, reason=row.reason)
    except ValueError:
        if row is None or settings.coarsening == SMOOTHED:
            raise
    settings = replace(settings, coarsening=SMOOTHED)
    levels = coarsened(wide, settings, hermitian, columns, block_size)
    found = _of_levels(own, target, levels, settings, hermitian, order)
    return replace(found, reason=f"{SMOOTHED}, as classical coarsening failed")


def _within(target: Target, components: np.ndarray) -> Target:
    return Target(entries_within(_sparse(entries_of(target.A)), components), target.dtype)


def _refuse_two(coarsening: str | None, hierarchy: Any) -> None:
    if coarsening == GIVEN or (coarsening is not None and hierarchy is not None):
        beside = " with a hierarchy" if hierarchy is not None else ""
        raise ValueError(
            f"coarsening={coarsening!r} was given{beside}; expected one of {', '.join(map(repr, COARSENINGS))}, or a "
            "hierarchy without it."
        )


def _renewal(M: Preconditioner, A: Operator) -> Preconditioner:
    found = _updated(M, A, checked=False)
    if found is None:
        raise ValueError(f"pattern={M!r} was given for {A!r}, which has other entries, or is not complex.")
    return found


def updated(M: Preconditioner, A: Operator) -> Preconditioner | None:
    """M for the values of another matrix, with the same aggregates or the same splittings.

    Known values for which the splittings no longer serve get new ones. None if the pattern has new entries, or the
    matrix is real and the first one was complex.

    Raises:
        ValueError: M is of another kind or size.
    """
    return _updated(M, A, checked=True)


def _updated(M: Preconditioner, A: Operator, checked: bool) -> Preconditioner | None:
    if M.kind != "amg" or M.shape != A.shape:
        raise ValueError(f"New numbers of {A!r} were given for {M!r}; expected an amg preconditioner of that size.")
    if M.dtype.kind == "c" and A.dtype.kind != "c":
        return None
    settings, entries = AmgSettings(**dict(M.settings)), entries_of(A)
    cycle, order = M.inner, order_of(M.inner)
    tentative = tentative_matrices(cycle) or []
    components = components_kept(tentative, order)
    if components is not None:
        entries = entries_within(_sparse(entries), components)
    if not tentative and A.shape[0] <= settings.max_coarse:
        return built(A, entries, lambda own, target: _small(own, target, settings))
    if not covers(cycle, reordered_matrix(_sparse(entries), order)):
        return None
    return built(A, entries, lambda own, target: _on_pattern(_sparse(own), target, tentative, settings, order, checked))


def _on_pattern(
    own: SparseMatrix,
    target: Target,
    tentative: Sequence[Operator],
    settings: AmgSettings,
    order: np.ndarray | None = None,
    checked: bool = False,
) -> Preconditioner:
    """Set up on a pattern: by SciPy for known values, else in the library.

    Args:
        checked: are splittings made anew where they do not serve known values?
    """
    known, prolongations = in_scipy(own), [found for T in tentative if (found := known_tentative(T)) is not None]
    if known is None or len(prolongations) < len(tentative):
        given: Any = target.A
        cycle = renewed(reordered_matrix(_sparse(given), order), tentative, settings, None)
        return _described(cycle, own, target, settings, None, order)
    if isinstance(known, sp.csr_array):
        hermitian, wide = hermitian_and_double(known, "amg")
        wide = rows_in(wide, order)
        levels = galerkin_levels(wide, prolongations, settings, hermitian, checked) or coarsened(
            wide, settings, hermitian, None, settings.block_size or 1
        )
        return _of_levels(own, target, levels, settings, hermitian, order)
    hermitian = all(hermitian_and_double(one, "amg")[0] for one in known)
    cycle = renewed(reordered_matrix(own, order), _placed(prolongations, own), settings, hermitian)
    return _described(target.moved(cycle), own, target, settings, hermitian, order)


def _of_hierarchy(matrix: Matrix, target: Target, known: Any, hierarchy: Any, settings: AmgSettings) -> Preconditioner:
    """Take levels of a pyamg hierarchy; for a traced A or a batch only its prolongations."""
    if not getattr(hierarchy, "levels", None):
        raise TypeError(f"hierarchy={hierarchy!r} was given; expected a MultilevelSolver of pyamg.")
    levels = levels_of_pyamg(hierarchy)
    if levels[0].A.shape != matrix.shape:
        raise ValueError(f"hierarchy is of a matrix of shape {levels[0].A.shape}; expected {matrix.shape}, that of A.")
    if not isinstance(known, sp.csr_array):
        sparse = _sparse(matrix)
        tentative = [level.tentative for level in levels if level.tentative is not None]
        return _on_pattern(sparse, target, _placed(tentative, sparse), settings)
    if not _is_close(known, levels[0].A):  # as of an earlier time step
        sparse = _sparse(matrix)
        found = [level.P for level in levels if level.P is not None]
        return _on_pattern(sparse, target, _placed(found, sparse), settings)
    hermitian, wide = hermitian_and_double(known, "amg")
    hermitian = hermitian and all(
        level.R is None or (level.P is not None and _is_close(level.R, level.P.conj().T) and is_hermitian(below.A))
        for level, below in pairwise(levels)
    )
    return _of_levels(matrix, target, [levels[0]._replace(A=wide), *levels[1:]], settings, hermitian)


def _is_close(A: sp.csr_array, B: Any) -> bool:
    difference = sp.csr_array(A - B)
    return bool(abs(difference).max() <= 1e-12 * abs(A).max()) if difference.nnz else True


def _known_pattern(pattern: Any, A: Matrix) -> sp.csr_array:
    found = in_scipy(entries_of(as_operator(pattern)))
    if not isinstance(found, sp.csr_array) or found.shape != A.shape:
        raise ValueError(f"pattern={pattern!r} was given; expected a known matrix of shape {A.shape}.")
    if found.dtype.kind == "c" and A.dtype.kind != "c":
        raise ValueError("pattern is a complex matrix, and A is real; expected a real one.")
    return found


def _placed(tentative: Sequence[Tentative], A: SparseMatrix) -> list[Operator]:
    """Convert to the library and device of A."""
    like = A.anchor()
    return [placed(T, A.bk, A.dtype, like) for T in tentative]


def _refuse_beside(**given: Any) -> None:
    names = [name for name, value in given.items() if value is not None]
    if names:
        raise ValueError(f"amg was asked for a hierarchy, and for {', '.join(names)}; expected one of these.")


def _refuse_more(settings: AmgSettings, coarsening: str | None, near_nullspace: Any, hierarchy: Any) -> None:
    if not (settings == AmgSettings() and coarsening is near_nullspace is hierarchy is None):
        raise ValueError(
            "amg was asked for the pattern of a preconditioner, and for other settings; expected one of these, as the "
            "settings are those of that preconditioner."
        )


def _small(own: Matrix, target: Target, settings: AmgSettings) -> Preconditioner:
    cycle, hermitian = exact_inverse(own, "amg")
    return _described(cycle, own, target, settings, hermitian)


def _of_levels(
    own: Matrix,
    target: Target,
    levels: list[HostLevel],
    settings: AmgSettings,
    hermitian: bool,
    order: np.ndarray | None = None,
) -> Preconditioner:
    return _described(known_cycle(levels, settings, hermitian, target), own, target, settings, hermitian, order)


def _described(
    cycle: Operator,
    own: Matrix,
    target: Target,
    settings: AmgSettings,
    hermitian: bool | None,
    order: np.ndarray | None = None,
) -> Preconditioner:
    cycle = cycle if order is None else permuted(cycle, order, target)
    costs = numbers_stored(cycle), work_of(cycle), own.nnz
    return Preconditioner(cycle, "amg", hermitian, *costs, settings.pairs(), note_on_precision(cycle))


def _sparse(matrix: Matrix) -> SparseMatrix:
    found: Any = matrix if isinstance(matrix, SparseMatrix) else matrix.to("csr")
    return found
