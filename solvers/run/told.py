"""The loop's side of a monitored solve: what is told after a step, and what an answer does to the status of systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Array, Backend
from .monitor import StepReport
from .outcome import Status
from .stages import Round, StageSolve

_RUNNING, _CANDIDATE, _BREAKDOWN = int(Status.RUNNING), int(Status.CANDIDATE), int(Status.BREAKDOWN)
_ENDED = int(Status.STOPPED), int(Status.TIME_LIMIT)


@dataclass(eq=False)
class InnerSteps:
    """Tells the iterations of a method that takes several in a step, on the host, one system after the other.

    Attributes:
        steps: iterations before this step, `(systems, 1)`.
        told: iterations that were told last, likewise; None if none were.
        reason: the status that ends the solve, or 0.
    """

    solve: StageSolve
    report: StepReport
    round: Round
    steps: Array
    told: np.ndarray | None = None
    reason: int = 0

    @classmethod
    def of(cls, solve: StageSolve, report: StepReport, this: Round) -> InnerSteps | None:
        """For a method of the host; None for others, whose steps are told by the loop."""
        return cls(solve, report, this, this.tally.steps) if solve.method.on_host and report.monitor.may_stop else None

    @property
    def takes_x(self) -> bool:
        return self.report.takes_x

    def after(self, taken: np.ndarray, active: np.ndarray, x: np.ndarray | None, rr: np.ndarray) -> bool:
        """Tell an iteration of the active system; is it the last one?

        Args:
            taken: iterations of this step so far, `(systems, 1)`.
            x, rr: rows of this round and squared norms of their residuals; None and anything where not `takes_x`.
        """
        bk, this = self.solve.bk, self.round
        steps = self.steps + taken
        norm = np.sqrt(rr) * this.scale
        if not self.takes_x:
            self.reason = self.report.late_reason(bk)
            return self.reason > 0
        rows = _shown(self.solve, this, x)
        reason = self.report.after_step(bk, steps, norm, this.goal.norm * this.scale, active, rows)
        self.told, self.reason = steps, 0 if reason is None else int(np.max(reason, initial=0))
        return self.reason > 0


def after_step(
    solve: StageSolve,
    report: StepReport,
    this: Round,
    state: Any,
    status: Array,
    steps: Array,
    active: Array,
    inner: InnerSteps | None,
) -> Array:
    """Tell a step; the status, which may end systems."""
    bk = solve.bk
    if inner is not None and (inner.reason or (inner.told is not None and np.array_equal(inner.told, steps))):
        return _ended(bk, status, 0 * status + inner.reason) if inner.reason else status
    ran = this.start.tally.status == _RUNNING
    norm = bk.where(ran, bk.sqrt(state.rr) * this.scale, this.start.norm)
    rows = _shown(solve, this, solve.method.solution(bk, solve.M, state)) if report.takes_x else None
    reason = report.after_step(bk, steps, norm, this.goal.norm * this.scale, active, rows)
    return status if reason is None else _ended(bk, status, reason)


def unusable(bk: Backend, status: Array, norm: Array) -> Array:
    """Which systems were stopped at an x that is no number?"""
    return ((status == _ENDED[0]) | (status == _ENDED[1])) & ~bk.isfinite(norm)


def _shown(solve: StageSolve, this: Round, d: Array) -> Array:
    """x after `d` in this round, as it would be returned; in rows."""
    bk, start = solve.bk, this.start
    x = solve.without_null(start.x + bk.times(this.scale, d))
    return bk.flat(bk.where(start.tally.status == _RUNNING, x, start.x))


def _ended(bk: Backend, status: Array, reason: Array) -> Array:
    """None is restarted any more; whether x is within the tolerance is seen as always."""
    goes_on = (status == _RUNNING) | (status == _CANDIDATE) | (status == _BREAKDOWN)
    return bk.where(goes_on & (reason > 0), reason, status)
