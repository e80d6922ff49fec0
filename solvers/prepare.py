"""`prepare`: set-up that depends on A alone, done once for many solves."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np

from ..backends import Array, choose_backend, get_on_failure, of_libraries, without_compilers
from ..backends.on_failure import run_for
from ..sparse import FunctionOperator, Operator, batch_shape, to_operator
from ..sparse.analysis.analysis import release
from ..sparse.convert import owned
from .attempt import Attempt
from .iteration.method import Method, precision_for
from .iteration.monitor import Callback, monitor_of
from .iteration.progress import Progress
from .known_plan import KnownPlan
from .log import DEBUG, log, log_choice, timed_set_up
from .methods.direct.refinement import Refinement
from .methods.direct.superlu import HostFactors
from .methods.registry import METHODS, find_method, is_auto
from .preconditioners import Preconditioner, to_preconditioner
from .results.result import SolveResult
from .setup.axis import takes_vectors
from .setup.choose import Explanation, choose
from .setup.factors import factors_now
from .setup.make_problem import make_problem, with_constants
from .setup.other_names import with_our_names
from .setup.problem import KnownNull, Problem, Request
from .setup.requirements import check_requirements, refuse_infinite_entries, refuse_preconditioner
from .solve import solve
from .unusual_arrays import run_where_spread


@dataclass(frozen=True, eq=False, repr=False)
class PreparedSolver:
    """A system whose matrix is known, made by `prepare`; immutable, and in JAX a container of arrays.

    It can be pickled, unless it holds a function that pickle cannot store. What `scipy-direct` has factorised is stored
    as the matrix, and factorised again by who reads it.

    Attributes:
        A: the matrix as an operator.
        method: the method that solves.
        preconditioner: M, or the factorisation of A, which serves the transposed matrix too; None.
    """

    A: Operator
    method: Method
    preconditioner: Operator | None
    _fallback: Method | None
    _request: Request  # what `prepare` was told, with the choices made; its b is like the right-hand sides
    _why: Explanation | None = None  # of the method, where it was chosen here
    _null: KnownNull | None = None

    def solve(
        self,
        b: Any,
        x0: Any = None,
        *,
        axis: int | None = None,
        history: bool = False,
        progress: Progress = False,
        callback: Callback | None = None,
        time_limit: float | None = None,
    ) -> SolveResult:
        """Solve `A x = b`; also inside compiled functions, differentiated and vectorised.

        Args:
            b: as `linear_solve` takes it; for a function A of the shape of `like`.
            x0: initial guess, zero if None.
            axis: as for `linear_solve`; if None that of `prepare`.
            history, progress, callback, time_limit: as for `linear_solve`.

        Raises:
            NotConverged, Diverged, ValueError, TypeError: as `linear_solve`.

        Cost: the method's, without setting it up.
        """
        monitored = not (progress is False and callback is None and time_limit is None)
        asked = (progress, callback, time_limit) if monitored else None
        return without_compilers(_solve_prepared)(self, b, x0, axis, history, asked)

    solve._torchdynamo_disable = True  # type: ignore[attr-defined]  # as of linear_solve

    @cached_property
    def _plan(self) -> KnownPlan | None:
        return KnownPlan.of(
            self.A, self.method, self.preconditioner, self._null or KnownNull(None, False), self._request
        )

    def explain(self) -> str:
        """Why this method: what is known about A, the lines of the table of docs/choosing.md up to the one that holds,
        the preconditioner, and what is tried if it fails.
        """
        if self._why is None:
            return f"{self.A!r}\n-> {self.method.name}: the method was given"
        with_what = "" if not isinstance(self.preconditioner, Preconditioner) else f"\n   with {self.preconditioner!r}"
        return f"{self._why}{with_what}"

    def update(self, A: Any, *, args: Sequence[Any] = ()) -> PreparedSolver:
        """A solver for another matrix of the same kind: the method stays, preconditioner and factors are made anew.

        Kinds that can (`amg`) keep what depends on the pattern of A only. A preconditioner that was handed to `prepare`
        as an operator or a function stays as it is, which its `note` tells.
        """
        request = replace(self._request, A=A, args=args)
        found = without_compilers(_prepare)(request, self.preconditioner)
        return found if is_auto(request.method) else replace(found, _fallback=self._fallback, _why=self._why)

    def __copy__(self) -> PreparedSolver:
        return self

    def __deepcopy__(self, memo: Any) -> PreparedSolver:
        return self

    def __reduce__(self) -> tuple[Callable[..., PreparedSolver], tuple[Any, ...]]:
        again = isinstance(self.preconditioner, HostFactors)
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        try:
            content = pickle.dumps(found | ({"preconditioner": None} if again else {}), pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError) as error:  # of functions, each of the three
            raise pickle.PicklingError(
                f"This solver cannot be pickled: {error}. A function must be one that pickle finds by its name, at the "
                "top of a module, and JAX's and TensorFlow's cannot be stored at all: prepare with the matrix of the "
                "function, matrix_from_function(f, like)[0]."
            ) from error
        return _unpickled, (content, again)

    def __repr__(self) -> str:
        with_what = "" if self.preconditioner is None else f", {self.preconditioner!r}"
        return f"<PreparedSolver: {self.method.name} for {self.A!r}{with_what}>"


def _unpickled(content: bytes, again: bool) -> PreparedSolver:
    solver = PreparedSolver(**pickle.loads(content))
    solver.A.bk.register(PreparedSolver, _flatten, _restore)  # in the process that reads it
    return solver.update(solver.A) if again else solver


def _solve_prepared(
    solver: PreparedSolver, b: Any, x0: Any, axis: int | None, history: bool, monitored: tuple[Any, Any, Any] | None
) -> SolveResult:
    """No method of the solver, as what is left alone is remembered for ever."""
    plain = type(b) is np.ndarray and x0 is None and axis is None and history is False and monitored is None
    if plain and solver._plan is not None and (found := solver._plan.solve(b)) is not None:
        if log.isEnabledFor(DEBUG):
            log.debug("%s", found.message)
        return found
    monitor = None if monitored is None else monitor_of(*monitored)
    request = replace(
        solver._request, A=solver.A, b=b, x0=x0, axis=solver._request.axis if axis is None else axis,
        preconditioner=None, history=history, monitor=monitor,
    )  # fmt: skip
    return run_for(request.on_failure, run_where_spread, lambda given: _solved_again(solver, given), request)


def _solved_again(solver: PreparedSolver, request: Request) -> SolveResult:
    problem = make_problem(request, solver.method, solver._null)
    if problem.A.dtype != solver.A.dtype:
        raise ValueError(
            f"This solver was prepared for {solver.A.dtype}; got a right-hand side that makes it {problem.A.dtype}. "
            "Cast it, or prepare with a `like` of that dtype."
        )
    if problem.is_empty:
        return solve(Attempt.of(request, problem, solver.method, None), request.b)
    M = solver.preconditioner
    if solver.A.bk is not problem.bk:
        problem = replace(problem, null=_moved(problem.null, problem, "The null space"))
        M = M if solver.method.on_host else _moved(M, problem, "The preconditioner or factorisation")
    check_requirements(problem, solver.method, M)
    return solve(Attempt.of(request, problem, solver.method, M, solver._fallback), request.b)


def _moved(A: Operator | None, problem: Problem, name: str) -> Operator | None:
    """In the problem's library: what was made of NumPy's arrays is a constant to every other."""
    if A is None or A.bk is problem.bk:
        return A
    return to_operator(problem.bk, A, None, A.dtype, (), problem.like, name)


@with_our_names
def prepare(
    A: Any,
    like: Any,
    *,
    method: str | Method = "auto",
    preconditioner: Any = "auto",
    rtol: float | Array | None = None,
    atol: float | Array = 0.0,
    max_iter: int | None = None,
    args: Sequence[Any] = (),
    batch_ndim: int = 0,
    axis: int | None = None,
    nullspace: Any = "auto",
    matrix_offset: complex | None = None,
    on_failure: str | None = None,
) -> PreparedSolver:
    """Do once what solves with the same A have in common, A as it is now: matrices are copied.

    That is: checks and conversions, the test of linearity, the choice of the method, the preconditioner, and for
    direct methods the factorisation. `prepare(A, b).solve(b)` gives what `linear_solve(A, b)` gives with the same
    method and preconditioner.

    Args:
        A, args, batch_ndim, matrix_offset, nullspace, rtol, atol, max_iter, on_failure: as for `linear_solve`.
        like: an array of the shape and dtype of the right-hand sides.
        axis: as for `linear_solve`, of `like` and of the right-hand sides whose `solve` is not told another one.
        method: a name, a method object, or "auto".
        preconditioner: as for `linear_solve`; "auto" takes what suits A where the method is "auto", else none.

    Returns:
        PreparedSolver: `solve(b, x0=None)` as often as needed, `update(A)` for other numbers.

    Raises:
        ValueError, TypeError, NoBackendFound, NonlinearError, UnsupportedOperation: as `linear_solve`.

    Cost: see the method and the preconditioner, and a copy of the entries. What a function reads (arrays that it closes
    over, a LinearOperator's own) is not copied, and must not be changed between the solves. Factors made where values
    are known serve compiled functions too; a host factorisation (scipy-direct) of a matrix that is computed inside a
    compiled function is made in each solve.
    """
    request = Request(
        A=A, b=like, args=args, method=method, preconditioner=preconditioner, rtol=rtol, atol=atol,
        max_iter=max_iter, batch_ndim=batch_ndim, axis=axis, nullspace=nullspace, matrix_offset=matrix_offset,
        on_failure=get_on_failure() if on_failure is None else on_failure,
    )  # fmt: skip
    return without_compilers(_prepare)(request)


def prepare_for_one(A: Any, like: Any, **settings: Any) -> PreparedSolver:
    """As `prepare`, with the choices of `linear_solve`: for one solve, whose parts are to be looked at apart."""
    return without_compilers(_prepare)(Request(A=A, b=like, **settings), None, False)


def _prepare(request: Request, previous: Operator | None = None, many: bool = True) -> PreparedSolver:
    return run_for(request.on_failure, run_where_spread, lambda given: _set_up(given, previous, many), request, False)


def _set_up(request: Request, previous: Operator | None, many: bool) -> PreparedSolver:
    """`previous` is the preconditioner for other values of A; `many`: are many solves to come?"""
    request = replace(request, A=owned(request.A, choose_backend(request.b, request.A, *of_libraries(request.args))))
    method = None if is_auto(request.method) else find_method(request.method, request.A)
    kind, fallback, factors, why = request.preconditioner, None, None, None
    # A preconditioner has no say in the library, and vectors in rows or columns are set up alike.
    axis = -1 if request.axis is None and takes_vectors(request.A) else request.axis
    problem = make_problem(replace(request, preconditioner=None, axis=axis), method)
    if problem.is_empty:
        return _set_up_empty(request, problem, method, many)
    refuse_infinite_entries(problem, request.on_failure)
    automatic, A = isinstance(kind, str) and kind.strip().lower() == "auto", problem.A
    if method is None:
        calls_host = request.on_failure in ("raise", "warn")
        choice = choose(problem, not (automatic or kind is None), many, calls_host)
        method, fallback, factors, A = choice.method, choice.fallback, choice.factors, choice.matrix
        log_choice(choice)
        why = choice.explain()
        kind = choice.preconditioner if automatic else kind
    elif automatic:  # as in `linear_solve`, a method that is named gets what it is given
        kind = None
    problem = with_constants(problem, method, A, request)
    refuse_preconditioner(method, kind)
    if previous is not None and isinstance(kind, Preconditioner):
        older = "made for other values of A"
        kind = replace(kind, note=older if kind.note in (None, older) else f"{kind.note}; {older}")
    if kind is None:
        M = None
    else:
        M = timed_set_up(
            f"preconditioner of {method.name}",
            lambda: to_preconditioner(
                kind, A, problem.bk, problem.layout, problem.like, previous, precision_for(method)
            ),
        )
    check_requirements(problem, method, M)
    if automatic and isinstance(M, Preconditioner):
        kind = M.kind  # for `update`: what it was that suited A
    if isinstance(method, Refinement):
        M = factors or timed_set_up(f"factors of {method.name}", lambda: factors_now(problem, method))
    release(A)
    problem.bk.register(PreparedSolver, _flatten, _restore)
    again = request if factors is not None else replace(request, method=method, preconditioner=kind)
    resolved = replace(again, A=None, args=())  # what was seen in the values of A is looked for again by `update`
    null = KnownNull(problem.null, problem.both)
    return PreparedSolver(_prepared(problem), method, M, fallback, resolved, why, null)


def _set_up_empty(request: Request, problem: Problem, method: Method | None, many: bool) -> PreparedSolver:
    """Where `like` has no systems: one matrix is made ready for any number of them, others for none."""
    bk = problem.bk
    if takes_vectors(request.A) and not batch_shape(request.A, bk) and problem.layout.size:
        layout = problem.layout if problem.given is None else problem.given.layout
        one = bk.zeros((layout.size,), problem.A.dtype, problem.like)
        found = _set_up(replace(request, b=one, axis=-1, batch_ndim=0), None, many)
        as_given = {name: getattr(request, name) for name in ("b", "axis", "batch_ndim")}
        return replace(found, _request=replace(found._request, **as_given))
    method = method or METHODS["CG"]
    bk.register(PreparedSolver, _flatten, _restore)
    resolved = replace(request, A=None, args=(), method=method, preconditioner=None)
    return PreparedSolver(_prepared(problem), method, None, None, resolved, None, KnownNull(None, True))


def _prepared(problem: Problem) -> Operator:
    """The operator that later solves take for A: without the offset, which they add, and as a program in JAX."""
    A = problem.given.A if problem.given is not None else problem.A
    A = A.without_offset
    if not isinstance(A, FunctionOperator):
        return A
    return A.as_container() if problem.bk.compiles_solves else A.lasting()


def _flatten(solver: PreparedSolver) -> tuple[tuple[Any, ...], Any]:
    request = solver._request
    null, both = solver._null or (None, False)
    M = solver.preconditioner
    factors = M if isinstance(M, HostFactors) else None  # no arrays of a library: another solver is another program
    parts = (solver.A, None if factors is not None else M, request.b, request.rtol, request.atol, null)
    again = replace(request, b=None, rtol=None, atol=None)
    return parts, (solver.method, solver._fallback, again, solver._why, both, factors)


def _restore(static: Any, parts: Sequence[Any]) -> PreparedSolver:
    method, fallback, request, why, both, factors = static
    A, M, like, rtol, atol, null = parts
    request = replace(request, b=like, rtol=rtol, atol=atol)
    return PreparedSolver(A, method, M if factors is None else factors, fallback, request, why, KnownNull(null, both))
