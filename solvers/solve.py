"""A problem, the method chosen for it, and another one where that fails: the result that the user gets."""

from __future__ import annotations

from dataclasses import replace

from ..backends import Backend
from ..sparse import NonlinearError, Operator, UnsupportedOperation
from .attempt import Attempt, after_failure
from .derivatives.one_program import differentiated
from .derivatives.sensitivity import Sensitivity
from .iteration.method import Method
from .iteration.progress import make_report
from .iteration.status import Status
from .results.failure import apply_policy
from .results.no_solution import why_no_solution
from .results.result import SolveResult, register_result
from .setup.problem import Problem
from .setup.request import Request
from .setup.requirements import check_requirements

_SEVERAL_LIMITS = (
    "A solve with several limits (max_iter as a sequence) has no derivatives, as its x are not solutions. Give one "
    "limit for the solve that is to be differentiated."
)


def solve(
    problem: Problem, method: Method, M: Operator | None, fallback: Method | None, request: Request
) -> SolveResult:
    """The result, after what `on_failure` says.

    Args:
        method: its requirements are checked.
        M: a preconditioner, or a factorisation made before.
        fallback: what to try where the method fails, where that is known now.

    Raises:
        NotConverged, Diverged, ValueError, TypeError, UnsupportedOperation: see `linear_solve`.
    """
    bk = problem.bk
    register_result(bk)
    result = _solved(problem, method, M, request, fallback)
    # With "status" and no fallback nobody has to wait for the outcome here.
    known = not (problem.compiled or bk.compiled(result.status))
    waits = known and (fallback is not None or request.on_failure != "status")
    if not (waits and _has_converged(bk, result)):
        if waits and fallback is not None:
            result = _climbed(problem, fallback, request, result)
        result = _after_failure(problem, result, request.on_failure)
    if problem.is_tracked and not problem.is_implicit:
        sources = (problem.b, *bk.take_apart(problem.A.as_container())[0])
        return replace(result, x=bk.refuse_derivatives(result.x, _SEVERAL_LIMITS, RuntimeError, sources))
    return result


def _climbed(problem: Problem, fallback: Method, request: Request, first: SolveResult) -> SolveResult:
    """What the other method finds; where it cannot be used, the failure of the first one stands."""
    try:
        check_requirements(problem, fallback, None)
        second = _solved(problem, fallback, None, request)
    except (UnsupportedOperation, NonlinearError):
        return first
    return replace(second, method=after_failure(second.method, first.method))


def _has_converged(bk: Backend, result: SolveResult) -> bool:
    return not bk.any(result.status != int(Status.CONVERGED))


def _after_failure(problem: Problem, result: SolveResult, on_failure: str) -> SolveResult:
    """What `on_failure` says, where it is not known that all systems have converged."""
    if on_failure != "status":
        reason = why_no_solution(problem, result)
        result = result if reason is None else replace(result, _no_solution=reason)
    if problem.compiled and problem.is_implicit:  # the solve of a compiled function saw to its failure by itself
        return result
    return apply_policy(problem.bk, result, on_failure)


def _solved(
    problem: Problem, method: Method, M: Operator | None, request: Request, fallback: Method | None = None
) -> SolveResult:
    """What one method finds, with derivatives, in the user's terms; compiled and for derivatives with the fallback."""
    report = make_report(request.progress, method.name)
    attempt = Attempt(problem, method, M, request.on_failure, request.history, report, fallback)
    outcome = differentiated(attempt) if problem.is_implicit else attempt.run()
    sensitivity = Sensitivity.of(attempt, outcome) if not problem.bk.has_derivatives else None
    result = attempt.result(outcome, sensitivity)
    if problem.given is None:
        return result
    rows = outcome.x[None] if problem.several and len(problem.limits) == 1 else outcome.x
    return problem.given.restore(problem.bk, result, rows, problem.null is not None and not problem.both)
