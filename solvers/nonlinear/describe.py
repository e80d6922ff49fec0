"""Messages of non-linear solves and searches for minima: one sentence for success; for failures also what to try."""

from __future__ import annotations

import numpy as np

from ..run.outcome import Status, iterations_in_words
from .scipy_runs import EVALUATIONS, EVALUATIONS_A_STEP, SCIPY_METHODS

_NEWTON = "Newton's method"
_REASONS = {
    Status.MAX_ITER: (
        "reached the limit of iterations",
        "raise max_iter, start closer to the solution, or look at result.history (history=True)",
    ),
    Status.STAGNATED: (
        "stopped: no step along its direction makes |f(x)| smaller",
        "start elsewhere, as |f(x)| may have a minimum here that is no solution; or loosen rtol, check that f is "
        "differentiable, or use double precision",
    ),
    Status.BREAKDOWN: (
        "stopped: the linear system of a step was not solved",
        "check that the Jacobian is not singular here, start elsewhere, or give linear_solver={'method': ..., "
        "'preconditioner': ...}",
    ),
    Status.DIVERGED: (
        "was not begun: f(x0) is not finite",
        "look in x0 and f for NaN and infinity",
    ),
}


def describe_equations(status: np.ndarray, steps: np.ndarray, norm: np.ndarray, tolerance: np.ndarray) -> str:
    """What happened to F(x) = 0, of all systems."""
    return _described(_NEWTON, "|f(x)|", _REASONS, status, steps, norm, tolerance)


_OF_SEARCHES = {
    Status.MAX_ITER: (
        "reached the limit of iterations",
        "raise max_iter, loosen rtol, bring the unknowns to one scale, or check that f has a lower bound",
    ),
    Status.STAGNATED: (
        "stopped: no step makes f smaller",
        "loosen rtol, use double precision, or check that f is differentiable and that its gradient is right",
    ),
    Status.DIVERGED: (
        "left the finite numbers, or was not begun as f(x0) or its gradient is none",
        "look in x0 and f for NaN and infinity, give bounds, or check that f has a lower bound",
    ),
}


def describe_minimum(
    method: str, status: np.ndarray, steps: np.ndarray, norm: np.ndarray, tolerance: np.ndarray
) -> str:
    """What happened to a search for a minimum, of all systems."""
    reasons = _OF_SEARCHES
    if method in SCIPY_METHODS:  # whose line searches may go on for ever
        evaluations = f"({EVALUATIONS}, and {EVALUATIONS_A_STEP} for each iteration)"
        limit = f"reached the limit of iterations, or of evaluations {evaluations},"
        reasons = {**reasons, Status.MAX_ITER: (limit, reasons[Status.MAX_ITER][1])}
    return _described(method, "|gradient|", reasons, status, steps, norm, tolerance)


def _described(
    method: str,
    measure: str,
    reasons: dict[Status, tuple[str, str]],
    status: np.ndarray,
    steps: np.ndarray,
    norm: np.ndarray,
    tolerance: np.ndarray,
) -> str:
    status, steps, norm = map(np.atleast_1d, (status, steps, norm))
    bound = np.broadcast_to(tolerance, norm.shape)
    if not status.size:
        return f"{method}: no systems to solve."
    failed = status != Status.CONVERGED
    if not failed.any():
        taken = iterations_in_words(int(steps.min()), int(steps.max()))
        systems = "" if steps.size == 1 else f" for all {steps.size} systems"
        worst = norm.argmax()
        return (
            f"{method} converged in {taken}{systems}: {measure} {norm.flat[worst]:.3e}, tolerance "
            f"{bound.flat[worst]:.3e}."
        )
    with np.errstate(all="ignore"):
        excess = np.where(failed, np.where(np.isfinite(norm), norm / bound, np.inf), -1)
    place = np.unravel_index(np.argmax(np.nan_to_num(excess, nan=np.inf)), status.shape)
    where = ""
    if status.size > 1:
        index = int(place[0]) if len(place) == 1 else tuple(int(i) for i in place)
        where = f" in {int(failed.sum())} of {status.size} systems; the worst, system {index},"
    reason, to_do = reasons[Status(int(status[place]))]
    return (
        f"{method}{where} {reason} after {iterations_in_words(int(steps[place]))}: {measure} {norm[place]:.3e}, "
        f"tolerance {bound[place]:.3e}. To do: {to_do}."
    )
