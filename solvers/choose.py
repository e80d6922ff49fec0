"""The automatic choice: the facts of a system, the table from facts to methods, and the explanation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import scipy.sparse as sp

from ..sparse import (
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
from ..sparse.analysis.analysis import Analysis, analyse_anew, analysis_of, on_its_grid, with_declared
from ..sparse.analysis.symmetry import CHOSEN
from ..sparse.operators.checks import products_agree, with_facts
from ..sparse.operators.concrete import as_matrix, is_known
from ..sparse.tracing.engine.limits import entries_at_most
from .cost import (
    ANALYSIS,
    DOUBT,
    FactorCost,
    cost_on_grid,
    estimated_cost,
    expected_cost,
    factor_cost,
    have_room,
    is_unmatched,
    matrix_cost,
)
from .diagonal import DOMINANT
from .factors.band import may_be_narrow, narrow
from .factors.early import factors_now
from .factors.sparse import providers_of
from .factors.superlu import LEAST
from .methods.direct import FastDirect
from .methods.method import Method
from .methods.registry import METHODS, find_method
from .preconditioners.choose import pays_unseen
from .preconditioners.multigrid.couplings import couples_neighbours
from .read.system import System

FAST = FastDirect()
SMALL_FUNCTION = 5000  # unknowns up to which an eager solve with a function takes less time than tracing it saves
MOST_ENTRIES = 64  # per unknown, of a function that is traced in order to choose
_LEAST_GRID = 256  # grid unknowns from which a fast solver is considered
_LEAST_FOUND = 1000  # likewise where the host could factorise it, for a matrix whose grid is unknown
BAND = 4  # off-diagonals up to which cyclic reduction costs no more than a few iterations
BAND_TO_COMPILE = 2  # likewise where the reduction is a part of the program: for 4 it compiles in ten seconds
_LITTLE = 0.25  # fraction of a work bound that counting the work of factors may cost
_LEAST_EASY = 1000  # unknowns from which factors take longer than a few iterations


@dataclass(eq=False)
class Facts:
    """Facts for the table of the automatic choice.

    Attributes:
        system: for which a method is chosen.
        preconditioned: did the user give a preconditioner?
        many: will many solves with A follow?
        calls_host: may a compiled function call the host in each run, as it does to raise?
    """

    system: System
    preconditioned: bool = False
    many: bool = False
    calls_host: bool = False
    untraced: str | None = None  # why a function could not be traced

    @property
    def A(self) -> Operator:
        """A without `matrix_offset`."""
        return self.system.A.without_offset

    @property
    def unknowns(self) -> int:
        return self.system.layout.size

    @property
    def is_cut(self) -> bool:
        """Are vectors known to be spread over several devices? No device then holds all of A, or solves alone."""
        cut = self.system.cut
        return cut is not None and bool(cut.all_names)

    @property
    def is_dense(self) -> bool:
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
        if not (self.many or self.system.compiled or self.is_cut or self.unknowns > SMALL_FUNCTION):
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
        matrix = self.matrix
        if isinstance(self.A, CutRows | RowCutMatrix):
            return analysis_of(self.A)
        if matrix is not None and matrix.analysis is None:  # it was made for the choice
            matrix = matrix if not self.A.declared else with_declared(matrix, self.A.declared)
            self.__dict__["matrix"] = matrix  # the analysis has a weak reference to it
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
        system = self.system
        is_concrete = not system.compiled and system.bk.is_concrete(system.b)
        return is_concrete and self.unknowns > 0 and self.is_known and not self.is_cut

    @cached_property
    def while_compiling(self) -> bool:
        """Can it be factorised while tracing? For a known sparse matrix that multigrid does not suit."""
        system, A = self.system, self.A
        if not system.compiled or not isinstance(A, SparseMatrix) or self.entries is None or not self.unknowns:
            return False
        if self.is_cut or not self.is_known:
            return False
        if system.A.offset or not (system.bk.in_program() if system.bk.has_pure_arrays else system.bk.compiled()):
            return False  # Under a transformation the matrices of single lanes are not accessible.
        return not self._suits_multigrid(A)

    @cached_property
    def in_each_run(self) -> bool:
        """Can the host factorise a sparse matrix of traced values in each run of a program? Not where multigrid suits
        it, or is tried on large grids.
        """
        system, A = self.system, self.matrix
        if not system.compiled or not isinstance(A, SparseMatrix) or self.is_known or self.is_cut or not self.unknowns:
            return False
        if system.A.offset or not system.bk.sets_up_by_host():
            return False
        return not (self._suits_multigrid(A) or pays_unseen(A))

    def _suits_multigrid(self, A: SparseMatrix) -> bool:
        return couples_neighbours(on_its_grid(A)) and self.symmetric and self.maybe_definite

    @cached_property
    def factors_on_host(self) -> bool:
        """Can the host factorise it, and solve, also from a compiled function?"""
        if self.on_host:
            return True
        return self.calls_host and ((self.while_compiling and self.system.bk.can_rescue()) or self.in_each_run)

    @cached_property
    def fast(self) -> Operator | None:
        """Factors of the fast direct solver, if it applies to this matrix."""
        system = self.system
        suits = self.unknowns >= _LEAST_GRID and not system.A.offset and (system.null is None or system.both)
        if self.preconditioned or not suits or not isinstance(self.matrix, SparseMatrix):
            return None
        looks = self.system.compiled or self.unknowns >= _LEAST_FOUND
        matrix = on_its_grid(self.matrix) if looks else self.matrix
        if len(matrix.in_shape) < 2:
            return None
        try:
            return factors_now(replace(system, A=matrix), FAST)
        except (UnsupportedOperation, NonlinearError):
            return None

    @cached_property
    def banded(self) -> bool:
        """Is it banded, and not a case for factors on the host, which are quicker?"""
        found, system = self.matrix, self.system
        if self.preconditioned or system.A.offset or not isinstance(found, SparseMatrix) or not self.unknowns:
            return False
        transforming = system.bk.is_eager and system.bk.compiled()  # the matrices of all lanes are then unknown
        if self.on_host or self.is_cut or transforming or not may_be_narrow(found):
            return False
        return narrow(found).width <= (BAND if self.is_known else BAND_TO_COMPILE)

    @cached_property
    def symmetric(self) -> bool:
        """Is it Hermitian enough for an iteration, as far as is known now?"""
        if self.analysis is not None:
            return self.analysis.seems_hermitian
        system = self.system
        return isinstance(self.A, FunctionOperator) and products_agree(self.A, system.layout.systems, system.like)

    @cached_property
    def is_unmatched(self) -> bool:
        known: Any = None if self.analysis is None else self.analysis.known
        single = known[0] if isinstance(known, tuple) and known else known
        return single is not None and is_unmatched(single)

    @property
    def complex_symmetric(self) -> bool:
        """Is it complex, and close enough to its transpose for an iteration, as far as is known now?"""
        if self.analysis is None or self.system.A.dtype.kind != "c":
            return False
        relative = self.analysis.asymmetry_without_conjugation
        return relative is not None and relative < CHOSEN

    @property
    def is_singular(self) -> bool:
        """Are null vectors known? Then factors are made in several attempts."""
        return self.system.null is not None

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
        """Cost of the same factors, counted, which takes longer: for cases where the estimate does not decide."""
        is_sparse = isinstance(self.matrix, SparseMatrix) and self.unknowns > 0
        return self._cost_by(factor_cost) if is_sparse else self.estimated_cost

    def _cost_by(self, cost: Callable[[sp.csr_array], FactorCost]) -> FactorCost | None:
        known = None if self.analysis is None else self.analysis.known
        single = known[0] if isinstance(known, tuple) and known else known
        if single is None or self.matrix is None:
            return None
        return cost(sp.csr_array(single)).times(self.matrix.systems or 1)

    def factors_take_at_most(self, work: float) -> bool:
        """Do factors of the known matrix take at most this work? Counted only where no estimate decides."""
        about, entries = self.estimated_cost, self.entries
        if about is None:
            return False
        decided = not work / DOUBT < about.work < work * DOUBT
        if decided or entries is None or ANALYSIS * entries > _LITTLE * work or self.cost is None:
            return about.work <= work
        return self.cost.work <= work

    @cached_property
    def may_fall_back(self) -> bool:
        """May the host factorise it where an iteration fails, because its factors fit into memory?

        Eagerly this is decided when one has failed. Matrices that are spread over devices are not gathered there.
        """
        if self.is_cut:
            return False
        if self.matrix is None:
            small = self.unknowns <= SMALL_FUNCTION
            return small and isinstance(self.A, FunctionOperator) and not self.system.compiled
        asked_later = not (self.many or self.system.is_implicit)
        return asked_later or not self.unknowns or have_room(self.matrix)


SMALL = 1000  # unknowns up to which a dense factorisation is the fastest and safest method
FEW = 300  # unknowns of a sparse matrix whose factors take less time than its analysis
MANY_SOLVES = 2e9  # work of factors that are worth it for many solves, a quarter of a second
ONE_SOLVE = 3000  # work per stored entry of factors that take no longer than a good iteration
IN_EACH_RUN = 1e10  # likewise of factors in each run of a program, where a hierarchy takes ten seconds to compile
AFFORDED = 3e10  # work of factors that are worth it where no iteration is known to be safe, some seconds


class Row(NamedTuple):
    """One line of the table.

    Attributes:
        known: the condition, in words.
        holds: the condition as a function.
        method: its name.
        preconditioner: the kind to use where the user gives none; "auto" has a table of its own.
        why: the reason, in words.
    """

    known: str
    holds: Callable[[Facts], bool]
    method: str
    preconditioner: str | None
    why: str


def _factors_at_most(facts: Facts, work: float) -> bool:
    if facts.preconditioned or not facts.factors_on_host:
        return False
    few = facts.entries is not None and facts.unknowns <= FEW and work > 0
    return few or facts.factors_take_at_most(work)


def _cheap(facts: Facts) -> bool:
    if facts.entries is None or (facts.is_singular and facts.symmetric):
        return False
    most = ONE_SOLVE * facts.entries
    return _factors_at_most(facts, max(most, IN_EACH_RUN) if facts.system.compiled and facts.in_each_run else most)


ROWS = (
    Row(
        f"a dense matrix of at most {SMALL} unknowns",
        lambda f: f.is_dense and f.unknowns <= SMALL and not f.preconditioned,
        "direct", None, "factors of LAPACK cost no more than an iteration, and always work",
    ),
    Row(
        "values known, on a grid, and a sum of matrices along its axes",
        lambda f: f.fast is not None,
        "fast-direct", None, "transforms along the axes solve it at once",
    ),
    Row(
        f"`prepare`, on the host: factors take at most {MANY_SOLVES:.0e} units of work",
        lambda f: f.many and _factors_at_most(f, MANY_SOLVES),
        "scipy-direct", None, "sparse factors are made once and serve many solves",
    ),
    Row(
        "symmetric, its diagonal of one sign and at least 1.02 times the rest of its row everywhere",
        lambda f: f.is_easy,
        "CG", "auto", "scaled by its dominant diagonal, A needs few iterations",
    ),
    Row(
        f"not on the host: a matrix of at most {BAND} diagonals beside the main one in a narrow order, of "
        f"{BAND_TO_COMPILE} if its values are not known",
        lambda f: f.banded,
        "banded-direct", None, "cyclic reduction solves it at once",
    ),
    Row(
        f"in a compiled function: a known sparse matrix of at most {SMALL} unknowns that multigrid does not suit",
        lambda f: f.while_compiling and f.unknowns <= SMALL and not f.preconditioned,
        "direct", None, "factors of LAPACK are made once, while the function is compiled, and always work",
    ),
    Row(
        f"on the host: factors take at most {ONE_SOLVE} units of work per stored entry, in each run of a program "
        f"{IN_EACH_RUN:.0e}, or {FEW} unknowns, and A is not known to be both singular and symmetric",
        _cheap,
        "scipy-direct", None, "sparse factors cost no more than an iteration, and always work",
    ),
    Row(
        "a matrix, symmetric, its diagonal of one sign, and not known to be indefinite",
        lambda f: f.shows_entries and f.symmetric and f.maybe_definite,
        "CG", "auto", "conjugate gradients suit definite matrices",
    ),
    Row(
        f"on the host: any other matrix whose factors take at most {AFFORDED:.0e} units of work",
        lambda f: _factors_at_most(f, AFFORDED),
        "scipy-direct", None, "no iteration is known to be safe for A",
    ),
    Row(
        "a matrix, symmetric",
        lambda f: f.shows_entries and f.symmetric and not f.preconditioned,
        "MINRES", None, "MINRES takes indefinite matrices",
    ),
    Row(
        "a function without a matrix that is symmetric for random vectors",
        lambda f: f.matrix is None and f.symmetric,
        "CG", None, "the function shows its products only",
    ),
    Row(
        "a matrix, complex, and symmetric without conjugation",
        lambda f: f.complex_symmetric and not f.preconditioned,
        "COCR", "auto", "with one product in each step, COCR takes half the time of methods for general matrices",
    ),
    Row(
        "a matrix",
        lambda f: f.shows_entries,
        "biCG-stab(2)", "auto", "biCG-stab(2) takes any matrix, but needs a preconditioner",
    ),
    Row("nothing of that", lambda f: True, "biCG-stab(2)", None, "A shows its products only"),
)  # fmt: skip
"""The first row that holds decides."""


class MethodChoice(NamedTuple):
    """Chosen method, default preconditioner, and fallback.

    Attributes:
        method: for the system.
        preconditioner: its kind, to be made of `matrix`.
        fallback: the method to try where that fails.
        factors: the factorisation, if it was made in order to choose the method.
        matrix: the entries of A, where they are known or were traced; else A.
        row: index of the table row that decided.
        facts: on which the choice depends.
    """

    method: Method
    preconditioner: str | None
    fallback: Method | None
    factors: Operator | None
    matrix: Operator
    row: int
    facts: Facts

    def explain(self) -> Explanation:
        row, facts = ROWS[self.row], self.facts
        chosen = _best_of(find_method(row.method), facts).name
        method = chosen if row.preconditioner is None or facts.preconditioned else f"{chosen}, preconditioned"
        passed = tuple(row.known for row in ROWS[: self.row])
        fallback = None if self.fallback is None else self.fallback.name
        return Explanation(_system(facts), passed, row.known, method, row.why, fallback)

    @property
    def source(self) -> Operator:
        """The operator for preconditioners: A itself where traced entries would lie on each of several devices."""
        facts = self.facts
        return facts.A if facts.is_cut and facts.matrix is not None and not facts.is_known else self.matrix

    @property
    def why(self) -> str:
        """The reason, in words."""
        return auto_reason(ROWS[self.row].why)

    @property
    def is_last(self) -> bool:
        """Is it the last row of the table?"""
        return self.row == len(ROWS) - 1

    def next(self) -> MethodChoice:
        """Choice by the next row that holds, if this one cannot be used; not for the last row."""
        return _from_row(self.facts, self.row + 1)


def choose(system: System, preconditioned: bool = False, many: bool = False, calls_host: bool = False) -> MethodChoice:
    """Choose a method; one that takes a preconditioner if the user gives one.

    Args:
        preconditioned, many, calls_host: see `Facts`.
    """
    return _from_row(Facts(system, preconditioned, many, calls_host), 0)


def _from_row(facts: Facts, first: int) -> MethodChoice:
    system = facts.system
    number = next(i for i in range(first, len(ROWS)) if ROWS[i].holds(facts))
    row = ROWS[number]
    method = _best_of(find_method(row.method), facts)
    can_fail = method.name not in ("direct", "scipy-direct")
    superlu = METHODS["scipy-direct"]
    behind = superlu if method.name == "sparse-direct" else _best_of(superlu, facts)
    fallback = behind if can_fail and facts.may_fall_back else None
    kind = None if facts.preconditioned else row.preconditioner
    factors = facts.fast if method == FAST else None
    matrix = system.A if facts.matrix is None else facts.matrix
    return MethodChoice(method, kind, fallback, factors, matrix, number, facts)


def _best_of(method: Method, facts: Facts) -> Method:
    """A faster library of sparse factors in place of SuperLU, where one is installed and A is not small.

    Libraries order A + Aᵀ, which fills in where equations and unknowns are in different orders: of bayer10 Pardiso
    makes 30 times the entries of SuperLU, in 60 times the time, and inaccurately.
    """
    suits = method.name == "scipy-direct" and facts.unknowns >= LEAST and isinstance(facts.matrix, SparseMatrix)
    if not suits or len(providers_of(None)) == 1:
        return method
    if facts.is_unmatched and facts.estimated_cost is not None and facts.estimated_cost.work <= MANY_SOLVES:
        return method
    return METHODS["sparse-direct"]


@dataclass(frozen=True)
class Explanation:
    """Explanation of an automatic choice; hashable.

    Attributes:
        system: description of the system.
        passed: rows of the table that do not hold.
        row: the row that holds.
        method: its method and preconditioner.
        why: the reason for it.
        fallback: the method that is tried where this one fails.
    """

    system: str
    passed: tuple[str, ...]
    row: str
    method: str
    why: str
    fallback: str | None

    def __str__(self) -> str:
        lines = [self.system, *(f"  no   {known}" for known in self.passed), f"  yes  {self.row}"]
        lines.append(f"-> {self.method}: {self.why}")
        if self.fallback is not None:
            lines.append(f"   if it fails: {self.fallback}")
        return "\n".join(lines)


def auto_reason(why: str) -> str:
    """The reason for a method in words, with `why` of a row of the table."""
    return f'"auto" chose it: {why}'


def _system(facts: Facts) -> str:
    A, count = facts.A, facts.system.layout.systems
    systems = "" if count == 1 else f", {count} systems at once"
    what = f"{A!r}{systems}"
    if facts.matrix is not None and facts.matrix is not A:
        what += f", traced to {facts.matrix!r}{_for_random_values(facts)}"
    elif facts.untraced is not None:
        what += f", which {facts.untraced}"
    return what


def _for_random_values(facts: Facts) -> str:
    """Describe the facts of a function whose coefficients are arguments of the program that is traced now."""
    if facts.is_known or not isinstance(facts.A, FunctionOperator):
        return ""
    symmetric = "Hermitian" if facts.A.dtype.kind == "c" else "symmetric"
    if facts.symmetric:
        properties = symmetric + (", diagonal of one sign" if facts.maybe_definite else ", no sign of being definite")
    else:
        properties = "complex symmetric" if facts.complex_symmetric else f"not known to be {symmetric}"
    return f"; for random values of the arguments: {properties}"
