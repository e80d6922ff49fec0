"""From an iteration to factors: where it has failed, and where it has taken as long as these would."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..backends import Array, Backend
from ..sparse import Matrix, NonlinearError, Operator, UnsupportedOperation
from .attempt import Attempt
from .cost import have_room
from .derivatives.implicit import differentiated
from .iteration_budget import Fallback, remaining_budget
from .log import log
from .on_host import may_be_helped
from .read.requirements import check_requirements
from .results.no_solution import without_refuted
from .run.outcome import Outcome, Rung, Status
from .run.stopping import Limits


class HandedOver(NamedTuple):
    """What was found in the end.

    Attributes:
        attempt: the last one.
        outcome: of all systems.
        taken: the iterations after which factors took over; None where they did not.
    """

    attempt: Attempt
    outcome: Outcome
    taken: int | None = None


def first_outcome(attempt: Attempt) -> Outcome:
    """With derivatives; compiled and for derivatives with the fallback."""
    return differentiated(attempt) if attempt.system.is_implicit else attempt.run()


def checked(attempt: Attempt, outcome: Outcome) -> Outcome:
    """Withdraw the default tolerance's allowance where it accepted an inconsistent system."""
    system = attempt.system
    if not system.by_default or system.given is not None or system.derived:
        return outcome
    return without_refuted(system.bk, system.A, lambda: attempt.solved_b, system.rtol, system.atol, outcome)


def switched_to_amg(attempt: Attempt, first: Outcome, switch_after: int) -> tuple[Attempt, Outcome]:
    """Go on with classical AMG, from x, where multigrid on grids has used up its iterations.

    Without AMG, if there can be none, it goes on as it was.
    """
    system = attempt.system
    bk = system.bk
    over_budget = may_be_helped(system, first, attempt.monitor)
    over_budget = over_budget & (first.status == int(Status.MAX_ITER)) & (first.steps >= switch_after)
    if not bk.any(over_budget) or _is_over(attempt):
        return attempt, first
    try:
        second = replace(attempt, M=attempt.amg_after_multigrid())
        first = first._replace(rung=bk.where(over_budget, int(Rung.AMG), first.rung))
        log.info(
            "%s has taken %d iterations with multigrid; going on with classical AMG", attempt.method.name, switch_after
        )
    except (ValueError, UnsupportedOperation, NonlinearError):
        second = replace(attempt, may_switch=False)
    fallback, limits = attempt.fallback, system.limits.of_systems(system.layout.systems)
    ends = fallback is not None and fallback.shortens(limits)
    most = max((fallback.after or 0) - switch_after, switch_after) if ends and fallback is not None else None
    found = _continued(second, first, over_budget, most)
    return second, found._replace(rung=first.rung)


def handed_over(attempt: Attempt, first: Outcome, fallback: Fallback) -> HandedOver | None:
    """Solve failed systems with the fallback; None if there are none, or the fallback cannot be used.

    Those that only have taken their time go on first, if factors take more; and in the end, if there are no factors.
    """
    system = attempt.system
    bk, limits = system.bk, system.limits.of_systems(system.layout.systems)
    failed = may_be_helped(system, first, attempt.monitor)
    if not bk.any(failed) or _is_over(attempt):
        return None
    over_budget = failed & fallback.ends(first.status, first.steps, limits)
    if bk.any(over_budget) and not fallback.is_bound:
        first = _continued(
            attempt, first, over_budget, remaining_budget(system, attempt.method, attempt.M, fallback.after or 0)
        )
        failed = may_be_helped(system, first, attempt.monitor)
        over_budget = over_budget & failed & (first.status == int(Status.MAX_ITER)) & (first.steps < system.limits.last)
        if not bk.any(failed) or _is_over(attempt):
            return HandedOver(attempt, first)
    found = _by_factors(attempt, fallback, bool(bk.any(failed & ~over_budget)))
    if found is not None:
        why = bk.where(over_budget, int(Rung.AFTER_ITERATIONS), int(Rung.AFTER_FAILURE) + 0 * first.rung)
        found = found._replace(outcome=found.outcome._replace(rung=why))
        whole = _merged(bk, over_budget, found.outcome, first) if bk.any(over_budget) else found.outcome
        ours = failed & ((found.outcome.status == int(Status.CONVERGED)) | ~over_budget)
        if not bk.any(over_budget & ~ours):
            taken = int(bk.to_numpy(first.steps).max())
            return HandedOver(found.attempt, _where(bk, ours, whole, first), taken)
        first = _where(bk, ours, whole, first)
    if not bk.any(over_budget):
        return None
    last = _continued(attempt, first, over_budget & (first.status == int(Status.MAX_ITER)), None)
    return HandedOver(attempt, last._replace(rung=first.rung))


def _is_over(attempt: Attempt) -> bool:
    return attempt.monitor is not None and attempt.monitor.is_over()


def _by_factors(attempt: Attempt, fallback: Fallback, has_failed: bool) -> HandedOver | None:
    """What the fallback finds; None where it cannot be used."""
    system, method = attempt.system, fallback.method
    try:
        check_requirements(system, method, None)
        if not has_room_for_factors(system.A):
            log.info("%s takes longer or failed, and factors have no room in memory", attempt.method.name)
            return None
        log.info("%s %s; trying %s", attempt.method.name, "failed" if has_failed else "takes longer", method.name)
        second = replace(attempt, method=method, M=None, fallback=None)
        return HandedOver(second, checked(second, first_outcome(second)))
    except (UnsupportedOperation, NonlinearError, MemoryError):
        return None


def has_room_for_factors(A: Operator) -> bool:
    """Do factors of A fit into memory? Not asked for a function: it is small, or was traced, and looked at."""
    entries = A.without_offset
    return not isinstance(entries, Matrix) or have_room(entries)


def _continued(attempt: Attempt, first: Outcome, which: Array, iterations: int | None) -> Outcome:
    """More iterations of the same method from where it was, of some systems; up to the limit if None."""
    system = attempt.system
    bk, taken = system.bk, int(system.bk.to_numpy(first.steps).max())
    left = [max(limit - taken, 0) for limit in system.limits.rows[-1]]
    left = left if iterations is None else [min(limit, iterations) for limit in left]
    if not any(left) or not bk.any(which):
        return first
    rest = replace(system, x0=first.x, limits=Limits((tuple(left),)))
    monitor = None if attempt.monitor is None else attempt.monitor.after(bk.to_numpy(first.steps))
    further = replace(attempt, system=rest, fallback=None, monitor=monitor)
    found = checked(further, first_outcome(further))
    return _where(bk, which, _merged(bk, which, found, first), first)


def _merged(bk: Backend, which: Array, found: Outcome, first: Outcome) -> Outcome:
    """The later outcome, with the counts and the history of both."""
    none = 0 * first.steps
    steps = found.steps + bk.where(which, first.steps, none)
    products = found.products + bk.where(which, first.products, none)
    lines = found.history
    if not isinstance(lines, tuple):
        joined = _joined(*(bk.to_numpy(a) for a in (which, first.steps, first.history, found.steps, lines)))
        lines = bk.asarray(joined, like=lines)
    return found._replace(steps=steps, products=products, history=lines)


def _joined(
    which: np.ndarray, taken: np.ndarray, before: np.ndarray, steps: np.ndarray, after: np.ndarray
) -> np.ndarray:
    """Residual norms `(iterations + 1, systems)` of two solves in a row, where `which`; else of the second."""
    which, taken, steps = which[:, 0], taken[:, 0], steps[:, 0]
    rows = int(max(np.where(which, taken + steps, steps).max(initial=0) + 1, len(before), len(after)))
    joined = np.full((rows, after.shape[1]), np.nan, after.dtype)
    for k in range(after.shape[1]):
        last = int(taken[k]) if which[k] else 0
        joined[:last, k] = before[:last, k]
        joined[last : last + steps[k] + 1, k] = after[: steps[k] + 1, k]
    return joined


def _where(bk: Backend, which: Array, found: Outcome, first: Outcome) -> Outcome:
    """Those systems of one outcome, the others of another one."""
    if not bk.any(~which):
        return found
    names = (name for name in Outcome._fields if name != "history")
    merged = {name: bk.where(which, getattr(found, name), getattr(first, name)) for name in names}
    if isinstance(found.history, tuple):
        return Outcome(**merged, history=())
    lines, older = found.history, first.history
    most = max(int(lines.shape[0]), int(older.shape[0]))
    lines, older = (_padded(bk, a, most) for a in (lines, older))
    return Outcome(**merged, history=bk.where(which[:, 0], lines, older))


def _padded(bk: Backend, lines: Array, rows: int) -> Array:
    missing = rows - int(lines.shape[0])
    if not missing:
        return lines
    return bk.concat([lines, bk.full((missing, int(lines.shape[1])), np.nan, bk.dtype(lines), lines)], 0)
