"""The outcome of a plan as the user's result, and what a failure does: an error, a warning, NaN, or nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ..backends import Array
from ..backends.settings import QUIET
from .adapters.devices import replicated
from .factors.sparse import provider_note
from .ladder import both_of, has_more, solved_b
from .methods.method import Method
from .methods.registry import METHODS
from .plan import Plan
from .preconditioners import Preconditioner
from .read.system import System
from .results.diagnosis import Look
from .results.failure import apply_policy
from .results.result import SolveResult
from .results.words import MadeBy
from .run.outcome import Outcome, Status
from .singular.from_factors import Singularity
from .singular.given import null_vectors_in_words


def is_seen_to_converge(system: System, outcome: Outcome) -> bool:
    """Have all systems converged, as known without waiting?"""
    bk, status = system.bk, outcome.status
    known = not (system.compiled or bk.compiled(status)) and bk.is_concrete(status)
    return known and not bk.any(status != int(Status.CONVERGED))


def may_be_stopped(system: System) -> bool:
    """Is there a callback?"""
    return system.monitor is not None and system.monitor.callback is not None


def judged_in_program(plan: Plan, system: System, outcome: Outcome, purpose: str = "") -> Outcome:
    """Outcome of a solve in a compiled function or for a derivative, whose failure is handled at run time.

    Args:
        purpose: words that go before the method's name: what the solve is for.
    """
    if is_seen_to_converge(system, outcome):
        return outcome
    factors = [number for number, rung in enumerate(plan.rungs) if number and not rung.goes_on]
    last = plan.from_rung(factors[-1]) if factors and has_more(plan, system) else plan
    made_by = tuple(one._replace(name=purpose + one.name) for one in made_by_of(plan, system))
    look, vectors = look_of(last, system, outcome), None if purpose else null_vectors(system, last.method)
    result = replace(result_of(plan, system, outcome, made_by=made_by), x=outcome.x)
    stops = may_be_stopped(system)
    return outcome._replace(x=apply_policy(system.bk, result, system.on_failure, look, stops, vectors).x)


def null_vectors(system: System, method: Method, part: np.ndarray | None = None) -> str | None:
    """Known null vectors of the transpose, in words; None where there are none. See `null_vectors_in_words`."""
    null = system.null if both_of(system, method) else None
    return None if null is None else null_vectors_in_words(null, part)


def part_taken_off(system: System, method: Method) -> np.ndarray:
    """Part of b in known null vectors of the transpose, in rows of NumPy."""
    bk = system.bk
    return bk.to_numpy(bk.flat(system.b)) - bk.to_numpy(solved_b(system, method))


def look_of(plan: Plan, system: System, outcome: Outcome) -> Look | None:
    """Function that finds the cause of a failure; None where it is not needed.

    Args:
        plan: of what was tried last.
    """
    if system.bk.communicator is not None:  # each member would decide on its own
        return None
    compiled, later = system.compiled or system.bk.compiled(outcome.status), system.on_failure in QUIET
    if compiled and later:
        return None
    return Look.at(system, plan.method, plan.M, outcome, later, both_of(system, plan.method))


def made_by_of(plan: Plan, system: System) -> tuple[MadeBy, ...]:
    """What may make x, by the numbers of `Outcome.rung`; only the first method where no other can follow."""
    method, M, *_ = plan.rungs[0]
    name, once = method.name, method.applies_once
    first = MadeBy(name, METHODS[name] if once else method, M.kind if isinstance(M, Preconditioner) else None)
    if once or not has_more(plan, system):  # where NumPy repeats it, it is the same method
        return (first,)
    found = [first, first]
    for number, rung in enumerate(plan.rungs[1:], 1):
        if rung.make is not None:
            words = f"{name} (with classical AMG after {plan.rungs[0].steps} iterations with multigrid)"
            found += [MadeBy(words, rung.method, "amg")] * 2
        elif rung.goes_on:
            found += found[-2:]
        else:
            taken = plan.steps_of(number - 1)
            whys = f"after {name} had failed", f"after {name} had taken {taken} iterations"
            found += [MadeBy(f"{rung.method.name} ({why})", rung.method, None) for why in whys]
    return tuple(found)


def result_of(
    plan: Plan,
    system: System,
    outcome: Outcome,
    sensitivity: Any = None,
    made_by: tuple[MadeBy, ...] | None = None,
) -> SolveResult:
    """The outcome in the shapes of the user's arrays."""
    (method, M, *_), bk, layout = plan.rungs[0], system.bk, system.layout
    lead = (len(system.limits),) if len(system.limits) > 1 else ()
    outcome = outcome if bk.communicator is None else replicated(bk, outcome)
    if system.several and not lead:
        outcome = Outcome(*(() if isinstance(a, tuple) else bk.reshape(a, (1, *a.shape)) for a in outcome))
        lead = (1,)
    if system.cut is not None and not lead:
        outcome = outcome._replace(x=system.spread_rows(outcome.x), residual=system.spread_rows(outcome.residual))
    shape = (*lead, *layout.batch)
    status, steps = bk.reshape(outcome.status, shape), bk.reshape(outcome.steps, shape)
    may_be_singular = method.factorises or len(plan.rungs) > 1 or system.null is not None
    singular = bk.reshape(outcome.singular, shape) >= int(Singularity.SINGULAR) if may_be_singular else steps < 0
    made_by, rung = made_by or made_by_of(plan, system), None
    if len(made_by) > 1:
        rung = bk.reshape(outcome.rung, shape)
        if bk.is_concrete(rung) and not (system.compiled or bk.compiled(rung)):
            numbers = np.unique(bk.to_numpy(rung))
            made_by, rung = ((made_by[numbers[0]],), None) if len(numbers) == 1 else (made_by, rung)
    kind, reason = (M.kind, M.reason) if isinstance(M, Preconditioner) else (None, None)
    why = plan.reason if reason is None else f"{plan.reason}; {kind}: {reason}"
    if method.names_provider:
        why += provider_note(M)
    return SolveResult(
        x=layout.unflatten(bk, outcome.x, lead),
        residual=layout.unflatten(bk, outcome.residual, lead),
        residual_norm=bk.reshape(outcome.norm, shape),
        tolerance=bk.reshape(outcome.bound, shape),
        attainable=bk.reshape(outcome.attainable, shape),
        null_part=bk.reshape(outcome.null_part, shape),
        consistent=bk.reshape(outcome.consistent, shape) > 0,
        iterations=steps,
        function_evaluations=bk.reshape(outcome.products, shape),
        converged=status == int(Status.CONVERGED),
        diverged=status == int(Status.DIVERGED),
        status=status,
        singular=singular,
        history=None if isinstance(outcome.history, tuple) else _history(system, outcome.history, steps, lead),
        _rung=rung,
        least_squares=system.least_squares,
        checkpoints=system.several,
        _made_by=made_by,
        _why=why,
        _parts=bk.communicator is not None,
        _time_limit=None if system.monitor is None else system.monitor.time_limit,
        _sensitivity=sensitivity,
    )


def _history(system: System, lines: Array, steps: Array, lead: tuple[int, ...]) -> Array:
    """`(*lead, iterations + 1, *batch)`, cut after the last iteration where that is known."""
    bk = system.bk
    if not system.compiled and not bk.compiled(steps):
        longest = int(np.max(bk.to_numpy(steps), initial=0)) + 1
        lines = lines[..., :longest, :]
    return bk.reshape(lines, (*lead, int(lines.shape[-2]), *system.layout.batch))
