"""Solve a problem with a method and its fallback, and make the user's result."""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

from ..backends import Backend
from ..backends.on_failure import QUIET
from .attempt import Attempt
from .derivatives.implicit import without_derivatives
from .derivatives.sensitivity import Sensitivity
from .handover import checked, first_outcome, handed_over, switched_to_amg
from .log import DEBUG, log, set_ups
from .results.failure import ConvergenceError, apply_policy, result_of_this_solve, warn_of_singular, with_nan
from .results.form import as_numpy, is_numpy_elsewhere
from .results.no_solution import why_no_solution
from .results.result import SolveResult, register_result
from .results.words import MadeBy
from .run.outcome import Outcome, Status

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
    bk, begun = attempt.system.bk, perf_counter()
    elsewhere = not bk.on_host and is_numpy_elsewhere(attempt.system, b)
    if elsewhere and attempt.monitor is not None:
        attempt = replace(attempt, monitor=replace(attempt.monitor, in_numpy=True))
    within: list[float] = []
    token = set_ups.set(within)
    try:
        result = _solve(attempt)
    except ConvergenceError as error:
        if (failed := result_of_this_solve(error)) is not None:
            error.result = as_numpy(bk, failed) if elsewhere else failed
            error.result.__dict__["solve_time"] = perf_counter() - begun - sum(within)
        raise
    finally:
        set_ups.reset(token)
    result = as_numpy(bk, result) if elsewhere else result
    result.__dict__["solve_time"] = perf_counter() - begun - sum(within)
    return result


def _solve(attempt: Attempt) -> SolveResult:
    attempt = attempt.with_kept_amg() if attempt.may_switch else attempt
    system, policy, fallback = attempt.system, attempt.on_failure, attempt.fallback
    bk = system.bk
    register_result(bk)
    outcome, first, taken = first_outcome(attempt), attempt, None
    # With "status" or "nan", no fallback and no derivatives nobody has to wait for the outcome here.
    known = not (system.compiled or bk.compiled(outcome.status))
    outcome = checked(attempt, outcome) if known and system.by_default else outcome
    asks = policy not in QUIET or (policy == "nan" and bk.is_concrete(system.b))
    waits = known and (asks or fallback is not None or system.is_implicit or attempt.may_switch)
    converged = waits and _has_converged(bk, outcome)
    if waits and not converged and attempt.may_switch and attempt.switch_after is not None:
        attempt, outcome = switched_to_amg(attempt, outcome, attempt.switch_after)
        converged = _has_converged(bk, outcome)
    if waits and not converged and fallback is not None and not system.several:
        found = handed_over(attempt, outcome, fallback)
        if found is not None:
            attempt, outcome, taken = found
            converged = _has_converged(bk, outcome)
    if not converged and system.is_implicit and not system.compiled:  # a compiled solve saw to it by itself
        outcome = without_derivatives(bk, outcome, policy, attempt.may_be_stopped)
    result = _result(attempt, outcome, converged, first.made_by(taken))
    may_be_singular = attempt.method.factorises or system.null is not None
    if may_be_singular and not system.derived and (waits or (known and bk.is_concrete(system.b))):
        warn_of_singular(
            bk, result.method, outcome, lambda: attempt.null_vectors(attempt.part_taken_off()) or "null vectors"
        )
    if not converged:
        result = _after_failure(attempt, outcome, result)
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


def _after_failure(attempt: Attempt, outcome: Outcome, result: SolveResult) -> SolveResult:
    """Apply `on_failure` unless all systems are known to have converged."""
    system, on_failure = attempt.system, attempt.on_failure
    if on_failure not in QUIET:
        reason = why_no_solution(system, attempt.solved_b, result)
        result = result if reason is None else replace(result, _no_solution=reason)
    if system.compiled and system.is_implicit:  # the solve of a compiled function saw to its failure by itself
        return result
    vectors = None if system.derived else attempt.null_vectors()
    return apply_policy(system.bk, result, on_failure, attempt.look(outcome), attempt.may_be_stopped, vectors)


def _result(attempt: Attempt, outcome: Outcome, converged: bool, made_by: tuple[MadeBy, ...]) -> SolveResult:
    """Result in the user's terms, of the given outcome and x."""
    system = attempt.system
    whole = system.bk.communicator is None or attempt.method.takes_rows  # or there is no adjoint to believe
    sensitivity = Sensitivity.of(attempt, outcome) if system.bk.on_host and whole else None
    spoils = attempt.on_failure == "nan" and not converged
    x = with_nan(system.bk, outcome.x, outcome.status, attempt.may_be_stopped) if spoils else outcome.x
    told = outcome._replace(x=x) if spoils else outcome
    result = attempt.result(told, sensitivity, made_by)
    if system.given is None:
        return result
    rows = outcome.x[None] if system.several and len(system.limits) == 1 else outcome.x
    return system.given.restore(system.bk, result, rows, system.null is not None and not system.both)
