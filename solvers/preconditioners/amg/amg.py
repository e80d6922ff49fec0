"""Algebraic multigrid: pyamg coarsens, the cycle consists of matrices of the library."""

from __future__ import annotations

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
from ..cycle.cost import numbers_stored
from ..pipeline import entries_of, of_operator
from ..target import Target
from .as_preconditioner import of_levels, small, sparse_form
from .choose import SMOOTHED, CoarseningFacts, choose_coarsening
from .components import components_for, entries_within
from .frozen import tentative_of
from .hierarchy import coarsened
from .levels import levels_of_pyamg, nearer_order, reordered_matrix, rows_in
from .on_host import HostCycle
from .settings import COARSENINGS, GIVEN, AmgSettings, in_dtype, near_nullspace_columns
from .updates import on_pattern, placed_at, renewal, target_within


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

    Hermitian for a Hermitian A, and positive definite with it. Where the values of A are known, the hierarchy is made
    of them on the host; where they are traced, or differ among the systems of a batch, unknowns are put together as for
    unit coefficients on the same pattern, and all numbers are computed in the library; for "classical" in JAX's
    programs on a CPU the host sets up the hierarchy in each run, and applies it.

    Args:
        near_nullspace: vectors that A nearly maps to zero, on the first axis: `(k, n)`, or `(k, points, unknowns per
            point)`, such as `rigid_motions(points)` for elasticity; default: constants. Given, they decide for
            smoothed aggregation, but for the rigid motions of a compact body, which classical coarsening of each
            component by itself reduces faster.
        block_size: unknowns per point, which stay together; default: as `near_nullspace` says, else 1.
        coarsening: "classical", by strong couplings with extended+i interpolation, for equations whose coefficients may
            jump anywhere; "smoothed-aggregation"; "aggregation", which stores less and takes more steps, with
            corrections times 1.6. Default: "classical" for known values that are Hermitian or those of an M-matrix,
            else "smoothed-aggregation"; docs/preconditioners.md has the table. Other coarsenings of pyamg come as
            `hierarchy`.
        cycle: "V" or "W". There is no K-cycle: it is not linear, as it solves with Krylov's methods in between.
        smoother: "chebyshev", or "jacobi", which is the default where A is known not to be Hermitian.
        degree: of the smoother's polynomial; so many products with A before and after the coarser levels.
        strength: how strong a coupling is at least by which unknowns are put together, of 1; default 0, and 0.25 for
            "classical" (0.7 for graphs with hubs).
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

    Stores 2 to 5 times as many numbers as A has entries, and costs 7 to 13 products with A.

    Source: Ruge and Stuben, Algebraic multigrid, in McCormick (ed.), Multigrid methods, SIAM (1987), De Sterck, Yang
    and Heys, Reducing complexity in parallel algebraic multigrid preconditioners, SIAM J. Matrix Anal. Appl. 27 (2006),
    De Sterck, Falgout, Nolting and Yang, Distance-two interpolation for parallel algebraic multigrid, Numer. Linear
    Algebra Appl. 15 (2008), and Baker, Falgout, Kolev and Yang, Multigrid smoothers for
    ultraparallel computing, SIAM J. Sci. Comput. 33 (2011), for "classical"; Vanek, Mandel and Brezina, Algebraic
    multigrid by smoothed aggregation, Computing 56 (1996); Braess, Towards algebraic multigrid for elliptic problems of
    second order, Computing 55 (1995), for "aggregation"; Bell, Olson and Schroder, PyAMG: algebraic multigrid solvers
    in Python, JOSS 7 (2022), for what it makes.
    """
    _refuse_two(coarsening, hierarchy)
    if coarsening == "classical" and near_nullspace is not None:
        raise ValueError(
            "coarsening='classical' does not use near_nullspace, which was given too. Leave out one, or give "
            "coarsening='smoothed-aggregation', whose prolongations contain these vectors."
        )
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
        return renewal(pattern, target.A)
    if hierarchy is not None:
        _refuse_beside(near_nullspace=near_nullspace, pattern=pattern, block_size=block_size, strength=strength)
    vectors, block_size = near_nullspace_columns(near_nullspace, own.shape[0], settings.block_size)
    columns = in_dtype(vectors, own.dtype)
    known = in_scipy(own)
    if settings.coarsening == GIVEN:
        return _of_hierarchy(own, target, known, hierarchy, settings)
    order = nearer_order(own, block_size)
    columns = columns if columns is None or order is None else columns[order]
    choice = None if coarsening is not None else CoarseningFacts(False, False, columns is not None, block_size > 1)
    if isinstance(known, sp.csr_array):
        if pattern is not None:
            _known_pattern(pattern, own)  # which says nothing more
        return _of_known(own, target, known, settings, choice, order, columns, block_size)
    fixed = None if pattern is None else hermitian_and_double(_known_pattern(pattern, own), "amg")
    if choice is not None:
        choice = choice if fixed is None else choice._replace(known=True, hermitian=fixed[0])
        settings = replace(settings, coarsening=choose_coarsening(choice).coarsening)
    if own.shape[0] <= settings.max_coarse or settings.max_levels == 1 or own.systems == 0:
        return small(own, target, settings)
    sparse = sparse_form(own)
    if fixed is not None:
        return _of_pattern(sparse, target, *fixed, settings, order, columns, block_size)
    return _of_structure(sparse, target, settings, order, columns, block_size)


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
        own, target = entries_within(own, components), target_within(target, components)
        components = components if order is None else components[order]
    levels = coarsened(rows_in(pattern, order), settings, hermitian, columns, block_size, components)
    found = [level.tentative for level in levels if level.tentative is not None]
    return on_pattern(own, target, placed_at(found, own), settings, order)


def _of_structure(
    own: SparseMatrix,
    target: Target,
    settings: AmgSettings,
    order: np.ndarray | None,
    columns: np.ndarray | None,
    block_size: int,
) -> Preconditioner:
    """Set up for unknown values: by the host when they are known, or in the library as unit coefficients suggest."""
    if settings.is_classical and HostCycle.serves(own):
        return _by_host(own, settings)
    found = list(tentative_of(reordered_matrix(own, order).structure, settings, columns, block_size))
    return on_pattern(own, target, placed_at(found, own), settings, order)


def _by_host(own: SparseMatrix, settings: AmgSettings) -> Preconditioner:
    cycle = HostCycle.of(own, settings, _cycle_now)
    costs = numbers_stored(cycle), 10 * own.nnz, own.nnz
    return Preconditioner(cycle, "amg", None, *costs, settings.pairs(), "set up by the host in each run")


def _cycle_now(A: SparseMatrix, settings: AmgSettings) -> Operator:
    """The cycle of known values on NumPy's arrays."""
    given: Any = dict(settings.pairs())
    made: Any = amg
    inner: Operator = made(A, **given).inner
    return inner


def _of_known(
    own: Matrix,
    target: Target,
    known: sp.csr_array,
    settings: AmgSettings,
    choice: CoarseningFacts | None,
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
        found = of_levels(own, target, levels, settings, hermitian, order)
        return found if row is None else replace(found, reason=row.reason)
    except ValueError:
        if row is None or settings.coarsening == SMOOTHED:
            raise
    settings = replace(settings, coarsening=SMOOTHED)
    levels = coarsened(wide, settings, hermitian, columns, block_size)
    found = of_levels(own, target, levels, settings, hermitian, order)
    return replace(found, reason=f"{SMOOTHED}, as classical coarsening failed")


def _refuse_two(coarsening: str | None, hierarchy: Any) -> None:
    if coarsening == GIVEN or (coarsening is not None and hierarchy is not None):
        beside = " with a hierarchy" if hierarchy is not None else ""
        raise ValueError(
            f"coarsening={coarsening!r} was given{beside}; expected one of {', '.join(map(repr, COARSENINGS))}, or a "
            "hierarchy without it."
        )


def _of_hierarchy(matrix: Matrix, target: Target, known: Any, hierarchy: Any, settings: AmgSettings) -> Preconditioner:
    """Take levels of a pyamg hierarchy; for a traced A or a batch only its prolongations."""
    if not getattr(hierarchy, "levels", None):
        raise TypeError(f"hierarchy={hierarchy!r} was given; expected a MultilevelSolver of pyamg.")
    levels = levels_of_pyamg(hierarchy)
    if levels[0].A.shape != matrix.shape:
        raise ValueError(f"hierarchy is of a matrix of shape {levels[0].A.shape}; expected {matrix.shape}, that of A.")
    if not isinstance(known, sp.csr_array):
        sparse = sparse_form(matrix)
        tentative = [level.tentative for level in levels if level.tentative is not None]
        return on_pattern(sparse, target, placed_at(tentative, sparse), settings)
    if not _is_close(known, levels[0].A):  # as of an earlier time step
        sparse = sparse_form(matrix)
        found = [level.P for level in levels if level.P is not None]
        return on_pattern(sparse, target, placed_at(found, sparse), settings)
    hermitian, wide = hermitian_and_double(known, "amg")
    hermitian = hermitian and all(
        level.R is None or (level.P is not None and _is_close(level.R, level.P.conj().T) and is_hermitian(below.A))
        for level, below in pairwise(levels)
    )
    return of_levels(matrix, target, [levels[0]._replace(A=wide), *levels[1:]], settings, hermitian)


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
