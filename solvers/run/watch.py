"""Monitored solves: progress, a callback and a time limit after each iteration, and their effect on the loop.

All three are one call of the host after each step of the loop. What only shows progress returns nothing; where the
loop may be stopped, the call returns the reason for each system, which the loop takes for its status.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend
from .outcome import Status, iterations_in_words

_INT32 = np.dtype(np.int32)
_WRAP = (1 << 31) - 1  # milliseconds that a program carries as int32: 24 days
_MAX_ITER, _DIVERGED, _STOPPED, _TIME_LIMIT = (
    int(s) for s in (Status.MAX_ITER, Status.DIVERGED, Status.STOPPED, Status.TIME_LIMIT)
)
Progress = bool | Callable[[int, float, float], None]


class IterationState(NamedTuple):
    """The state of a solve after an iteration, which a `callback` gets.

    Of one system these are numbers, of a batch NumPy arrays of the shape of the batch axes. Systems that have ended
    keep the numbers of their last iteration.

    Attributes:
        iterations: iterations of the method so far, an int.
        residual_norm: the residual norm by the method's recurrence, a float; the true one decides at the end.
        goal: the residual norm at which this round ends, a float: the tolerance, and half of it after a restart.
        x: the current approximation, in the library, shape, axis and dtype of the x that the solve returns, in its own
            memory. JAX calls from inside its program: a callback may read this x (`np.asarray(x)`), but
            operations of JAX in it may wait for the program for ever; there x lies on the CPU.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> norms = []
        >>> result = linear_solve(np.diag([1.0, 2.0, 3.0]), np.ones(3), method="CG",
        ...                       callback=lambda state: norms.append(state.residual_norm))
        >>> len(norms) == result.iterations
        True
    """

    iterations: Any
    residual_norm: Any
    goal: Any
    x: Any


Callback = Callable[[IterationState], bool | None]


@dataclass(frozen=True, eq=False)
class Monitor:
    """Progress, callback and time limit of one solve.

    Attributes:
        progress: True for a line on stderr, a function of (iteration, residual norm, goal), or False.
        callback: a function of an `IterationState`, or None.
        time_limit: seconds, or None.
        since: when the solve was called, by `time.monotonic`.
        in_numpy: does the callback get NumPy's arrays, though the library is another one?
    """

    progress: Progress
    callback: Callback | None
    time_limit: float | None
    since: float
    in_numpy: bool = False

    @property
    def may_stop(self) -> bool:
        """Can it end the loop?"""
        return self.callback is not None or self.time_limit is not None

    def after(self, taken: np.ndarray) -> Monitor:
        """The monitor of a solve that continues after `taken` iterations, which its callback counts too."""
        users = self.callback
        if users is None:
            return self

        def callback(state: IterationState) -> bool | None:
            several = np.ndim(state.iterations) > 0
            before = taken.reshape(np.shape(state.iterations)) if several else int(taken.max())
            return users(state._replace(iterations=state.iterations + before))

        return replace(self, callback=callback)

    def is_over(self) -> bool:
        """Is the time over, counted from the call?"""
        return self.time_limit is not None and time.monotonic() - self.since > self.time_limit


def monitor_of(progress: Progress | None, callback: Any, time_limit: Any) -> Monitor | None:
    """The monitor of a solve; None without progress, callback and time limit.

    Raises:
        TypeError, ValueError: an argument that is not valid.
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of one argument, the state after an iteration; got {callback!r}.")
    if time_limit is not None:
        if isinstance(time_limit, bool) or not isinstance(time_limit, int | float | np.integer | np.floating):
            raise TypeError(f"time_limit must be a number of seconds, or None; got {time_limit!r}.")
        if not time_limit > 0:
            raise ValueError(f"time_limit must be more than 0 seconds; got {time_limit!r}.")
        try:
            seconds = float(time_limit)
        except OverflowError:
            seconds = math.inf
        time_limit = seconds if math.isfinite(seconds) else None  # no solve reaches it
    if progress in (False, None) and callback is None and time_limit is None:
        return None
    return Monitor(progress or False, callback, time_limit, time.monotonic())


@dataclass(frozen=True, eq=False)
class StepReport:
    """Report of each step of one attempt's loop.

    Attributes:
        monitor: of the solve.
        show: gets (iteration, residual norm, goal) of the slowest running system; None without progress.
        present: x of rows `(systems, n)` of NumPy, as the user has it.
        batch: shape of the batch axes.
        errors: of the callback, which end the loop; None where they are raised in it.
        begin: `(1, 1)` int32, when the compiled program that this is part of began; None where `monitor.since` says it.
    """

    monitor: Monitor
    show: Callable[[int, float, float], None] | None
    present: Callable[[np.ndarray], Any]
    batch: tuple[int, ...]
    errors: list[Exception] | None = None
    begin: Array | None = None

    @classmethod
    def of(
        cls, monitor: Monitor, name: str, present: Callable[[np.ndarray], Any], batch: tuple[int, ...], compiled: bool
    ) -> StepReport:
        """For a method of this name, in a compiled function or not."""
        progress = monitor.progress
        show = None if progress is False else progress if callable(progress) else _Line(name)
        return cls(monitor, show, present, batch, None if compiled else [])

    @property
    def takes_x(self) -> bool:
        """Does a callback get x?"""
        return self.monitor.callback is not None

    def raise_errors(self) -> None:
        """Raise the error of the callback after the loop, because a library would wrap it."""
        if self.errors:
            raise self.errors[0]

    def begun(self, bk: Backend, norm: Array) -> StepReport:
        """The report of a solve that begins here: a program runs later, and more than once.

        Args:
            norm: of b, without which the program cannot have begun.
        """
        if self.monitor.time_limit is None or not bk.compiled(norm):
            return self
        (begin,) = bk.host_call(lambda _: (_milliseconds(),), [((1, 1), _INT32)], norm)
        return replace(self, begin=begin)

    def begun_on_host(self) -> StepReport:
        """The report of a solve that the host begins here, at each call of a compiled program."""
        return self if self.errors is not None else replace(self, monitor=replace(self.monitor, since=time.monotonic()))

    def after_step(
        self, bk: Backend, steps: Array, norm: Array, goal: Array, active: Array, x: Array | None
    ) -> Array | None:
        """Report a step: `(systems, 1)` int32, the status that ends each system or 0; None if nothing can.

        Args:
            x: rows, where `takes_x`.
        """
        numbers = (steps, norm, goal, active)
        if not self.monitor.may_stop:
            bk.host_call(self._show, (), *numbers)
            return None
        more = [array for array in (x, self.begin) if array is not None]
        (reason,) = bk.host_call(self._reason, [(tuple(int(k) for k in steps.shape), _INT32)], *numbers, *more)
        return reason if bk.communicator is None else bk.communicator.max(reason)  # all members stop, or none does

    def _show(self, steps: np.ndarray, norm: np.ndarray, goal: np.ndarray, active: np.ndarray) -> None:
        if self.show is None:
            return
        running = np.flatnonzero(active[:, 0])
        with np.errstate(all="ignore"):
            slowest = running[np.argmax((norm / goal)[running, 0])] if len(running) else 0
        self.show(int(steps[slowest, 0]), float(norm[slowest, 0]), float(goal[slowest, 0]))

    def _reason(
        self, steps: np.ndarray, norm: np.ndarray, goal: np.ndarray, active: np.ndarray, *more: np.ndarray
    ) -> tuple[np.ndarray]:
        reason = 0
        if active.any():  # none are in a batch of vmap that goes on for others
            self._show(steps, norm, goal, active)
            if self.takes_x and self._callback_stops(steps, norm, goal, more[0]):
                reason = _STOPPED
            elif self._is_late(None if self.begin is None else more[-1]):
                reason = _TIME_LIMIT
        return (np.full(steps.shape, reason, np.int32),)

    def _callback_stops(self, steps: np.ndarray, norm: np.ndarray, goal: np.ndarray, x: np.ndarray) -> bool:
        callback: Any = self.monitor.callback
        numbers = (steps, norm, np.broadcast_to(goal, norm.shape))
        steps, norm, goal = (np.array(a).reshape(self.batch) if self.batch else a.item() for a in numbers)
        state = IterationState(steps, norm, goal, self.present(x))
        try:
            answer = callback(state)
            if answer is None or isinstance(answer, bool | np.bool_):
                return bool(answer)
            raise TypeError(
                f"callback returned {answer!r}; expected True to stop the solve, False or None to go on. A function "
                "that returns something else goes into one that returns None."
            )
        except Exception as error:
            if self.errors is None:
                raise
            self.errors.append(error)
            return True

    def late_reason(self, bk: Backend) -> int:
        """TIME_LIMIT where the time is over, else 0; on the host."""
        return _TIME_LIMIT if self._is_late(None if self.begin is None else bk.to_numpy(self.begin)) else 0

    def _is_late(self, begin: np.ndarray | None) -> bool:
        limit = self.monitor.time_limit
        if begin is None or limit is None:
            return self.monitor.is_over()
        return (int(_milliseconds()[0, 0]) - int(begin.reshape(-1)[0])) % _WRAP > 1000 * limit


class Round(NamedTuple):
    """Data of one round that the report of its steps needs."""

    bk: Backend
    report: StepReport
    x: Array  # at its start, with the true residual norm `norm`
    norm: Array
    goal: Array  # residual norm at which it ends
    unit: Array  # of its corrections
    running: Array
    without_null: Callable[[Array], Array]

    def after_step(self, steps: Array, rr: Array, active: Array, d: Callable[[], Array]) -> Array | None:
        """Report a step: `(systems, 1)`, the status that ends each system or 0; None if nothing can.

        Args:
            rr, d: squared residual norm and correction so far, in units of the round.
        """
        bk, x = self.bk, None
        norm = bk.where(self.running, bk.sqrt(rr) * self.unit, self.norm)
        if self.report.takes_x:  # as it would be returned
            x = self.without_null(self.x + bk.times(self.unit, d()))
            x = bk.flat(bk.where(self.running, x, self.x))
        return self.report.after_step(bk, steps, norm, self.goal, active, x)


@dataclass(eq=False)
class InnerSteps:
    """Report of a method with several iterations per step, on the host, one system after the other.

    Attributes:
        steps: iterations before this step, `(systems, 1)`.
        reported: iterations that were reported last, likewise; None if none were.
        reason: the status that ends the solve, or 0.
    """

    round: Round
    steps: np.ndarray
    reported: np.ndarray | None = None
    reason: int = 0

    @property
    def takes_x(self) -> bool:
        return self.round.report.takes_x

    def after(self, taken: np.ndarray, active: np.ndarray, x: np.ndarray | None, rr: np.ndarray) -> bool:
        """Report an iteration of the active system; is it the last one?

        Args:
            taken: iterations of this step so far, `(systems, 1)`.
            x, rr: corrections of this round and squared norms of their residuals; None and anything where not
                `takes_x`.
        """
        if not self.takes_x:
            self.reason = self.round.report.late_reason(self.round.bk)
            return self.reason > 0
        self.reported = self.steps + taken
        reason = self.round.after_step(self.reported, rr, active, lambda: x)
        self.reason = 0 if reason is None else int(np.max(reason, initial=0))
        return self.reason > 0

    def after_step(self, steps: np.ndarray, rr: Array, active: Array, d: Callable[[], Array]) -> Array | None:
        """As `Round.after_step`, unless the last of these iterations has been reported."""
        if self.reason or (self.reported is not None and np.array_equal(self.reported, steps)):
            return 0 * steps + self.reason
        return self.round.after_step(steps, rr, active, d)


def ended(bk: Backend, status: Array, reason: Array) -> Array:
    """The status, or the reason for systems that would continue; a true residual may still be small enough."""
    return bk.where((reason > 0) & (status != _MAX_ITER) & (status != _DIVERGED), reason, status)


def unusable(bk: Backend, status: Array, norm: Array) -> Array:
    """Which systems were stopped at an x that is not finite?"""
    return ((status == _STOPPED) | (status == _TIME_LIMIT)) & ~bk.isfinite(norm)


def _milliseconds() -> np.ndarray:
    return np.full((1, 1), int(time.monotonic() * 1000) % _WRAP, np.int32)


class _Line:
    """One line on stderr, rewritten at most ten times a second and at the end."""

    def __init__(self, method: str) -> None:
        self.method, self.last, self.start = method, 0.0, 0.0

    def __call__(self, iteration: int, norm: float, goal: float) -> None:
        now, done = time.monotonic(), not norm > goal
        if now - self.last < 0.1 and not done:
            return
        self.last = now
        if not self.start > 0:
            self.start = norm
        whole = np.log(self.start / goal) if goal > 0 and self.start > goal else 0.0
        part = 1.0 if done else np.clip(np.log(self.start / norm) / whole, 0, 1) if whole and norm > 0 else 0.0
        bar = "#" * int(24 * part)
        end = "\n" if done else ""
        sys.stderr.write(
            f"\r{self.method} [{bar:<24}] {iterations_in_words(iteration)}, residual {norm:.2e}, goal {goal:.2e}{end}"
        )
        sys.stderr.flush()
