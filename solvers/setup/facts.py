"""Facts of a system, each found when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import scipy.sparse as sp

from ...sparse import (
    CutRows,
    DenseOperator,
    FunctionOperator,
    Matrix,
    NonlinearError,
    Operator,
    RowCutMatrix,
    SparseMatrix,
    UnsupportedOperation,
)
from ...sparse.analysis.analysis import Analysis, analyse_anew, analysis_of, on_its_grid, with_declared
from ...sparse.analysis.random_values import with_facts
from ...sparse.analysis.symmetry import CHOSEN
from ...sparse.operators.by_record import products_agree
from ...sparse.operators.concrete import as_matrix, is_known
from ...sparse.tracing.engine.limits import entries_at_most
from ..block_tridiagonal.band import may_be_narrow, narrow
from ..diagonal import DOMINANT
from ..methods.direct.fast import FastDirect
from ..preconditioners.multigrid.from_matrix import couples_neighbours
from ..preconditioners.multigrid.runtime_choice import pays_unseen
from .expected_cost import cost_on_grid, expected_cost
from .factors import factors_now
from .fill import ANALYSIS, DOUBT, FactorCost, estimated_cost, factor_cost, have_room, matrix_cost
from .problem import Problem

FAST = FastDirect()
SMALL_FUNCTION = 5000  # unknowns up to which an eager solve with a function takes less time than tracing it saves
MOST_ENTRIES = 64  # per unknown, of a function that is traced in order to choose
_LEAST_GRID = 256  # grid unknowns from which a fast solver is considered
_LEAST_FOUND = 1000  # likewise where the host could factorise it, of a matrix that does not know its grid
BAND = 4  # diagonals beside the main one, up to which cyclic reduction takes no longer than some iterations
BAND_TO_COMPILE = 2  # likewise where the reduction is a part of the program: for 4 it compiles in ten seconds
_LITTLE = 0.25  # of the work in question, that may be spent on counting that of factors
_LEAST_EASY = 1000  # unknowns from which factors take longer than a few iterations


@dataclass(eq=False)
class Facts:
    """Facts for the table of the automatic choice.

    Attributes:
        problem: the system.
        preconditioned: did the user give a preconditioner?
        many: are many solves with A to come?
        calls_host: may a compiled function call the host in each run, as it does to raise?
    """

    problem: Problem
    preconditioned: bool = False
    many: bool = False
    calls_host: bool = False
    untraced: str | None = None  # why a function could not be traced

    @property
    def A(self) -> Operator:
        """A without `matrix_offset`."""
        return self.problem.A.without_offset

    @property
    def unknowns(self) -> int:
        """Unknowns of one system."""
        return self.problem.layout.size

    @property
    def is_cut(self) -> bool:
        """Are vectors spread over several devices, as far as is known? No device then has all of A, or solves alone."""
        cut = self.problem.cut
        return cut is not None and bool(cut.all_names)

    @property
    def is_dense(self) -> bool:
        """Is the matrix dense?"""
        return isinstance(self.A, DenseOperator)

    @cached_property
    def matrix(self) -> Matrix | None:
        """The matrix; a function is traced where that is likely to pay."""
        A = self.A
        if isinstance(A, Matrix):
            return A
        if not isinstance(A, FunctionOperator):
            self.untraced = "shows its products only"
            return None
        if not (self.many or self.problem.compiled or self.is_cut or self.unknowns > SMALL_FUNCTION):
            self.untraced = f"has at most {SMALL_FUNCTION} unknowns, and one solve takes less time than to trace it"
            return None
        try:
            with entries_at_most(MOST_ENTRIES * max(self.unknowns, 1)):  # a transform is traced to a dense matrix
                return with_facts(as_matrix(A), A)
        except (UnsupportedOperation, NonlinearError) as error:
            self.untraced = f"cannot be traced: {error}"
            return None

    @property
    def shows_entries(self) -> bool:
        """Is there a matrix, or one whose rows are cut over several devices?"""
        return self.matrix is not None or isinstance(self.A, CutRows | RowCutMatrix)

    @cached_property
    def analysis(self) -> Analysis | None:
        """What is found out about the entries."""
        matrix = self.matrix
        if isinstance(self.A, CutRows | RowCutMatrix):
            return analysis_of(self.A)
        if matrix is not None and matrix.analysis is None:  # one that was made in order to choose
            matrix = matrix if not self.A.declared else with_declared(matrix, self.A.declared)
            self.__dict__["matrix"] = matrix  # which the analysis refers to weakly
            analyse_anew(matrix)
        return None if matrix is None else analysis_of(matrix)

    @cached_property
    def is_known(self) -> bool:
        """Are the values concrete, also while tracing? Without converting them."""
        if isinstance(self.matrix, SparseMatrix):
            return is_known(self.matrix)
        return self.analysis is not None and self.analysis.known is not None

    @cached_property
    def entries(self) -> int | None:
        """Number of entries of a single sparse matrix."""
        one = isinstance(self.matrix, SparseMatrix) and self.matrix.systems is None
        return self.matrix.nnz if one else None  # type: ignore[union-attr]

    @cached_property
    def on_host(self) -> bool:
        """Can the host factorise the matrix now, with quick solves?"""
        problem = self.problem
        is_concrete = not problem.compiled and problem.bk.is_concrete(problem.b)
        return is_concrete and self.unknowns > 0 and self.is_known and not self.is_cut

    @cached_property
    def while_compiling(self) -> bool:
        """Can it be factorised while tracing? For a known sparse matrix that multigrid does not suit."""
        problem, A = self.problem, self.A
        if not problem.compiled or not isinstance(A, SparseMatrix) or self.entries is None or not self.unknowns:
            return False
        if self.is_cut or not self.is_known:
            return False
        if problem.A.offset or not (problem.bk.in_program() if problem.bk.has_pure_arrays else problem.bk.compiled()):
            return False  # a transformation by itself does not tell the matrices of its lanes
        return not self._suits_multigrid(A)

    @cached_property
    def in_each_run(self) -> bool:
        """Can the host factorise a sparse matrix of traced values in each run of a program? Not where multigrid suits
        it, or is tried on large grids.
        """
        problem, A = self.problem, self.matrix
        if not problem.compiled or not isinstance(A, SparseMatrix) or self.is_known or self.is_cut or not self.unknowns:
            return False
        if problem.A.offset or not problem.bk.sets_up_by_host():
            return False
        return not (self._suits_multigrid(A) or pays_unseen(A))

    def _suits_multigrid(self, A: SparseMatrix) -> bool:
        return couples_neighbours(on_its_grid(A)) and self.symmetric and self.maybe_definite

    @cached_property
    def factors_on_host(self) -> bool:
        """Can the host factorise it, and solve, also from a compiled function?"""
        if self.on_host:
            return True
        return self.calls_host and ((self.while_compiling and self.problem.bk.can_rescue()) or self.in_each_run)

    @cached_property
    def fast(self) -> Operator | None:
        """Factors of the fast direct solver, if it applies to this matrix."""
        problem = self.problem
        suits = self.unknowns >= _LEAST_GRID and not problem.A.offset and (problem.null is None or problem.both)
        if self.preconditioned or not suits or not isinstance(self.matrix, SparseMatrix):
            return None
        looks = self.problem.compiled or self.unknowns >= _LEAST_FOUND
        matrix = on_its_grid(self.matrix) if looks else self.matrix
        if len(matrix.in_shape) < 2:
            return None
        try:
            return factors_now(replace(problem, A=matrix), FAST)
        except (UnsupportedOperation, NonlinearError):
            return None

    @cached_property
    def banded(self) -> bool:
        """Is it banded, and not a case for factors on the host, which are quicker?"""
        found, problem = self.matrix, self.problem
        if self.preconditioned or problem.A.offset or not isinstance(found, SparseMatrix) or not self.unknowns:
            return False
        transforming = problem.bk.is_eager and problem.bk.compiled()  # where the matrices of all lanes are not at hand
        if self.on_host or self.is_cut or transforming or not may_be_narrow(found):
            return False
        return narrow(found).width <= (BAND if self.is_known else BAND_TO_COMPILE)

    @cached_property
    def symmetric(self) -> bool:
        """Is it as good as Hermitian for an iteration, as far as is known now?"""
        if self.analysis is not None:
            return self.analysis.seems_hermitian
        problem = self.problem
        return isinstance(self.A, FunctionOperator) and products_agree(self.A, problem.layout.systems, problem.like)

    @property
    def complex_symmetric(self) -> bool:
        """Is it complex, and as good as its transpose for an iteration, as far as is known now?"""
        if self.analysis is None or self.problem.A.dtype.kind != "c":
            return False
        relative = self.analysis.asymmetry_without_conjugation
        return relative is not None and relative < CHOSEN

    @property
    def is_singular(self) -> bool:
        """Are null vectors known? Then factors are made in several attempts."""
        return self.problem.null is not None

    @cached_property
    def is_easy(self) -> bool:
        """Symmetric, with a diagonal so large everywhere that scaled conjugate gradients take few iterations?"""
        if self.unknowns <= _LEAST_EASY or self.analysis is None or not self.analysis.dominates(DOMINANT):
            return False
        return self.symmetric and bool(self.analysis.one_sign)

    @property
    def maybe_definite(self) -> bool:
        """See `Analysis.maybe_definite`."""
        return self.analysis is not None and bool(self.analysis.maybe_definite)

    @cached_property
    def estimated_cost(self) -> FactorCost | None:
        """Cost of factors of the matrix, or of a batch, from its grid or the widths of its graph."""
        matrix = self.matrix
        if matrix is None or not self.unknowns:
            return None
        if not self.is_known:
            return expected_cost(matrix) if isinstance(matrix, SparseMatrix) else None
        if not isinstance(matrix, SparseMatrix):
            return matrix_cost(matrix)
        return cost_on_grid(matrix) or self._cost_by(estimated_cost)

    @cached_property
    def cost(self) -> FactorCost | None:
        """Cost of the same factors, counted, which takes longer: ask where the answer depends on it."""
        is_sparse = isinstance(self.matrix, SparseMatrix) and self.unknowns > 0
        return self._cost_by(factor_cost) if is_sparse else self.estimated_cost

    def _cost_by(self, cost: Callable[[sp.csr_array], FactorCost]) -> FactorCost | None:
        known = None if self.analysis is None else self.analysis.known
        one = known[0] if isinstance(known, tuple) and known else known
        if one is None or self.matrix is None:
            return None
        return cost(sp.csr_array(one)).times(self.matrix.systems or 1)

    def factors_take_at_most(self, work: float) -> bool:
        """Do factors of the known matrix take no more work than that? Where an estimate tells, they are not counted."""
        about, entries = self.estimated_cost, self.entries
        if about is None:
            return False
        decided = not work / DOUBT < about.work < work * DOUBT
        if decided or entries is None or ANALYSIS * entries > _LITTLE * work or self.cost is None:
            return about.work <= work
        return self.cost.work <= work

    @cached_property
    def may_fall_back(self) -> bool:
        """May the host factorise it where an iteration fails, as there is room in memory, by its pattern?

        Eagerly that is asked when one has failed. What is spread over devices is not gathered there.
        """
        if self.is_cut:
            return False
        if self.matrix is None:
            small = self.unknowns <= SMALL_FUNCTION
            return small and isinstance(self.A, FunctionOperator) and not self.problem.compiled
        asked_later = not (self.many or self.problem.is_implicit)
        return asked_later or not self.unknowns or have_room(self.matrix)
