"""When an iteration stops: the test on the recurrence's residual, the only one, and the limits of each system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend
from ..methods.method import Goal
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
        largest = start / float(np.finfo(bk.dtype(goal.norm)).eps)
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


@dataclass(frozen=True)
class Limits:
    """Iteration limits; hashable, as programs depend on them.

    Attributes:
        rows: `(checkpoints, 1)` or, with limits of its own for each system, `(checkpoints, systems)`; increasing along
            the first axis. The last one ends the solve.
    """

    rows: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, counts: np.ndarray) -> Limits:
        """From an array `(checkpoints, 1 or systems)`."""
        return cls(tuple(tuple(int(c) for c in row) for row in counts))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def most(self) -> int:
        """Largest limit of any system."""
        return max(self.rows[-1], default=0)

    @property
    def last(self) -> int | np.ndarray:
        """Final limit: one number, or `(systems, 1)`."""
        return self.rows[-1][0] if len(self.rows[-1]) == 1 else np.array(self.rows[-1], np.int32)[:, None]

    def at_most(self, count: int) -> Limits:
        """Limits of at most so many iterations."""
        return Limits(tuple(tuple(min(limit, count) for limit in row) for row in self.rows))

    def of_systems(self, count: int) -> Limits:
        """Limits of a batch that repeats the systems, as under vmap."""
        own = len(self.rows[-1])
        return self if own <= 1 else Limits(tuple(row * (count // own) for row in self.rows))

    def table(self) -> np.ndarray:
        """`(1 or systems, checkpoints)`."""
        return np.array(self.rows, np.int32).T
