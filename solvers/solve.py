"""Solve a problem with a method and its fallback, and make the user's result."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

from ..backends import Backend
from ..backends.on_failure import QUIET
from ..sparse import NonlinearError, UnsupportedOperation
from .attempt import Attempt, after_failure
from .derivatives.implicit import without_derivatives
from .derivatives.one_program import differentiated
from .derivatives.sensitivity import Sensitivity
from .iteration.method import Method
from .iteration.outcome import Outcome, Status
from .log import DEBUG, log
from .on_host import may_be_helped
from .results.failure import ConvergenceError, apply_policy, result_of_this_solve, warn_of_singular, with_nan
from .results.in_library import as_numpy, is_numpy_elsewhere
from .results.no_solution import why_no_solution, without_refuted
from .results.result import SolveResult, register_result
from .setup.problem import Problem
from .setup.requirements import check_requirements

_SEVERAL_LIMITS = (
    "A solve with several limits (max_iter as a sequence) has no derivatives, as its x are not solutions. Give one "
    "limit for the solve that is to be differentiated."
)


def solve(attempt: Attempt, b: Any) -> SolveResult:
    """The result in the library of b, after what `on_failure` says.

    Args:
        attempt: the requirements of its method are checked.
        b: the right-hand side as it was given.

    Raises:
        NotConverged, Diverged, ValueError, TypeError, UnsupportedOperation: see `linear_solve`.
    """
    bk, begun = attempt.problem.bk, perf_counter()
    elsewhere = not bk.on_host and is_numpy_elsewhere(attempt.problem, b)
    if elsewhere and attempt.monitor is not None:
        attempt = replace(attempt, monitor=replace(attempt.monitor, in_numpy=True))
    try:
        result = _solve(attempt)
    except ConvergenceError as error:
        if (failed := result_of_this_solve(error)) is not None:
            error.result = as_numpy(bk, failed) if elsewhere else failed
            error.result.__dict__["solve_time"] = perf_counter() - begun
        raise
    result = as_numpy(bk, result) if elsewhere else result
    result.__dict__["solve_time"] = perf_counter() - begun
    return result


def _solve(attempt: Attempt) -> SolveResult:
    problem, policy, fallback = attempt.problem, attempt.on_failure, attempt.fallback
    bk = problem.bk
    register_result(bk)
    outcome, name = _outcome(attempt), attempt.method.name
    # With "status" or "nan", no fallback and no derivatives nobody has to wait for the outcome here.
    known = not (problem.compiled or bk.compiled(outcome.status))
    outcome = _checked(problem, outcome) if known and problem.by_default else outcome
    asks = policy not in QUIET or (policy == "nan" and bk.is_concrete(problem.b))
    waits = known and (asks or fallback is not None or problem.is_implicit)
    converged = waits and _has_converged(bk, outcome)
    if waits and not converged and fallback is not None and not problem.several:
        climbed = _climbed(attempt, outcome, fallback)
        if climbed is not None:
            (attempt, outcome), name = climbed, after_failure(fallback.name, name)
    if not converged and problem.is_implicit and not problem.compiled:  # a compiled solve saw to it by itself
        outcome = without_derivatives(bk, outcome, policy, attempt.may_be_stopped)
    result = replace(_result(attempt, outcome, converged), method=name)
    if attempt.method.factorises and (waits or (known and bk.is_concrete(problem.b))):
        warn_of_singular(bk, name, outcome.singular, outcome.status == int(Status.CONVERGED))
    if not converged:
        result = _after_failure(attempt, outcome, result)
    if log.isEnabledFor(DEBUG):
        log.debug("%s", result.message)
    if problem.is_tracked and not problem.is_implicit:
        sources = (problem.b, *bk.flatten(problem.A.as_container())[0])
        return replace(result, x=bk.refuse_derivatives(result.x, _SEVERAL_LIMITS, RuntimeError, sources))
    return result


def _checked(problem: Problem, outcome: Outcome) -> Outcome:
    """Withdraw the default tolerance's allowance where it accepted an inconsistent system."""
    if problem.given is not None or problem.derived:
        return outcome
    return without_refuted(problem.bk, problem.A, problem.b, problem.rtol, problem.atol, outcome)


def _climbed(attempt: Attempt, first: Outcome, fallback: Method) -> tuple[Attempt, Outcome] | None:
    """Solve failed systems with the fallback; None if there are none, or the fallback cannot be used."""
    problem = attempt.problem
    bk, failed = problem.bk, may_be_helped(problem, first, attempt.monitor)
    if not bk.any(failed) or (attempt.monitor is not None and attempt.monitor.is_over()):
        return None
    try:
        check_requirements(problem, fallback, None)
        log.info("%s failed; trying %s", attempt.method.name, fallback.name)
        second = replace(attempt, method=fallback, M=None, fallback=None)
        found = _outcome(second)
        found = _checked(problem, found) if problem.by_default else found
    except (UnsupportedOperation, NonlinearError, MemoryError):
        return None
    if not bk.any(~failed):
        return second, found
    names = (name for name in Outcome._fields if name != "history")
    merged = {name: bk.where(failed, getattr(found, name), getattr(first, name)) for name in names}
    lines = bk.where(failed[:, 0], found.history, first.history) if attempt.history else ()
    return second, Outcome(**merged, history=lines)


def _has_converged(bk: Backend, outcome: Outcome) -> bool:
    """The last limit of several decides."""
    status = outcome.status if len(outcome.status.shape) < 3 else outcome.status[-1, ...]
    return not bk.any(status != int(Status.CONVERGED))


def _after_failure(attempt: Attempt, outcome: Outcome, result: SolveResult) -> SolveResult:
    """Apply `on_failure` unless all systems are known to have converged."""
    problem, on_failure = attempt.problem, attempt.on_failure
    if on_failure not in QUIET:
        reason = why_no_solution(problem, result)
        result = result if reason is None else replace(result, _no_solution=reason)
    if problem.compiled and problem.is_implicit:  # the solve of a compiled function saw to its failure by itself
        return result
    return apply_policy(problem.bk, result, on_failure, attempt.look(outcome), attempt.may_be_stopped)


def _outcome(attempt: Attempt) -> Outcome:
    """With derivatives; compiled and for derivatives with the fallback."""
    return differentiated(attempt) if attempt.problem.is_implicit else attempt.run()


def _result(attempt: Attempt, outcome: Outcome, converged: bool) -> SolveResult:
    """Result in the user's terms, of the given outcome and x."""
    problem = attempt.problem
    sensitivity = Sensitivity.of(attempt, outcome) if problem.bk.on_host else None
    spoils = attempt.on_failure == "nan" and not converged
    x = with_nan(problem.bk, outcome.x, outcome.status, attempt.may_be_stopped) if spoils else outcome.x
    told = outcome._replace(x=x) if spoils else outcome
    result = attempt.result(told, sensitivity)
    if problem.given is None:
        return result
    rows = outcome.x[None] if problem.several and len(problem.limits) == 1 else outcome.x
    return problem.given.restore(problem.bk, result, rows, problem.null is not None and not problem.both)
