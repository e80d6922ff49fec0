"""Algebraic multigrid: choice of the coarsening, and set-up for known and for traced values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ....sparse import Matrix, Operator, SparseMatrix, as_operator
from ....sparse.analysis.facts import is_m_matrix
from ....sparse.analysis.symmetry import is_hermitian
from ....sparse.operators.concrete import in_scipy
from ..multigrid.coarsest import hermitian_and_double
from ..multigrid.cycle import numbers_stored
from ..operators import Preconditioner
from ..pipeline import Target, entries_of, of_operator
from .components import components_for, entries_within
from .cycle import inverted, of_levels, sparse_form
from .hierarchy import coarsened, tentative_of
from .host_levels import adjoint, levels_of_pyamg, nearer_order, reordered_matrix, rows_in
from .on_host import AppliedByHost
from .renewal import on_pattern, placed_at, target_within, updated
from .settings import COARSENINGS, GIVEN, AmgSettings, near_nullspace_columns


class CoarseningFacts(NamedTuple):
    """Facts that decide if no coarsening is given.

    Attributes:
        known: the values are those of one known matrix, or of a `pattern`.
        hermitian: that matrix is Hermitian; False if values are not known.
        vectors: a near null space was given.
        several: there are several unknowns per point.
        components: a Hermitian matrix of several components that can be coarsened separately, given by `block_size` or
            detected. With rigid motions the body must not be slender.
        m_matrix: the rows prove an M-matrix.
    """

    known: bool
    hermitian: bool
    vectors: bool
    several: bool
    components: bool = False
    m_matrix: bool = False


class CoarseningRow(NamedTuple):
    """A row of the table: a condition in words and as a function, the coarsening, and why."""

    known: str
    holds: Callable[[CoarseningFacts], bool]
    coarsening: str
    why: str

    @property
    def reason(self) -> str:
        return f"{self.coarsening}, as {self.why}"


_CLASSICAL, _SMOOTHED = "classical", "smoothed-aggregation"

ROWS = (
    CoarseningRow(
        "several components, Hermitian (`block_size`, or found: elasticity); rigid motions of a compact body",
        lambda f: f.components,
        _CLASSICAL,
        "each component is coarsened by itself",
    ),
    CoarseningRow("`near_nullspace` given", lambda f: f.vectors, _SMOOTHED, "its prolongations contain these vectors"),
    CoarseningRow(
        "several unknowns per point (`block_size`), not Hermitian",
        lambda f: f.several,
        _SMOOTHED,
        "unknowns of a point stay together",
    ),
    CoarseningRow(
        "values that are traced, or those of a batch, without a `pattern`",
        lambda f: not f.known,
        _SMOOTHED,
        "unknowns are put together as for unit coefficients, without their values",
    ),
    CoarseningRow(
        "known values, Hermitian",
        lambda f: f.hermitian,
        _CLASSICAL,
        "iterations do not depend on how coefficients jump, nor on the mesh",
    ),
    CoarseningRow(
        "known values, not Hermitian, an M-matrix by its rows",
        lambda f: f.m_matrix,
        _CLASSICAL,
        "it takes fewest iterations where information has a direction",
    ),
    CoarseningRow(
        "known values, not Hermitian",
        lambda f: True,
        _SMOOTHED,
        "it takes more iterations than classical coarsening, and less time",
    ),
)
"""The first row that holds decides; the last one always does. docs/preconditioners.md shows the table."""


def choose_coarsening(facts: CoarseningFacts) -> CoarseningRow:
    """The first row of the table that holds."""
    return next(row for row in ROWS if row.holds(facts))


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

    M is Hermitian if A is, and positive definite if A is. If the values of A are known, the hierarchy is set up from
    them on the host. If they are traced, or differ among the systems of a batch, unknowns are coarsened as for unit
    coefficients on the same pattern, and all values are computed in the library. For "classical" in JAX's programs on a
    CPU the host sets up the hierarchy in each run, and applies it.

    Args:
        near_nullspace: vectors that A nearly maps to zero, on the first axis: `(k, n)`, or `(k, points, unknowns per
            point)`, such as `rigid_motions(points)` for elasticity; default: constants. If given, smoothed aggregation
            is the default, except for rigid motions of a compact body, for which classical coarsening of each
            component converges faster.
        block_size: unknowns per point, which stay together; default: that of `near_nullspace`, else 1.
        coarsening: "classical", by strong couplings with extended+i interpolation, for equations whose coefficients may
            jump anywhere; "smoothed-aggregation"; "aggregation", which stores less and takes more iterations, with
            corrections times 1.6. Default: "classical" for known values that are Hermitian or those of an M-matrix,
            else "smoothed-aggregation"; docs/preconditioners.md has the table. For other coarsenings of pyamg use
            `hierarchy`.
        cycle: "V" or "W". There is no K-cycle, because its inner Krylov methods make it nonlinear.
        smoother: "chebyshev", or "jacobi", which is the default if A is known not to be Hermitian.
        degree: degree of the smoother's polynomial: the products with A before and after the coarser levels.
        strength: least strength of a coupling, relative to the strongest, by which unknowns are coarsened; default 0,
            and 0.25 for "classical" (0.7 for graphs with hubs).
        over_correction: factor of corrections by coarser levels; default 1, for "aggregation" 1.6.
        max_levels, max_coarse: largest number of levels (20), and of unknowns on the coarsest one (300), unless it
            cannot be coarsened further. It is solved with a dense (pseudo-)inverse.
        precision: "single" computes on all levels but the coarsest in single precision where A is in double precision:
            two thirds of the memory and of the time, and as many iterations.
        hierarchy: a `MultilevelSolver` of pyamg for A, whose levels are used.
        pattern: for an A whose values are not known: a known matrix with the same pattern, whose values replace unit
            coefficients; or a preconditioner of this kind, of which the aggregates or splittings and all settings are
            used for the values of A.

    Raises:
        ValueError: a setting is invalid, a row with entries has a zero on the diagonal, or A could not be coarsened.
        UnsupportedOperation: the entries of A are not available.

    Stores 2 to 5 times as many numbers as A has entries, and costs 7 to 13 products with A.

    Source: Ruge and Stuben, Algebraic multigrid, in McCormick (ed.), Multigrid methods, SIAM (1987), De Sterck, Yang
    and Heys, Reducing complexity in parallel algebraic multigrid preconditioners, SIAM J. Matrix Anal. Appl. 27 (2006),
    De Sterck, Falgout, Nolting and Yang, Distance-two interpolation for parallel algebraic multigrid, Numer. Linear
    Algebra Appl. 15 (2008), and Baker, Falgout, Kolev and Yang, Multigrid smoothers for ultraparallel computing, SIAM
    J. Sci. Comput. 33 (2011), for "classical"; Vanek, Mandel and Brezina, Algebraic
    multigrid by smoothed aggregation, Computing 56 (1996); Braess, Towards algebraic multigrid for elliptic problems of
    second order, Computing 55 (1995), for "aggregation"; Bell, Olson and Schroder, PyAMG: algebraic multigrid solvers
    in Python, JOSS 7 (2022), for its aggregates and splittings.
    """
    if coarsening == GIVEN or (coarsening is not None and hierarchy is not None):
        beside = " with a hierarchy" if hierarchy is not None else ""
        raise ValueError(
            f"coarsening={coarsening!r} was given{beside}; expected one of {', '.join(map(repr, COARSENINGS))}, or a "
            "hierarchy without it."
        )
    if coarsening == _CLASSICAL and near_nullspace is not None:
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
        if settings != AmgSettings() or any(x is not None for x in (coarsening, near_nullspace, hierarchy)):
            raise ValueError(
                "amg was asked for the pattern of a preconditioner, and for other settings; expected one of these, as "
                "the settings are those of that preconditioner."
            )
        M = updated(pattern, target.A, checked=False)
        if M is None:
            raise ValueError(
                f"pattern={pattern!r} was given for {target.A!r}, which has entries at other places, or is real where "
                "that is complex; expected a matrix with the same pattern. Leave pattern out to make a new hierarchy."
            )
        return M
    known = in_scipy(own)
    if hierarchy is not None:
        others = {"near_nullspace": near_nullspace, "pattern": pattern, "block_size": block_size, "strength": strength}
        if names := [name for name, value in others.items() if value is not None]:
            raise ValueError(f"amg was asked for a hierarchy, and for {', '.join(names)}; expected one of these.")
        return _of_hierarchy(own, target, known, hierarchy, settings)
    columns, block_size = near_nullspace_columns(near_nullspace, own.shape[0], own.dtype, block_size)
    order = nearer_order(own, block_size)
    columns = columns if columns is None or order is None else columns[order]
    given = None if pattern is None else _known_pattern(pattern, own)
    if isinstance(known, sp.csr_array):  # A pattern adds nothing to known values.
        return _of_known(own, target, known, settings, coarsening is None, order, columns, block_size)
    hermitian, fixed = (False, None) if given is None else hermitian_and_double(given, "amg")
    if coarsening is None:
        facts = CoarseningFacts(fixed is not None, hermitian, columns is not None, block_size > 1)
        settings = replace(settings, coarsening=choose_coarsening(facts).coarsening)
    if own.shape[0] <= settings.max_coarse or settings.max_levels == 1 or own.systems == 0:
        return inverted(own, target, settings)
    sparse = sparse_form(own)
    if fixed is not None:
        components = components_for(fixed, None, block_size) if hermitian and settings.is_classical else None
        if components is not None:
            sparse, target = entries_within(sparse, components), target_within(target, components)
            components = components if order is None else components[order]
        levels = coarsened(rows_in(fixed, order), settings, hermitian, columns, block_size, components)
        tentative = [level.tentative for level in levels if level.tentative is not None]
    elif settings.is_classical and AppliedByHost.serves(sparse):
        return _by_host(sparse, settings)
    else:
        tentative = list(tentative_of(reordered_matrix(sparse, order).structure, settings, columns, block_size))
    return on_pattern(sparse, target, placed_at(tentative, sparse), settings, order)


def _by_host(own: SparseMatrix, settings: AmgSettings) -> Preconditioner:
    cycle = AppliedByHost.of(own, settings, _cycle_on_host)
    costs = numbers_stored(cycle), 10 * own.nnz, own.nnz
    return Preconditioner(cycle, "amg", None, *costs, settings.pairs(), "set up by the host in each run")


def _cycle_on_host(A: SparseMatrix, settings: AmgSettings) -> Operator:
    given: Any = dict(settings.pairs())
    made: Any = amg
    inner: Operator = made(A, **given).inner
    return inner


def _of_known(
    own: Matrix,
    target: Target,
    known: sp.csr_array,
    settings: AmgSettings,
    chooses: bool,
    order: np.ndarray | None,
    columns: np.ndarray | None,
    block_size: int,
) -> Preconditioner:
    """Set up from known values; if `chooses`, by the table, or by smoothed aggregation if that coarsening fails."""
    hermitian, wide = hermitian_and_double(known, "amg")
    components = None
    if hermitian and (chooses or settings.is_classical):
        components = components_for(wide, columns if chooses else None, block_size)
        components = components if components is None or order is None else components[order]
    wide = rows_in(wide, order)

    def made(coarsening: str, reason: str | None = None) -> Preconditioner:
        chosen = replace(settings, coarsening=coarsening)
        levels = coarsened(wide, chosen, hermitian, columns, block_size, components)
        M = of_levels(own, target, levels, chosen, hermitian, order)
        return M if reason is None else replace(M, reason=reason)

    if not chooses:
        return made(settings.coarsening)
    m_matrix = not hermitian and is_m_matrix(known)
    vectors, several = columns is not None, block_size > 1
    row = choose_coarsening(CoarseningFacts(True, hermitian, vectors, several, components is not None, m_matrix))
    try:
        return made(row.coarsening, row.reason)
    except ValueError:
        if row.coarsening == _SMOOTHED:
            raise
    return made(_SMOOTHED, f"{_SMOOTHED}, as classical coarsening failed")


def _of_hierarchy(matrix: Matrix, target: Target, known: Any, hierarchy: Any, settings: AmgSettings) -> Preconditioner:
    """Use the levels of a pyamg hierarchy; for a traced A, a batch, or other values only its prolongations."""
    if not getattr(hierarchy, "levels", None):
        raise TypeError(f"hierarchy={hierarchy!r} was given; expected a MultilevelSolver of pyamg.")
    levels = levels_of_pyamg(hierarchy)
    if levels[0].A.shape != matrix.shape:
        raise ValueError(f"hierarchy is of a matrix of shape {levels[0].A.shape}; expected {matrix.shape}, that of A.")
    if not isinstance(known, sp.csr_array) or not _is_close(known, levels[0].A):
        sparse = sparse_form(matrix)
        prolongations = [level.P for level in levels if level.P is not None]
        return on_pattern(sparse, target, placed_at(prolongations, sparse), settings)
    hermitian, wide = hermitian_and_double(known, "amg")
    hermitian = hermitian and all(
        level.R is None or (level.P is not None and _is_close(level.R, adjoint(level.P)) and is_hermitian(below.A))
        for level, below in pairwise(levels)
    )
    return of_levels(matrix, target, [levels[0]._replace(A=wide), *levels[1:]], settings, hermitian)


def _is_close(A: sp.csr_array, B: Any) -> bool:
    difference = sp.csr_array(A - B)
    return bool(abs(difference).max() <= 1e-12 * abs(A).max()) if difference.nnz else True


def _known_pattern(pattern: Any, A: Matrix) -> sp.csr_array:
    known = in_scipy(entries_of(as_operator(pattern)))
    if not isinstance(known, sp.csr_array) or known.shape != A.shape:
        raise ValueError(f"pattern={pattern!r} was given; expected a known matrix of shape {A.shape}.")
    if known.dtype.kind == "c" and A.dtype.kind != "c":
        raise ValueError("pattern is a complex matrix, and A is real; expected a real one.")
    return known
