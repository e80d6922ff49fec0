"""Status of one system's solve."""

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
        """Did the iteration overflow or produce NaN, or start from such numbers?"""
        return self is Status.DIVERGED


# Inside the loop only: RUNNING, and CANDIDATE (the recurrence says converged; the true residual is still to be seen).
