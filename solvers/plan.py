"""`Plan`: how to solve with one matrix, made once: its rungs, the methods that are tried in turn, and why.

A rung solves the systems that earlier rungs have not. Chosen iterations get as many steps as factors would cost; the
next rung then continues from their x, or makes the factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from ..backends.profile.spans import span
from ..sparse import FunctionOperator, Matrix, NonlinearError, Operator, SparseMatrix, UnsupportedOperation
from ..sparse.analysis.analysis import analysed, release
from ..sparse.operators.concrete import as_matrix
from .choose import Explanation, MethodChoice, choose
from .cost import ANALYSIS, FactorCost, expected_cost, matrix_cost
from .factors.early import entries_for, factors_now, factors_of_known
from .factors.inverse import DirectInverse, singularity_of
from .factors.sparse import provider_note
from .log import log_choice, timed_set_up
from .methods.bicgstab import BiCGStab
from .methods.cg import CG
from .methods.direct import Direct, FastDirect, ScipyDirect, SparseDirect
from .methods.method import Method, precision_for
from .methods.registry import METHODS
from .preconditioners import Preconditioner, to_preconditioner
from .preconditioners.amg.amg import amg
from .preconditioners.multigrid.cycle import Level
from .preconditioners.operators import DiagonallyScaled, Either, Recast
from .preconditioners.pipeline import constant_linear_part
from .read.arguments import Request
from .read.requirements import check_requirements, refuse_infinite_entries, refuse_preconditioner, refuse_unsuited
from .read.system import KnownNull, System, with_constants
from .results.devices import warn_of_transfers
from .results.messages import Background, MadeBy

AS_GIVEN = "it was asked for"
MOST_ITERATIONS = 40  # iterations with multigrid on grids, which takes 6 to 15 where it suits the matrix
LEAST = 50  # iterations that any preconditioner may take
_ENTRY = 8  # operations on dense blocks in the time of one entry in a product, which memory decides
_VECTORS = 4  # entries per unknown that the other operations of an iteration correspond to
_CALLS = 1e5  # work of the calls of an iteration, for systems of any size
_SET_UP = 2e7  # likewise of factors
_EXCHANGES = 2  # times the work, where rows may have to be exchanged
_SINGULAR = 20  # likewise, where null vectors are known, which factors have to exclude
_WORTH = 1.25  # times the iterations so far: with fewer to come it is not worth going on
_LARGEST = 1 << 30  # iterations: budgets are 32-bit integers in compiled programs
_FACTORISE = (Direct, FastDirect, ScipyDirect, SparseDirect)  # a solve applies nothing but their factors
_MOST_ON_HOST = 200  # iterations with classical AMG, in a compiled function


@dataclass(frozen=True)
class ClassicalAMG:
    """Makes classical AMG of A, to take the place of multigrid on grids, in its precision; hashable."""

    precision: str | None

    @classmethod
    def like(cls, M: Operator | None) -> ClassicalAMG:
        return cls(dict(M.settings).get("precision") if isinstance(M, Preconditioner) else None)

    def __call__(self, A: Operator) -> Preconditioner:
        """
        Raises:
            ValueError, UnsupportedOperation, NonlinearError: the entries of A cannot be found, or not coarsened.
        """
        A = constant_linear_part(A)
        with analysed(A):
            return amg(A, coarsening="classical", precision=self.precision).on_grid_of(A)


class Rung(NamedTuple):
    """One method of a plan.

    Attributes:
        method: of this rung.
        M: its preconditioner or factors, if made before the solve; a rung that goes on has those of the previous one.
        steps: iterations of the whole solve after which the next rung takes over; None: the limit of the system.
        goes_on: does it continue from x, for systems whose steps are used up? Else it solves unconverged
            systems from the start.
        make: makes M of A when the rung is reached.
        is_counted: are its steps as many as factors cost, counted when the rung is reached?
    """

    method: Method
    M: Operator | None = None
    steps: int | None = None
    goes_on: bool = False
    make: ClassicalAMG | None = None
    is_counted: bool = False


@dataclass(frozen=True, eq=False)
class Plan:
    """How to solve with one matrix.

    Attributes:
        A: the matrix as an operator on rows, without a constant offset.
        null: its null vectors; None where each solve looks for them.
        rungs: tried in this order.
        why: the choice of the first one, explained to the holder of a prepared solver; None where it was given.
        reason: the same in words.
        source: the user's A.
        found: by number of a rung, its M or counted steps, made when it was reached.
    """

    A: Operator
    null: KnownNull | None
    rungs: tuple[Rung, ...]
    why: Explanation | None = None
    reason: str = AS_GIVEN
    source: Any = None
    found: dict[int, Any] = field(default_factory=dict)

    @property
    def method(self) -> Method:
        return self.rungs[0].method

    @property
    def M(self) -> Operator | None:
        return self.rungs[0].M

    @cached_property
    def inverse(self) -> Callable[[Any], Any] | None:
        """Application of existing regular factors to NumPy rows `(1, n)`; None where solves do more."""
        A, (method, M, *_) = self.A, self.rungs[0]
        if not isinstance(M, DirectInverse) or singularity_of(M) is not None:
            return None
        if not (A.bk.on_host and method.__class__ in _FACTORISE and isinstance(A, Matrix)):
            return None
        if A.shape[0] != A.shape[1] or A.shape[0] < 2 or (self.null is not None and self.null.projection is not None):
            return None
        ours = M.bk is A.bk and M.dtype == A.dtype and A.systems is None and M.systems is None
        return M.apply if ours else None

    @cached_property
    def background(self) -> Background:
        """Background of messages about a solve by the factors of the first rung."""
        return Background((MadeBy(self.method.name, self.method, None),))

    def with_M(self, M: Operator | None) -> Plan:
        return replace(self, rungs=(self.rungs[0]._replace(M=M), *self.rungs[1:]))

    def transpose(self, A: Operator) -> Plan:
        """The plan for A, the transpose of its matrix: M or the factors transposed, the null vectors of A.

        These are the conjugates of those that the matrix and its adjoint share. Where it has others they are looked for
        in each solve.

        Raises:
            UnsupportedOperation: the transpose of M is not known.
        """
        M, null = None if self.M is None else self.M.transpose(), self.null
        if null is not None and null.projection is not None:
            shared = null.both or self.method.needs_hermitian
            null = KnownNull(null.projection.conj(), null.both) if shared else None
        return replace(self.with_M(M), A=A, null=null, source=None, found={})

    def from_rung(self, number: int) -> Plan:
        """The plan of the rung that made x."""
        rung = self.rungs[number]
        M = self.found.get(number) if rung.make is not None else self.M if rung.goes_on else rung.M
        return replace(self, rungs=(Rung(rung.method, M),))

    def learned(self) -> Plan:
        """With classical AMG from the start, where an earlier solve had to switch to it."""
        M = self.found.get(1) if len(self.rungs) > 1 and self.rungs[1].make is not None else None
        if M is None:
            return self
        first = Rung(self.method, M, self.rungs[1].steps)
        return replace(self, rungs=(first, *self.rungs[2:]), found={})

    def steps_of(self, number: int) -> int | None:
        """Iterations of the whole solve at which the rung ends; None: the limit."""
        rung = self.rungs[number]
        return self.found.get(number) if rung.is_counted else rung.steps


def plans(
    request: Request,
    system: System,
    method: Method | None,
    previous: Operator | None = None,
    many: bool = False,
    ready: bool = False,
) -> Iterator[Plan]:
    """Yield the plans for a system: one with the named method, or one for each row of the table that holds.

    A later plan is for a system that turns out not to suit the ones before, because some values are known only when it
    is solved.

    Args:
        previous: the preconditioner or factors of another matrix, whose work is kept where their kind can.
        many: will many solves with A follow? Then factors are made now, unless solves are compiled as a whole.
        ready: are factors made now in any case?

    Raises:
        UnsupportedOperation: none can be used.
        ValueError, TypeError: the system does not suit the method or the preconditioner.
    """
    A = system.A if system.given is None else system.given.A
    plan = Plan(A.without_offset, KnownNull(system.null, system.both), (), source=system.source)
    if system.is_empty:
        yield replace(plan, rungs=(Rung(method or METHODS["CG"]),))
        return
    refuse_infinite_entries(system, request.on_failure)
    kind = request.preconditioner
    automatic = kind is None or (ready and isinstance(kind, str) and kind.strip().lower() == "auto")
    if method is not None:
        own = with_constants(system, method, system.A, request)
        first = _first_rung(own, method, kind, system.A, system.A, previous, None, many, ready)
        yield replace(plan, null=KnownNull(own.null, own.both), rungs=_rungs(own, first, None, system.A, many))
        return
    calls_host = request.on_failure in ("raise", "warn")
    with span("set-up", "choose") as done:
        choice = choose(system, not automatic, many and ready, calls_host)
        done(choice, method=choice.method.name)
    while True:
        try:
            made = _chosen(plan, choice, request, system, kind if not automatic else choice.preconditioner, previous,
                           many, ready)  # fmt: skip
        except UnsupportedOperation:
            if choice.is_last:
                raise
        else:
            log_choice(choice)
            yield made
            if choice.is_last:
                return
        choice = choice.next()


def _chosen(
    plan: Plan,
    choice: MethodChoice,
    request: Request,
    system: System,
    kind: Any,
    previous: Operator | None,
    many: bool,
    ready: bool,
) -> Plan:
    own = with_constants(system, choice.method, choice.matrix, request)
    first = _first_rung(
        own, choice.method, kind, choice.source, choice.matrix, previous, choice.factors, many, ready, choice.is_last
    )
    rungs = _rungs(own, first, choice.fallback, choice.matrix, many)
    release(choice.matrix)
    why = choice.explain() if ready else None  # it describes A; a single solve gives the reason only
    return replace(plan, null=KnownNull(own.null, own.both), rungs=rungs, why=why, reason=choice.why)


def _first_rung(
    system: System,
    method: Method,
    kind: Any,
    source: Operator,
    matrix: Operator,
    previous: Operator | None,
    factors: Operator | None,
    many: bool,
    ready: bool,
    is_last: bool = True,
) -> Rung:
    """The method with its preconditioner, made of `source`, or its factors, where these are made before the solve."""
    bk, M = system.bk, None
    if kind is not None:
        refuse_preconditioner(method, kind)
        if previous is not None and isinstance(kind, Preconditioner):
            older = "made for other values of A"
            kind = replace(kind, note=older if kind.note in (None, older) else f"{kind.note}; {older}")
        place = bk, system.layout, system.like
        M = timed_set_up(
            f"preconditioner of {method.name}",
            lambda: to_preconditioner(kind, source, *place, previous, precision_for(method), system.spread),
        )
    (check_requirements if is_last else refuse_unsuited)(system, method, M)
    if method.keeps_setup:
        M = factors or _factors(system, method, matrix, previous, many, ready)
    if system.cut is not None:
        warn_of_transfers(system, method, M)
    return Rung(method, M)


def _factors(
    system: System, method: Method, matrix: Operator, previous: Operator | None, many: bool, ready: bool
) -> Operator | None:
    """Factors that are made before the solve; None where each solve makes its own."""
    early = method.needs_known or (method.names_provider and not system.compiled)
    whole = system.bk.compiles_solves and not method.on_host  # a solve is one program, which makes them
    if ready or early or (many and not whole):
        made = timed_set_up(f"factors of {method.name}", lambda: factors_now(system, method, previous))
    elif system.compiled:
        made = factors_of_known(system, method)
    else:
        return None
    return entries_for(system, method, matrix) if made is None and not ready else made


def _rungs(system: System, first: Rung, fallback: Method | None, matrix: Operator, many: bool) -> tuple[Rung, ...]:
    """The chosen method, classical AMG after multigrid, factors, and the method again up to its limit."""
    method, M = first.method, first.M
    switches = isinstance(method, CG | BiCGStab) and is_on_grids(M)
    after, is_bound = (None, True) if fallback is None else _budget(system, method, M, matrix, many)
    ends = [n for n in (after, MOST_ITERATIONS if switches else None) if n is not None]
    rungs = [first._replace(steps=min(ends, default=None))]
    if switches:
        most = None if after is None else max(after, 2 * MOST_ITERATIONS)
        most = MOST_ITERATIONS + _MOST_ON_HOST if system.compiled else most
        rungs.append(Rung(method, None, most, goes_on=True, make=ClassicalAMG.like(M)))
    if not is_bound:
        rungs.append(Rung(method, goes_on=True, is_counted=True))
    if fallback is not None:
        rungs.append(Rung(fallback))
        if after is not None and not system.compiled:  # where no factors can be made
            rungs.append(Rung(method, goes_on=True))
    return tuple(rungs)


def is_on_grids(M: Operator | None) -> bool:
    """Is M multigrid for a single matrix, with a grid as its finest level and coarser ones below it?"""
    if not isinstance(M, Preconditioner) or M.kind != "multigrid" or M.systems is not None:
        return False
    inner: Any = M.inner
    while isinstance(inner, DiagonallyScaled | Recast | Either):
        inner = inner.first if isinstance(inner, Either) else inner.inner
    return isinstance(inner, Level) and inner.kept is None


def _budget(
    system: System, method: Method, M: Operator | None, matrix: Operator, many: bool
) -> tuple[int | None, bool]:
    """Iterations that the chosen method gets before factors, and whether these cost as much.

    Eagerly the first budget costs as much as counting the work of factors, which is mostly not needed then. In a
    compiled function, and for `many` solves, that work is estimated at once.
    """
    work = work_of_iteration(system, method, M, matrix)
    if work is None or method.factorises or not isinstance(matrix, SparseMatrix) or system.several:
        return None, True
    if not (system.is_implicit or many):
        return _rounded(max(ANALYSIS * matrix.nnz / work, LEAST)), False
    return _rounded(iterations_for(expected_cost(matrix), system, method, work)), True


def work_of_iteration(system: System, method: Method, M: Operator | None, matrix: Operator) -> float | None:
    """Work of an iteration for all systems, in the unit of `FactorCost.work`; None if unknown."""
    if not isinstance(matrix, Matrix):
        return None
    of_M = 0 if M is None else M.work if isinstance(M, Preconditioner) else None
    if of_M is None:
        return None
    products, systems = max(method.products_per_step, 1), system.layout.systems
    times = systems if matrix.systems is None else 1  # M and the entries of several matrices are counted for all
    vectors = _VECTORS * systems * matrix.shape[0]
    return _CALLS + _ENTRY * products * (times * (matrix.nnz + of_M) + vectors)


def iterations_for(cost: FactorCost, system: System, method: Method, work: float) -> float:
    """Iterations that take as long as factors."""
    times = _SINGULAR if system.null is not None else 1 if method.needs_definite else _EXCHANGES
    solves = _ENTRY * cost.numbers * system.layout.systems
    return max((_SET_UP + times * cost.work + solves) / work, LEAST)


def counted_steps(system: System, method: Method, M: Operator | None, after: int) -> int | None:
    """Iterations that take no longer than factors, whose cost is counted here; None: up to the limit of the method.

    No more than `after`, the iterations so far, unless it is worth going on.
    """
    try:
        matrix = as_matrix(system.A.without_offset)
    except (UnsupportedOperation, NonlinearError):
        return None
    work = work_of_iteration(system, method, M, matrix)
    if work is None:
        return None
    most = iterations_for(matrix_cost(matrix), system, method, work)
    return int(min(most, _LARGEST)) if most > _WORTH * after else after


def _rounded(iterations: float) -> int:
    """Up to 2^k or 3 * 2^k, so that similar matrices share their compiled programs."""
    power = 1 << max(int(min(iterations, _LARGEST)) - 1, 1).bit_length()
    return power * 3 // 4 if iterations <= power * 3 / 4 else power


def lasting(A: Operator) -> Operator:
    """The operator that later solves use as A: in JAX a program."""
    if not isinstance(A, FunctionOperator):
        return A
    return A.as_container() if A.bk.compiles_solves else A.lasting()


def explained(plan: Plan, notes: tuple[str, ...]) -> str:
    """Explain the choice of the method, its preconditioner and its fallback."""
    method, M = plan.method, plan.M
    if plan.why is None:
        given = f"{plan.A!r}\n-> {method.name}: the method was given{provider_note(M)}"
        return "\n   ".join((given, *notes))
    factors = next((i for i, rung in enumerate(plan.rungs) if i and not rung.goes_on), 0)
    after = plan.steps_of(factors - 1) if factors else None
    bound = "" if after is None else f"\n   after {after} iterations, which take as long: {plan.why.fallback}"
    with_what = f"\n   with {M!r}" if isinstance(M, Preconditioner) else ""
    return "\n   ".join((f"{plan.why}{bound}{with_what}{provider_note(M)}", *notes))
