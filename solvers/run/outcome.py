"""Outcome of an iteration, in rows, and the status of one system's solve."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from ...backends import Array


class Status(IntEnum):
    """How the solve of one system ended: `SolveResult.status` of one system, and the numbers in its arrays.

    Attributes:
        CONVERGED: the true residual is within the tolerance.
        MAX_ITER: the limit of iterations was reached.
        STAGNATED: no more progress was made before the tolerance.
        BREAKDOWN: a step divided by (nearly) zero or made nothing better, and a restart did not help.
        DIVERGED: the numbers overflowed, or grew too large for this precision.
        STOPPED: the callback stopped the solve. No failure: nothing is raised, and x is the one that the callback got.
        TIME_LIMIT: the time limit was reached, which is a failure.
        RUNNING: inside the loop only.
        CANDIDATE: inside the loop only: converged by the recurrence; the true residual is still to be computed.

    Examples:
        >>> import numpy as np, krylix
        >>> result = krylix.linear_solve(np.diag([1.0, 2.0]), np.ones(2), method="CG", max_iter=1, on_failure="status")
        >>> result.status is krylix.Status.MAX_ITER, result.status.name, int(result.status)
        (True, 'MAX_ITER', 2)
    """

    RUNNING = 0
    CONVERGED = 1
    MAX_ITER = 2
    STAGNATED = 3
    BREAKDOWN = 4
    DIVERGED = 5
    CANDIDATE = 6
    STOPPED = 7
    TIME_LIMIT = 8

    @property
    def diverged(self) -> bool:
        """Did the iteration overflow or produce NaN, or start from such numbers?

        Examples:
            >>> import krylix
            >>> krylix.Status.MAX_ITER.diverged
            False
        """
        return self is Status.DIVERGED


def has_failed(status: Any, may_be_stopped: bool = True) -> Any:
    """Which systems have failed? Not those that a callback has stopped, if there is one."""
    failed = status != int(Status.CONVERGED)
    return failed & (status != int(Status.STOPPED)) if may_be_stopped else failed


class Outcome(NamedTuple):
    """Outcome of a solve; every array may have a leading axis for checkpoints."""

    x: Array  # (batch, n)
    residual: Array  # (batch, n), b - A x
    norm: Array  # (batch, 1)
    bound: Array  # (batch, 1), residual norm that counts as converged
    attainable: Array  # (batch, 1), attainable residual norm; 0 where it was not computed
    null_part: Array  # (batch, 1), norm of the component of b in known null vectors of A^H, which was subtracted
    consistent: Array  # (batch, 1), 1 where that component is no more than rounding, else 0
    status: Array  # (batch, 1)
    steps: Array  # (batch, 1)
    products: Array  # (batch, 1)
    singular: Array  # (batch, 1), numbers of `Singularity`
    rung: Array  # (batch, 1), twice the number of the rung that made x, plus 1 where it followed one that took long
    history: Any  # (most steps + 1, batch), NaN where nothing was recorded, or ()


def iterations_in_words(least: int, most: int | None = None) -> str:
    """`1 iteration`, `3 iterations`, `3 to 5 iterations`."""
    most = least if most is None else most
    number = f"{most}" if least == most else f"{least} to {most}"
    return f"{number} iteration" if number == "1" else f"{number} iterations"
