"""A planned system solved: run, judge, tell."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

from ..backends import Backend
from ..backends.profile.spans import span
from ..backends.settings import QUIET
from .derivatives.implicit import differentiated, without_derivatives
from .derivatives.sensitivity import Sensitivity
from .judge import look_of, made_by_of, may_be_stopped, null_vectors, part_taken_off, result_of
from .ladder import applied_once, climb, solved_b
from .log import DEBUG, log, set_ups
from .plan import Plan
from .read.system import System
from .results.failure import apply_policy, converted, warn_of_singular, with_nan
from .results.form import as_numpy, is_numpy_elsewhere
from .results.no_solution import why_no_solution
from .results.result import SolveResult, register_result
from .run.outcome import Outcome, Status

_SEVERAL_LIMITS = (
    "A solve with several limits (max_iter as a sequence) has no derivatives, as its x are not solutions. Give one "
    "limit for the solve that is to be differentiated."
)


def solve(plan: Plan, system: System, b: Any) -> SolveResult:
    """Run the plan, judge the outcome by `on_failure`, and return the result in the library of b.

    Args:
        b: the right-hand side as it was given.

    Raises:
        NotConverged, Diverged, ValueError, TypeError, UnsupportedOperation: see `linear_solve`.
    """
    bk, begun = system.bk, perf_counter()
    elsewhere = not bk.on_host and is_numpy_elsewhere(system, b)
    if elsewhere and system.monitor is not None:
        system = replace(system, monitor=replace(system.monitor, in_numpy=True))
    within: list[float] = []
    token = set_ups.set(within)

    def told(result: SolveResult) -> SolveResult:
        result = as_numpy(bk, result) if elsewhere else result
        result.__dict__["solve_time"] = perf_counter() - begun - sum(within)
        return result

    try:
        return converted(lambda: _solve(plan if system.compiled else plan.learned(), system), told)
    finally:
        set_ups.reset(token)


def _solve(plan: Plan, system: System) -> SolveResult:
    policy = system.on_failure
    register_result(system.bk)
    plan = applied_once(plan, system)
    with span("run", plan.method.name) as done:
        outcome = done(differentiated(plan, system) if system.is_implicit else climb(plan, system))
    with span("judge", policy):
        return _judged(plan, system, outcome)


def _judged(plan: Plan, system: System, outcome: Outcome) -> SolveResult:
    bk, policy = system.bk, system.on_failure
    # With "status" or "nan", one rung and no derivatives nobody has to wait for the outcome here.
    known, climbs = not (system.compiled or bk.compiled(outcome.status)), len(plan.rungs) > 1
    asks = policy not in QUIET or (policy == "nan" and bk.is_concrete(system.b))
    waits = known and (asks or climbs or system.is_implicit)
    converged = waits and _has_converged(bk, outcome)
    if not converged and system.is_implicit and not system.compiled:  # handled inside the compiled solve
        outcome = without_derivatives(bk, outcome, policy, may_be_stopped(system))
    number = int(bk.to_numpy(outcome.rung).max(initial=0)) // 2 if known and climbs else 0
    last = plan.from_rung(number) if number else plan
    result = _result(plan, last, system, outcome, converged)
    method = last.rungs[0].method
    may_be_singular = method.factorises or system.null is not None
    if may_be_singular and not system.derived and (waits or (known and bk.is_concrete(system.b))):
        warn_of_singular(
            bk, result.method, outcome,
            lambda: null_vectors(system, method, part_taken_off(system, method)) or "null vectors",
        )  # fmt: skip
    if not converged:
        result = _after_failure(last, system, outcome, result)
    if log.isEnabledFor(DEBUG):
        log.debug("%s", result.message)
    if system.is_tracked and not system.is_implicit:
        sources = (system.b, *bk.flatten(system.A.as_container())[0])
        return replace(result, x=bk.refuse_derivatives(result.x, _SEVERAL_LIMITS, RuntimeError, sources))
    return result


def _has_converged(bk: Backend, outcome: Outcome) -> bool:
    """The last limit of several decides."""
    status = outcome.status if len(outcome.status.shape) < 3 else outcome.status[-1, ...]
    return not bk.any(status != int(Status.CONVERGED))


def _after_failure(last: Plan, system: System, outcome: Outcome, result: SolveResult) -> SolveResult:
    """Apply `on_failure` unless all systems are known to have converged."""
    if system.on_failure not in QUIET:
        reason = why_no_solution(system, solved_b(system, last.method), result)
        result = result if reason is None else replace(result, _no_solution=reason)
    if system.compiled and system.is_implicit:  # handled inside the compiled solve
        return result
    vectors = None if system.derived else null_vectors(system, last.method)
    look = look_of(last, system, outcome)
    return apply_policy(system.bk, result, system.on_failure, look, may_be_stopped(system), vectors)


def _result(plan: Plan, last: Plan, system: System, outcome: Outcome, converged: bool) -> SolveResult:
    """Result in the user's terms, of the given outcome and x."""
    # A part of the vectors does not show whether the adjoint can be trusted.
    whole = system.bk.communicator is None or last.rungs[0].method.takes_rows
    sensitivity = Sensitivity.of(last, system, outcome) if system.bk.on_host and whole else None
    spoils = system.on_failure == "nan" and not converged
    x = with_nan(system.bk, outcome.x, outcome.status, may_be_stopped(system)) if spoils else outcome.x
    told = outcome._replace(x=x) if spoils else outcome
    result = result_of(last, system, told, sensitivity, made_by_of(plan, system))
    if system.given is None:
        return result
    rows = outcome.x[None] if system.several and len(system.limits) == 1 else outcome.x
    return system.given.restore(system.bk, result, rows, system.null is not None and not system.both)
