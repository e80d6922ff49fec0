"""The end of a solve: run the plan, judge its outcome, and return it as the user's result.

The caller chooses the effect of a failure, `on_failure`, see `results/on_failure.py`.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np
from scipy.linalg import LinAlgWarning

from ..backends import Array
from ..backends.profile.spans import span
from ..backends.registry import libraries_of
from ..backends.settings import QUIET
from ..sparse.content import fingerprint
from .derivatives.implicit import differentiated, without_derivatives
from .derivatives.sensitivity import SEVERAL_LIMITS, Sensitivity
from .factors.singularity import Singularity
from .factors.sparse import provider_note
from .ladder import both_of, climb, has_more, solved_b, with_factors_applied_once
from .log import DEBUG, INFO, log, log_failure, set_ups, warn_caller
from .methods.method import Method
from .methods.registry import METHODS
from .plan import Plan
from .preconditioners import Preconditioner
from .read.system import System
from .results.diagnose import Diagnosis
from .results.messages import (
    SINGULARITIES,
    Background,
    EndState,
    MadeBy,
    describe,
    inconsistent_in_words,
    singular_in_words,
)
from .results.no_solution import why_no_solution
from .results.on_failure import Ending, raise_or_warn, with_nan
from .results.result import Record, SolveResult, converted, in_numpy, register_result
from .run.outcome import Outcome, Status, has_failed
from .singular.projections import null_vectors_in_words


class SingularMatrixWarning(LinAlgWarning):
    """The matrix is singular, or so ill-conditioned that x may have no correct digit, though its residual is small.

    Also given where A is known to be singular and b has a component that no x reaches: x solves the system without it.

    Examples:
        >>> import warnings, numpy as np, krylix
        >>> A = np.array([[1.0, 1.0], [1.0, 1.0]])
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     x = krylix.linear_solve(A, np.array([2.0, 2.0]), method="direct").x
        >>> np.round(x, 6)  # the solution of least norm
        array([1., 1.])
    """


def solve(plan: Plan, system: System, b: Any) -> SolveResult:
    """Run the plan, judge the outcome by `on_failure`, and return the result in the library of b.

    Args:
        b: the right-hand side as it was given.

    Raises:
        NotConverged, Diverged, ValueError, TypeError, UnsupportedOperation: see `linear_solve`.
    """
    bk, begun = system.bk, perf_counter()
    elsewhere = not (bk.on_host or system.compiled or bk.compiled()) and libraries_of(b) == ["numpy"]
    if elsewhere and system.monitor is not None:
        system = replace(system, monitor=replace(system.monitor, in_numpy=True))
    within: list[float] = []
    token = set_ups.set(within)

    def timed(result: SolveResult) -> SolveResult:
        result = in_numpy(bk, result) if elsewhere else result
        result._record.solve_time = perf_counter() - begun - sum(within)
        return result

    try:
        return converted(lambda: _solve(plan if system.compiled else plan.learned(), system), timed)
    finally:
        set_ups.reset(token)


def _solve(plan: Plan, system: System) -> SolveResult:
    register_result(system.bk)
    plan = with_factors_applied_once(plan, system)
    with span("run", plan.method.name) as done:
        outcome = done(differentiated(plan, system, judged_in_program) if system.is_implicit else climb(plan, system))
    with span("judge", system.on_failure):
        return _judged(plan, system, outcome)


def _judged(plan: Plan, system: System, outcome: Outcome) -> SolveResult:
    bk, policy = system.bk, system.on_failure
    # With "status" or "nan", one rung and no derivatives there is no need to wait for the outcome here.
    known, climbs = not (system.compiled or bk.compiled(outcome.status)), len(plan.rungs) > 1
    asks = policy not in QUIET or (policy == "nan" and bk.is_concrete(system.b))
    waits = known and (asks or climbs or system.is_implicit)
    status = outcome.status if len(outcome.status.shape) < 3 else outcome.status[-1, ...]  # of the last limit
    has_converged = waits and not bk.any(status != int(Status.CONVERGED))
    if not has_converged and system.is_implicit and not system.compiled:  # in a program `judged_in_program` does it
        outcome = without_derivatives(bk, outcome, policy, system.may_be_stopped)
    number = int(bk.to_numpy(outcome.rung).max(initial=0)) // 2 if known and climbs else 0
    last = plan.from_rung(number) if number else plan
    result = _result(plan, last, system, outcome, has_converged)
    may_be_singular = last.method.factorises or system.null is not None
    if may_be_singular and not system.derived and (waits or (known and bk.is_concrete(system.b))):
        _warn_of_singular(last, system, outcome, result.method)
    if not has_converged and policy not in QUIET:
        reason = why_no_solution(system, solved_b(system, last.method), result)
        if reason is not None:
            result = replace(result, _background=result._background._replace(no_solution=reason))
    if not has_converged and not (system.compiled and system.is_implicit):  # there `judged_in_program` does it
        vectors = None if system.derived else _null_vectors(last, system)
        result = _apply_policy(system, result, _diagnosis(last, system, outcome), vectors)
    if log.isEnabledFor(DEBUG):
        log.debug("%s", result.message)
    if system.is_tracked and not system.is_implicit:
        sources = (system.b, *bk.flatten(system.A.as_container())[0])
        return replace(result, x=bk.refuse_derivatives(result.x, SEVERAL_LIMITS, RuntimeError, sources))
    return result


def judged_in_program(plan: Plan, system: System, outcome: Outcome, purpose: str = "") -> Outcome:
    """Outcome of a solve in a compiled function or for a derivative, whose failure is handled at run time.

    Args:
        purpose: of the solve, in words before the method's name.
    """
    bk, status = system.bk, outcome.status
    known = not (system.compiled or bk.compiled(status)) and bk.is_concrete(status)
    if known and not bk.any(status != int(Status.CONVERGED)):
        return outcome
    factors = [number for number, rung in enumerate(plan.rungs) if number and not rung.goes_on]
    last = plan.from_rung(factors[-1]) if factors and has_more(plan, system) else plan
    made_by = tuple(maker._replace(name=purpose + maker.name) for maker in _made_by(plan, system))
    diagnosis, vectors = _diagnosis(last, system, outcome), None if purpose else _null_vectors(last, system)
    result = replace(_in_user_shapes(plan, system, outcome, None, made_by), x=outcome.x)
    return outcome._replace(x=_apply_policy(system, result, diagnosis, vectors).x)


# --- the result


def _result(plan: Plan, last: Plan, system: System, outcome: Outcome, has_converged: bool) -> SolveResult:
    """The user's result; `last` is the plan of the rung that was reached."""
    bk = system.bk
    # A part of the vectors does not show whether the adjoint can be trusted.
    whole = bk.communicator is None or last.method.takes_rows
    sensitivity = Sensitivity.of(last, system, outcome, judged_in_program) if bk.on_host and whole else None
    shown = outcome
    if system.on_failure == "nan" and not has_converged:
        shown = outcome._replace(x=with_nan(bk, outcome.x, outcome.status, system.may_be_stopped))
    result = _in_user_shapes(last, system, shown, sensitivity, _made_by(plan, system))
    if system.given is None:
        return result
    rows = outcome.x[None] if system.several and len(system.limits) == 1 else outcome.x
    return system.given.restore(bk, result, rows, system.null is not None and not system.both)


def _in_user_shapes(
    plan: Plan, system: System, outcome: Outcome, sensitivity: Sensitivity | None, made_by: tuple[MadeBy, ...]
) -> SolveResult:
    (method, M, *_), bk, layout = plan.rungs[0], system.bk, system.layout
    lead = (len(system.limits),) if len(system.limits) > 1 else ()
    if bk.communicator is not None:  # numbers are equal in all members
        alike = {name: bk.replicated(a) for name, a in outcome._asdict().items() if not isinstance(a, tuple)}
        outcome = outcome._replace(**{**alike, "x": outcome.x, "residual": outcome.residual})
    if system.several and not lead:
        outcome = Outcome(*(() if isinstance(a, tuple) else bk.reshape(a, (1, *a.shape)) for a in outcome))
        lead = (1,)
    if system.cut is not None and not lead:
        outcome = outcome._replace(x=system.spread_rows(outcome.x), residual=system.spread_rows(outcome.residual))
    shape = (*lead, *layout.batch)
    status, steps = bk.reshape(outcome.status, shape), bk.reshape(outcome.steps, shape)
    may_be_singular = method.factorises or len(plan.rungs) > 1 or system.null is not None
    arrays = {
        "residual": layout.unflatten(bk, outcome.residual, lead),
        "residual_norm": bk.reshape(outcome.norm, shape),
        "tolerance": bk.reshape(outcome.bound, shape),
        "attainable": bk.reshape(outcome.attainable, shape),
        "null_part": bk.reshape(outcome.null_part, shape),
        "consistent": bk.reshape(outcome.consistent, shape) > 0,
        "iterations": steps,
        "function_evaluations": bk.reshape(outcome.products, shape),
        "converged": status == int(Status.CONVERGED),
        "diverged": status == int(Status.DIVERGED),
        "status": status,
        "singular": (
            bk.reshape(outcome.singular, shape) >= int(Singularity.SINGULAR) if may_be_singular else steps < 0
        ),
    }
    if not isinstance(outcome.history, tuple):
        lines = outcome.history
        if not system.compiled and not bk.compiled(steps):  # cut after the last iteration
            lines = lines[..., : int(np.max(bk.to_numpy(steps), initial=0)) + 1, :]
        arrays["history"] = bk.reshape(lines, (*lead, int(lines.shape[-2]), *layout.batch))
    if len(made_by) > 1:
        rung = bk.reshape(outcome.rung, shape)
        known = bk.is_concrete(rung) and not (system.compiled or bk.compiled(rung))
        numbers = np.unique(bk.to_numpy(rung)) if known else np.zeros(0, int)
        if len(numbers) == 1:
            made_by = (made_by[numbers[0]],)
        else:
            arrays["rung"] = rung
    time_limit = None if system.monitor is None else system.monitor.time_limit
    background = Background(
        made_by, system.least_squares, time_limit=time_limit, parts=bk.communicator is not None
    )  # fmt: skip
    x = layout.unflatten(bk, outcome.x, lead)
    return SolveResult(x, Record(arrays), background, system.several, _why(plan, method, M), sensitivity)


def _why(plan: Plan, method: Method, M: Any) -> str:
    """The reason for the method, its preconditioner and the library of its factors."""
    why = plan.reason
    if isinstance(M, Preconditioner) and M.reason is not None:
        why = f"{why}; {M.kind}: {M.reason}"
    return why + provider_note(M) if method.names_provider else why


def _made_by(plan: Plan, system: System) -> tuple[MadeBy, ...]:
    """Methods that may make x, by the numbers of `Outcome.rung`; only the first one where no other can follow."""
    method, M, *_ = plan.rungs[0]
    name, once = method.name, method.applies_once
    first = MadeBy(name, METHODS[name] if once else method, M.kind if isinstance(M, Preconditioner) else None)
    if once or not has_more(plan, system):  # NumPy repeats the same method
        return (first,)
    made_by = [first, first]
    for number, rung in enumerate(plan.rungs[1:], 1):
        if rung.make is not None:
            words = f"{name} (with classical AMG after {plan.rungs[0].steps} iterations with multigrid)"
            made_by += [MadeBy(words, rung.method, "amg")] * 2
        elif rung.goes_on:
            made_by += made_by[-2:]
        else:
            whys = f"after {name} had failed", f"after {name} had taken {plan.steps_of(number - 1)} iterations"
            made_by += [MadeBy(f"{rung.method.name} ({why})", rung.method, None) for why in whys]
    return tuple(made_by)


# --- why


def _diagnosis(plan: Plan, system: System, outcome: Outcome) -> Diagnosis | None:
    """Search for the cause of a failure of the plan's first rung, the last one that was tried."""
    return Diagnosis.of(system, plan.method, plan.M, outcome, both_of(system, plan.method))


def _null_vectors(plan: Plan, system: System, part: np.ndarray | None = None) -> str | None:
    """Known null vectors of the transpose, in words; None where there are none. See `null_vectors_in_words`."""
    null = system.null if both_of(system, plan.method) else None
    return None if null is None else null_vectors_in_words(null, part)


def _warn_of_singular(plan: Plan, system: System, outcome: Outcome, name: str) -> None:
    """Warn where factors have a zero pivot, x may be rounding only, or b has a component that no x reaches.

    Failures are reported elsewhere. The outcome of all systems is known now, and `name` is the method that made x.
    """
    bk = system.bk
    status, consistent, singularity = (
        bk.to_numpy(a).reshape(-1) for a in (outcome.status, outcome.consistent, outcome.singular)
    )
    has_converged = status == int(Status.CONVERGED)
    lost = has_converged & (consistent == 0)
    if lost.any():
        part = bk.to_numpy(bk.flat(system.b)) - bk.to_numpy(solved_b(system, plan.method))
        vectors = _null_vectors(plan, system, part) or "null vectors"
        warn_caller(inconsistent_in_words(name, lost, vectors), SingularMatrixWarning)
    for kind in SINGULARITIES:
        which = has_converged & ~lost & (singularity == kind)
        if which.any():
            warn_caller(singular_in_words(name, which, kind), SingularMatrixWarning)


# --- effects of a failure


def _apply_policy(
    system: System, result: SolveResult, diagnosis: Diagnosis | None, vectors: str | None
) -> SolveResult:  # fmt: skip
    """`result`, after raising or warning if some system failed; in compiled functions at run time, by a callback.

    Args:
        diagnosis: finds the causes, once a failure is known.
        vectors: names the null vectors to warn of, in which a b of a compiled function may have a component.
    """
    bk, policy, record, background = system.bk, system.on_failure, result._record, result._background
    known, end = not bk.compiled(record.arrays["status"]), record.end_state(result.checkpoints)

    def in_numpy() -> EndState:
        return EndState.in_numpy([*map(bk.to_numpy, end.arrays())])

    if policy in QUIET:
        if known and log.isEnabledFor(INFO) and bk.any(has_failed(end.status)):
            log_failure(describe(in_numpy(), background))
        record.diagnosis = diagnosis if known else None
        return result
    if known and diagnosis is not None and bk.any(has_failed(end.status)):
        background, diagnosis = background._replace(causes=diagnosis(in_numpy())), None
        result = replace(result, _background=background)

    def described(*numbers: np.ndarray) -> str:
        end = EndState.in_numpy(numbers)
        return describe(end, background if diagnosis is None else background._replace(causes=diagnosis(end)))

    ending = Ending(end.arrays(), described, may_be_stopped=system.may_be_stopped)
    if not known and (causes := "" if diagnosis is None else diagnosis.name) is not None:
        ending = ending._replace(name=fingerprint(policy, background, causes, *(() if vectors is None else (vectors,))))
    if not known and vectors is not None:
        method = result.method  # a callback must not keep traced arrays

        def warn(*numbers: np.ndarray) -> None:
            warn_caller(inconsistent_in_words(method, _lost(EndState(*numbers)), vectors), SingularMatrixWarning)

        ending = ending._replace(warning=(bk.any(_lost(end)), warn))
    return raise_or_warn(bk, policy, result, ending)


def _lost(end: EndState) -> Array:
    """Which systems were solved without a component of b that is more than rounding?"""
    return (end.status == int(Status.CONVERGED)) & ~end.consistent
