"""Stopping test on the recurrence's residual; the only one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend
from .method import Goal
from .outcome import Status

# plain integers: arrays of some libraries do not mix with enums
_MAX_ITER, _BREAKDOWN, _DIVERGED, _CANDIDATE = (
    int(s) for s in (Status.MAX_ITER, Status.BREAKDOWN, Status.DIVERGED, Status.CANDIDATE)
)


class StoppingRule(NamedTuple):
    """Stopping rule of one round."""

    bk: Backend
    limit: int | Array  # of iterations
    enough: Array  # squared residual norm to be reached
    largest: Array  # squared residual norm that the precision can take back

    @classmethod
    def of(cls, bk: Backend, goal: Goal, start: Array, limit: int | Array) -> StoppingRule:
        """The rule for a round from the residual norm `start`."""
        largest = start / np.finfo(bk.dtype(goal.norm)).eps
        return cls(bk, limit, goal.norm * goal.norm, largest * largest)

    def conditions(self, state: Any, steps: Array) -> tuple[tuple[Array, int], ...]:
        """Pairs (condition to continue, status if it fails); the last failing one counts."""
        bounded = self.bk.isfinite(state.rr) & (state.rr <= self.largest)  # not by a negation, which loses NaN
        return (
            (~state.broken, _BREAKDOWN),
            (steps < self.limit, _MAX_ITER),
            (state.rr > self.enough, _CANDIDATE),
            (bounded, _DIVERGED),
        )

    def status(self, state: Any, steps: Array) -> Array:
        """RUNNING, or the reason why a system stops."""
        bk, status = self.bk, 0 * steps
        for goes_on, reason in self.conditions(state, steps):
            status = bk.where(goes_on, status, reason)
        return status
