"""Algebraic multigrid: set-up from known values, on the pattern of traced ones, or by the host in each run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from ....sparse import Composed, Matrix, Operator, SparseMatrix, Turned, UnsupportedOperation, as_operator
from ....sparse.analysis.facts import is_m_matrix
from ....sparse.analysis.symmetry import is_hermitian
from ....sparse.formats.compressed import CsrStructure
from ....sparse.operators.concrete import in_scipy
from ...diagonal import DiagonalOperator
from ...memory import Memory
from ..multigrid.coarsest import hermitian_and_double
from ..multigrid.cycle import numbers_stored
from ..operators import Preconditioner
from ..pipeline import Target, entries_of, of_operator
from .build_cycle import as_preconditioner, inverted, known_cycle, sparse_form
from .components import components_for, near_nullspace_columns
from .hierarchy import coarsened, from_tentative, tentative_of, updated
from .levels import adjoint, levels_of_pyamg, nearer_order, permuted_matrix, permuted_rows
from .settings import COARSENINGS, GIVEN, AmgSettings, CoarseningFacts, choose_coarsening


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
        conflict = " with a hierarchy" if hierarchy is not None else ""
        raise ValueError(
            f"coarsening={coarsening!r} was given{conflict}; expected one of {', '.join(map(repr, COARSENINGS))}, or a "
            "hierarchy without it."
        )
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
    fixed = None
    if pattern is not None:
        fixed = in_scipy(entries_of(as_operator(pattern)))
        if not isinstance(fixed, sp.csr_array) or fixed.shape != own.shape:
            raise ValueError(f"pattern={pattern!r} was given; expected a known matrix of shape {own.shape}.")
        if fixed.dtype.kind == "c" and own.dtype.kind != "c":
            raise ValueError("pattern is a complex matrix, and A is real; expected a real one.")
    if isinstance(known, sp.csr_array):  # A pattern adds nothing to known values.
        return _of_known(own, target, known, settings, coarsening is None, order, columns, block_size)
    hermitian, components = False, None
    if fixed is not None:
        hermitian, fixed, components = _with_components(fixed, settings, coarsening is None, order, columns, block_size)
    if coarsening is None:
        vectors, several = columns is not None, block_size > 1
        facts = CoarseningFacts(fixed is not None, hermitian, vectors, several, components is not None)
        settings = replace(settings, coarsening=choose_coarsening(facts).coarsening)
    if own.shape[0] <= settings.max_coarse or settings.max_levels == 1 or own.systems == 0:
        return inverted(own, target, settings)
    sparse = sparse_form(own)
    if fixed is not None:
        levels = coarsened(permuted_rows(fixed, order), settings, hermitian, columns, block_size, components)
        tentative = [level.tentative for level in levels if level.tentative is not None]
    elif settings.is_classical and sparse.systems is None and own.bk.compiled() and own.bk.sets_up_by_host():
        inner = AppliedByHost.of(sparse, settings)
        costs = numbers_stored(inner), 10 * own.nnz, own.nnz
        return Preconditioner(inner, "amg", None, *costs, settings.pairs(), "set up by the host in each run")
    else:
        tentative = tentative_of(permuted_matrix(sparse, order).structure, settings, columns, block_size)
    return from_tentative(sparse, target, tentative, settings, order)


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
    hermitian, wide, components = _with_components(known, settings, chooses, order, columns, block_size)
    wide = permuted_rows(wide, order)

    def set_up(settings: AmgSettings) -> Preconditioner:
        levels = coarsened(wide, settings, hermitian, columns, block_size, components)
        cycle = known_cycle(levels, settings, hermitian, target)
        return as_preconditioner(cycle, own, target, settings, hermitian, order)

    if not chooses:
        return set_up(settings)
    m_matrix = not hermitian and is_m_matrix(known)
    vectors, several = columns is not None, block_size > 1
    row = choose_coarsening(CoarseningFacts(True, hermitian, vectors, several, components is not None, m_matrix))
    try:
        return replace(set_up(replace(settings, coarsening=row.coarsening)), reason=row.reason)
    except ValueError:
        if row.coarsening == AmgSettings.coarsening:
            raise
    return replace(set_up(settings), reason=f"{settings.coarsening}, as classical coarsening failed")


def _with_components(
    A: sp.csr_array,
    settings: AmgSettings,
    chooses: bool,
    order: np.ndarray | None,
    columns: np.ndarray | None,
    block_size: int,
) -> tuple[bool, sp.csr_array, np.ndarray | None]:
    """`hermitian_and_double`, and the components that classical coarsening separates, if it may be chosen."""
    hermitian, wide = hermitian_and_double(A, "amg")
    if not hermitian or not (chooses or settings.is_classical):
        return hermitian, wide, None
    return hermitian, wide, components_for(wide, columns if chooses else None, block_size, order)


def _of_hierarchy(matrix: Matrix, target: Target, known: Any, hierarchy: Any, settings: AmgSettings) -> Preconditioner:
    """Use the levels of a pyamg hierarchy; for a traced A, a batch, or other values only its prolongations."""
    if not getattr(hierarchy, "levels", None):
        raise TypeError(f"hierarchy={hierarchy!r} was given; expected a MultilevelSolver of pyamg.")
    levels = levels_of_pyamg(hierarchy)
    if levels[0].A.shape != matrix.shape:
        raise ValueError(f"hierarchy is of a matrix of shape {levels[0].A.shape}; expected {matrix.shape}, that of A.")
    if not isinstance(known, sp.csr_array) or not _is_close(known, levels[0].A):
        return from_tentative(sparse_form(matrix), target, [level.P for level in levels[:-1]], settings)
    hermitian, wide = hermitian_and_double(known, "amg")
    hermitian = hermitian and all(
        level.R is None or (level.P is not None and _is_close(level.R, adjoint(level.P)) and is_hermitian(below.A))
        for level, below in pairwise(levels)
    )
    cycle = known_cycle([levels[0]._replace(A=wide), *levels[1:]], settings, hermitian, target)
    return as_preconditioner(cycle, matrix, target, settings, hermitian)


def _is_close(A: sp.csr_array, B: Any) -> bool:
    difference = sp.csr_array(A - B)
    return bool(abs(difference).max() <= 1e-12 * abs(A).max()) if difference.nnz else True


_CYCLES: Memory[Operator] = Memory(4)  # of two matrices, with their transposes


@dataclass(eq=False, repr=False)
class AppliedByHost(Turned, Composed):
    """The cycle of a matrix of traced values, which the host sets up and applies in each run of a compiled program.

    Jumps of the coefficients of a run decide which unknowns are coarse, so that no program can hold the hierarchy.
    NumPy sets it up in each run, as outside programs, and caches the last ones by their values. Splittings of unit
    coefficients, which a program can hold, take 10 times the iterations where coefficients jump by 1e4 in blocks (1.6
    times the run time with the hierarchy at hand), do not converge in 300 where they jump by 1e6 between cells, and
    their programs take 3 to 5 times as long to compile.

    Attributes:
        values: values in row order, `(nnz,)`.
        digest: their digest, int32 `(4,)` (128 bits in numbers that every precision has), computed by the host.
    """

    parts = ("values", "digest")

    bk: Backend
    values: Array
    digest: Array
    structure: CsrStructure
    settings: AmgSettings
    transposed: bool = False
    conjugated: bool = False

    def _settle(self) -> None:
        self.shape, self.dtype = self.structure.shape, np.dtype(self.bk.dtype(self.values))
        self.systems, self.is_container, self.tracked = None, True, False  # type: ignore[misc]

    @classmethod
    def of(cls, A: SparseMatrix, settings: AmgSettings) -> AppliedByHost:
        bk, entries = A.bk, A.structure.entries()
        structure = CsrStructure.by_rows(entries.rows, entries.cols, A.shape)
        values = bk.constant(A.entry_arrays())
        returns = [((4,), np.dtype(np.int32))]
        (digest,) = bk.by_host(_digest, lambda v: [bk.zeros(*returns[0], v)], returns, values)
        return cls(bk, values, digest, structure, settings)

    def product(self, x: Array) -> Array:
        if not self.bk.sets_up_by_host():
            raise UnsupportedOperation(
                "amg(coarsening='classical') for traced values is set up and applied by the host, which programs with "
                "on_failure='nan', or for several devices, do not call. Use 'smoothed-aggregation', or pattern=M with "
                "an M that was made outside, or make it where on_failure is 'nan', too."
            )
        returns = [(tuple(map(int, x.shape)), self.dtype)]
        image: Array = self.bk.by_host(self._on_host, self._in_program, returns, self.values, self.digest, x)[0]
        return image

    def turned(self, *, transposed: bool, conjugated: bool) -> AppliedByHost:
        return replace(self, transposed=transposed, conjugated=conjugated)

    def _on_host(self, values: np.ndarray, digest: np.ndarray, x: np.ndarray) -> list[np.ndarray]:
        with get_backend("numpy").errstate():
            return [self._cycle(values, digest, self.transposed).apply(np.array(x))]

    def _cycle(self, values: np.ndarray, digest: np.ndarray, transposed: bool) -> Operator:
        key = digest.tobytes(), self.structure, self.settings, self.dtype, transposed
        cycle = _CYCLES.get(key)
        if cycle is None:
            if transposed:
                cycle = self._cycle(values, digest, False).transpose()
            else:
                A = SparseMatrix.build(get_backend("numpy"), self.structure, (np.array(values),))
                cycle = _cycle_or_scaling(A, self.settings)
            _CYCLES.keep(key, cycle)
        return cycle

    def _in_program(self, values: Array, digest: Array, x: Array) -> list[Array]:
        # Jacobi's scaling, for programs that leave this process.
        diagonal = self.structure.diagonal(self.bk, (values,), None)
        return [x / self.bk.where(diagonal != 0, diagonal, 1)]


def _digest(values: np.ndarray) -> list[np.ndarray]:
    return [np.frombuffer(blake2b(np.ascontiguousarray(values).data, digest_size=16).digest(), np.int32)]


def _cycle_or_scaling(A: SparseMatrix, settings: AmgSettings) -> Operator:
    """The cycle of a known matrix; Jacobi's scaling if it cannot be built."""
    build: Any = amg
    try:
        cycle: Operator = build(A, **dict(settings.pairs())).inner
    except ValueError:  # such as NaN, or a zero on the diagonal
        diagonal = A.diagonals()
        some = np.isfinite(diagonal) & (diagonal != 0)
        return DiagonalOperator(A.bk, np.where(some, 1 / np.where(some, diagonal, 1), 1))
    return cycle
