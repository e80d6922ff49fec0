"""How the solve of one system ended, and what is said about it."""

from __future__ import annotations

from enum import IntEnum

import numpy as np


class Status(IntEnum):
    """How the solve of one system ended; `SolveResult.status` holds these numbers."""

    RUNNING = 0
    CONVERGED = 1
    MAX_ITER = 2
    STAGNATED = 3
    BREAKDOWN = 4
    DIVERGED = 5
    CANDIDATE = 6

    @property
    def diverged(self) -> bool:
        """Did the iteration leave the finite numbers, or start outside of them?"""
        return self is Status.DIVERGED


# Inside the loop only: RUNNING, and CANDIDATE (the recurrence says converged; the true residual is still to be seen).

_EXPLANATION = {
    Status.MAX_ITER: "reached the limit of iterations",
    Status.STAGNATED: "stopped making progress before the tolerance, at the limit of this precision or of this method",
    Status.BREAKDOWN: "broke down: a step divided by (nearly) zero or made nothing better, and a restart did not help",
    Status.DIVERGED: "left the finite numbers, or grew beyond what the precision can take back",
}

_ADVICE = {
    Status.MAX_ITER: "raise max_iter, loosen rtol, or give a preconditioner; check that the matrix has what the method "
    "needs (CG: symmetric and definite)",
    Status.STAGNATED: "loosen rtol, use double precision, or check that the system has a solution: the matrix may be "
    "singular",
    Status.BREAKDOWN: "check that the matrix has what the method needs (CG: symmetric and definite) and that the "
    "system has a solution, or try another method",
    Status.DIVERGED: "check A, b and x0 for NaN and infinity and that the matrix has what the method needs, or try a "
    "direct method",
}


def describe(
    method: str,
    status: np.ndarray,
    steps: np.ndarray,
    norm: np.ndarray,
    bound: np.ndarray,
    *,
    least_squares: bool = False,
) -> str:
    """One sentence for success; for failures also the worst system and what to try."""
    kind_of_norm = "normal residual norm" if least_squares else "residual norm"
    status, steps, norm, bound = (np.atleast_1d(a) for a in (status, steps, norm, bound))
    bound = np.broadcast_to(bound, norm.shape)
    failed = status != Status.CONVERGED
    if not failed.any():
        return _success(method, steps, norm, bound, kind_of_norm)
    with np.errstate(all="ignore"):
        excess = np.where(failed, np.where(np.isfinite(norm), norm / bound, np.inf), -1)
    worst = np.unravel_index(np.argmax(np.nan_to_num(excess, nan=np.inf)), status.shape)
    kind = Status(int(status[worst]))
    where = ""
    if status.size > 1:
        index = worst[0] if len(worst) == 1 else tuple(int(i) for i in worst)
        where = f" in {int(failed.sum())} of {status.size} systems; the worst, system {index},"
    return (
        f"{method}{where} {_EXPLANATION[kind]} after {steps[worst]} iterations: {kind_of_norm} {norm[worst]:.3e}, "
        f"tolerance {bound[worst]:.3e}. To do: {_ADVICE[kind]}."
    )


def _success(method: str, steps: np.ndarray, norm: np.ndarray, bound: np.ndarray, kind_of_norm: str) -> str:
    if steps.size == 0:
        return f"{method}: no systems to solve."
    low, high = int(steps.min()), int(steps.max())
    taken = f"{high}" if low == high else f"{low} to {high}"
    systems = "" if steps.size == 1 else f" for all {steps.size} systems"
    return (
        f"{method} converged in {taken} iterations{systems}: {kind_of_norm} {norm.max():.3e}, tolerance "
        f"{bound.flat[int(norm.argmax())]:.3e}."
    )
