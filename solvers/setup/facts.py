"""What is known about a system before it is solved, each fact found when it is first asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...sparse import (
    DenseOperator,
    FunctionOperator,
    Matrix,
    NonlinearError,
    Operator,
    SparseMatrix,
    UnsupportedOperation,
)
from ...sparse.definite import is_seen_indefinite
from ...sparse.facts import has_diagonal_of_one_sign, is_diagonally_dominant
from ...sparse.operators.by_record import products_agree
from ...sparse.row_sums import RowSums, row_sums
from ...sparse.symmetry import seems_hermitian
from ...sparse.tracing.engine.limits import entries_at_most
from ..grids.find import on_its_grid
from ..methods.direct.band import may_be_narrow, narrow
from ..methods.direct.fast import FastDirect
from ..preconditioners.choose import is_easy
from ..preconditioners.diagonal import DOMINANT
from ..preconditioners.known import as_matrix, is_known
from ..preconditioners.multigrid.from_matrix import couples_neighbours
from .factors import factors_now
from .fill import LARGE, FactorCost, diagonals_of, have_room, known_cost, matrix_cost
from .problem import Problem

FAST = FastDirect()
SMALL_FUNCTION = 5000  # unknowns up to which an eager solve with a function takes less time than tracing it saves
MOST_ENTRIES = 64  # per unknown, of a function that is traced in order to choose
_LEAST_GRID = 256  # unknowns of a grid from which looking for a fast solver pays
_LEAST_FOUND = 1000  # likewise where the host could factorise it, of a matrix that does not know its grid
BAND = 4  # diagonals beside the main one, up to which cyclic reduction takes no longer than some iterations
BAND_TO_COMPILE = 2  # likewise where the reduction is a part of the program: for 4 it compiles in ten seconds
_LEAST_EASY = 1000  # unknowns from which factors take longer than a few iterations


@dataclass(eq=False)
class Facts:
    """What the table of the automatic choice asks for.

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
    untraced: str | None = None  # why a function has no matrix here

    @property
    def A(self) -> Operator:
        """Without a constant that is added to its entries."""
        return self.problem.A.without_offset

    @property
    def unknowns(self) -> int:
        """Of one system."""
        return self.problem.layout.size

    @property
    def is_dense(self) -> bool:
        """Is it stored with all its entries?"""
        return isinstance(self.A, DenseOperator)

    @cached_property
    def matrix(self) -> Matrix | None:
        """The entries: of a matrix, or of a function that is traced, where that is likely to pay."""
        A = self.A
        if isinstance(A, Matrix):
            return A
        if not isinstance(A, FunctionOperator):
            self.untraced = "shows its products only"
            return None
        if not (self.many or self.problem.compiled or self.unknowns > SMALL_FUNCTION):
            self.untraced = f"has at most {SMALL_FUNCTION} unknowns, and one solve takes less time than to trace it"
            return None
        try:
            with entries_at_most(MOST_ENTRIES * max(self.unknowns, 1)):  # a transform is traced to a dense matrix
                return as_matrix(A)
        except (UnsupportedOperation, NonlinearError) as error:
            self.untraced = f"cannot be traced: {error}"
            return None

    @cached_property
    def _known(self) -> Any:
        return None if self.matrix is None else self.matrix.known()

    @cached_property
    def is_known(self) -> bool:
        """Are the values of the entries at hand now, or while a function is compiled? Without converting them."""
        return is_known(self.matrix) if isinstance(self.matrix, SparseMatrix) else self._known is not None

    @cached_property
    def entries(self) -> int | None:
        """How many entries one sparse matrix has, whose values are known now."""
        one = isinstance(self.matrix, SparseMatrix) and self.matrix.systems is None and self.is_known
        return self.matrix.nnz if one else None  # type: ignore[union-attr]

    @cached_property
    def rows(self) -> RowSums | None:
        """Sums over the rows of known diagonals, which need no entries row by row."""
        return None if self.matrix is None else row_sums(self.matrix)

    @cached_property
    def values(self) -> sp.csr_array | None:
        """One sparse matrix for all systems, where it is known now, or while a function is compiled."""
        return sp.csr_array(self._known) if sp.issparse(self._known) else None

    @cached_property
    def on_host(self) -> bool:
        """Can the host factorise it now, and solve with that quickly?"""
        problem = self.problem
        is_concrete = not problem.compiled and problem.bk.is_concrete(problem.b)
        return is_concrete and self.unknowns > 0 and self.is_known

    @cached_property
    def while_compiling(self) -> bool:
        """Can it be factorised while a function is compiled? A known sparse matrix, which no multigrid is made for."""
        problem, A = self.problem, self.A
        if not problem.compiled or not isinstance(A, SparseMatrix) or self.entries is None or not self.unknowns:
            return False
        if problem.A.offset or not (problem.bk.in_program() if problem.bk.has_pure_arrays else problem.bk.compiled()):
            return False  # a transformation by itself does not tell the matrices of its lanes
        return not (couples_neighbours(on_its_grid(A)) and self.symmetric and self.maybe_definite)

    @cached_property
    def factors_on_host(self) -> bool:
        """Can the host factorise it now and solve with that, also from a compiled function?"""
        return self.on_host or (self.while_compiling and self.calls_host and self.problem.bk.can_rescue())

    @cached_property
    def fast(self) -> Operator | None:
        """Factors of the fast solver on grids, if it is one for this matrix."""
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
        """Has it few diagonals, and can the host not factorise it, which is quicker?"""
        found, problem = self.matrix, self.problem
        if self.preconditioned or problem.A.offset or not isinstance(found, SparseMatrix) or not self.unknowns:
            return False
        transforming = problem.bk.is_eager and problem.bk.compiled()  # where the matrices of all lanes are not at hand
        if self.on_host or transforming or not may_be_narrow(found):
            return False
        return narrow(found).width <= (BAND if self.is_known else BAND_TO_COMPILE)

    @cached_property
    def symmetric(self) -> bool:
        """Is it as good as Hermitian, as far as can be seen now?"""
        if self.matrix is not None:
            return seems_hermitian(self.matrix)
        problem = self.problem
        return isinstance(self.A, FunctionOperator) and products_agree(self.A, problem.layout.systems, problem.like)

    @cached_property
    def is_easy(self) -> bool:
        """Symmetric, with a diagonal so large everywhere that scaled conjugate gradients take few iterations?"""
        if self.unknowns <= _LEAST_EASY or (self.rows is None and self.values is None):
            return False
        easy = is_easy(self.values) if self.rows is None else self.rows.dominates(DOMINANT)
        return easy and self.symmetric and self.one_sign

    @cached_property
    def one_sign(self) -> bool:
        """Has its diagonal one sign, but for rows of zeros, which obstacles on a grid make?"""
        if self.rows is not None:
            return self.rows.one_sign
        if self.values is not None:
            return has_diagonal_of_one_sign(self.values)
        found = self.matrix
        diagonal = None if found is None else found.bk.concrete_value(lambda: found.bk.real(found.diagonals()))
        return diagonal is not None and bool(np.all(diagonal > 0) or np.all(diagonal < 0))

    @cached_property
    def maybe_definite(self) -> bool:
        """One sign on the diagonal, and definite by proof, or as far as a few steps of Lanczos' method see."""
        if not self.one_sign:
            return False
        if self.rows is not None and self.rows.is_dominant:
            return True
        if self.values is None:  # dense, or a batch
            return True
        if self.rows is None and is_diagonally_dominant(self.values):  # by Gershgorin's circles
            return True
        return not is_seen_indefinite(self.values * np.sign(self.values.diagonal().real.sum()))

    @cached_property
    def cost(self) -> FactorCost | None:
        """Of factors of the known matrix, or those of a batch."""
        matrix = self.matrix
        if matrix is not None and matrix.systems is None and self.unknowns > LARGE and diagonals_of(matrix) is not None:
            return matrix_cost(matrix)
        known = self._known
        return None if known is None or not self.unknowns else known_cost(known)

    @cached_property
    def factors_fit(self) -> bool:
        """May the host factorise it where all else fails, as far as the pattern shows?"""
        if self.matrix is None:
            small = self.unknowns <= SMALL_FUNCTION
            return small and isinstance(self.A, FunctionOperator) and not self.problem.compiled
        cost = lambda matrix: self.cost or matrix_cost(matrix)  # noqa: E731
        return not self.unknowns or have_room(self.matrix, cost)
