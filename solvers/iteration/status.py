"""How the solve of one system ended."""

from __future__ import annotations

from enum import IntEnum


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

EXPLANATION = {
    Status.MAX_ITER: "reached the limit of iterations",
    Status.STAGNATED: "stopped making progress before the tolerance, at the limit of this precision or of this method",
    Status.BREAKDOWN: "broke down: a step divided by (nearly) zero or made nothing better, and a restart did not help",
    Status.DIVERGED: "left the finite numbers, or grew beyond what the precision can take back",
}

ADVICE = {
    Status.MAX_ITER: "raise max_iter, loosen rtol, or give a preconditioner; check that the matrix has what the method "
    "needs (CG: symmetric and definite)",
    Status.STAGNATED: "loosen rtol, use double precision, or check that the system has a solution: the matrix may be "
    "singular",
    Status.BREAKDOWN: "check that the matrix has what the method needs (CG: symmetric and definite) and that the "
    "system has a solution, or try another method",
    Status.DIVERGED: "check A, b and x0 for NaN and infinity and that the matrix has what the method needs, or try a "
    "direct method",
}
