"""Watched solves: progress, a callback and a time limit after each iteration, and what they do to the loop.

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
        x: the current approximation, in the library, shape, axis and dtype of the x that the solve returns, in memory
            of its own. JAX calls from inside of its program: a callback may read this x (`np.asarray(x)`), but
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
    """What a caller wants to be told of one solve, and what stops it.

    Attributes:
        progress: True for a line on stderr, a function of (iteration, residual norm, goal), or False.
        callback: a function of an `IterationState`, or None.
        time_limit: seconds, or None.
        since: when the solve was asked for, by `time.monotonic`.
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
        """For a solve that goes on after so many iterations, of each system: the callback is told of both together."""
        told = self.callback
        if told is None:
            return self
        return replace(self, callback=lambda state: told(state._replace(iterations=_sum(state.iterations, taken))))

    def is_over(self) -> bool:
        """Is the time over? Where it is counted from the call."""
        return self.time_limit is not None and time.monotonic() - self.since > self.time_limit


def _sum(iterations: Any, taken: np.ndarray) -> Any:
    return iterations + taken.reshape(np.shape(iterations)) if np.ndim(iterations) else iterations + int(taken.max())


def monitor_of(progress: Progress | None, callback: Any, time_limit: Any) -> Monitor | None:
    """The checked arguments of a solve; None where nothing is asked for.

    Raises:
        TypeError, ValueError: an argument that is none.
    """
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of one argument, the state after an iteration; got {callback!r}.")
    if time_limit is not None:
        time_limit = _seconds(time_limit)
    if progress in (False, None) and callback is None and time_limit is None:
        return None
    return Monitor(progress or False, callback, time_limit, time.monotonic())


def _seconds(time_limit: Any) -> float | None:
    """The checked limit; None for more than a float holds, which no solve reaches.

    Raises:
        TypeError, ValueError: it is none.
    """
    real = isinstance(time_limit, int | float | np.integer | np.floating)
    if isinstance(time_limit, bool) or not real:
        raise TypeError(f"time_limit must be a number of seconds, or None; got {time_limit!r}.")
    if not time_limit > 0:
        raise ValueError(f"time_limit must be more than 0 seconds; got {time_limit!r}.")
    try:
        seconds = float(time_limit)
    except OverflowError:
        return None
    return None if math.isinf(seconds) else seconds


@dataclass(frozen=True, eq=False)
class StepReport:
    """What the loop of one attempt calls after each step.

    Attributes:
        monitor: what was asked for.
        show: shows progress, or None.
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
        return cls(monitor, show_progress(monitor.progress, name), present, batch, None if compiled else [])

    def raise_errors(self) -> None:
        """Raise what the callback has raised, after the loop: a library would wrap it."""
        if self.errors:
            raise self.errors[0]

    @property
    def takes_x(self) -> bool:
        """Does somebody want to see x?"""
        return self.monitor.callback is not None

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
        """Tell; `(systems, 1)` int32, the status that ends each system or 0, None if nothing can.

        Args:
            x: rows, where `takes_x`.
        """
        told = (steps, norm, goal, active)
        if not self.monitor.may_stop:
            bk.host_call(self._shown, (), *told)
            return None
        more = (() if x is None else (x,), () if self.begin is None else (self.begin,))
        (reason,) = bk.host_call(self._asked, [(tuple(int(k) for k in steps.shape), _INT32)], *told, *more[0], *more[1])
        return reason if bk.communicator is None else bk.communicator.max(reason)  # all stop, or none does

    def _shown(self, steps: np.ndarray, norm: np.ndarray, goal: np.ndarray, active: np.ndarray) -> None:
        if self.show is None:
            return
        running = np.flatnonzero(active[:, 0])
        with np.errstate(all="ignore"):
            slowest = running[np.argmax((norm / goal)[running, 0])] if len(running) else 0
        self.show(int(steps[slowest, 0]), float(norm[slowest, 0]), float(goal[slowest, 0]))

    def _asked(
        self, steps: np.ndarray, norm: np.ndarray, goal: np.ndarray, active: np.ndarray, *more: np.ndarray
    ) -> tuple[np.ndarray]:
        reason = 0
        if not active.any():  # of a batch that the library made, one that goes on with the others
            return (np.zeros(steps.shape, np.int32),)
        self._shown(steps, norm, goal, active)
        if self.monitor.callback is not None and self._stops(steps, norm, goal, more[0]):
            reason = _STOPPED
        elif self.monitor.time_limit is not None:
            begin = more[-1] if self.begin is not None else None
            reason = _TIME_LIMIT if self._is_late(begin) else 0
        return (np.full(steps.shape, reason, np.int32),)

    def _stops(self, steps: np.ndarray, norm: np.ndarray, goal: np.ndarray, x: np.ndarray) -> bool:
        """Call the callback.

        Raises:
            TypeError: it returned something else than True, False or None.
        """
        if self.monitor.callback is None:
            return False
        goals = np.broadcast_to(goal, norm.shape)
        state = IterationState(self._each(steps), self._each(norm), self._each(goals), self.present(x))
        try:
            return self._said(self.monitor.callback(state))
        except Exception as error:
            if self.errors is None:
                raise
            self.errors.append(error)
            return True

    def _said(self, said: Any) -> bool:
        """
        Raises:
            TypeError: it is neither True, False nor None.
        """
        if said is None or isinstance(said, bool | np.bool_):
            return bool(said)
        raise TypeError(
            f"callback returned {said!r}; expected True to stop the solve, False or None to go on. A function that "
            "returns something else goes into one that returns None."
        )

    def _each(self, numbers: np.ndarray) -> Any:
        return numbers.item() if not self.batch else np.array(numbers).reshape(self.batch)

    def late_reason(self, bk: Backend) -> int:
        """TIME_LIMIT where the time is over, else 0; on the host."""
        late = self.monitor.time_limit is not None and self._is_late(
            None if self.begin is None else bk.to_numpy(self.begin)
        )
        return _TIME_LIMIT if late else 0

    def _is_late(self, begin: np.ndarray | None) -> bool:
        if begin is None:
            return self.monitor.is_over()
        limit: Any = self.monitor.time_limit
        return (int(_milliseconds()[0, 0]) - int(begin.reshape(-1)[0])) % _WRAP > 1000 * limit


class Round(NamedTuple):
    """Of one round, what the report of its steps needs."""

    bk: Backend
    report: StepReport
    x: Array  # at its start, with the true residual norm `norm`
    norm: Array
    goal: Array  # residual norm at which it ends
    unit: Array  # of its corrections
    running: Array
    without_null: Callable[[Array], Array]

    def tell(self, steps: Array, rr: Array, active: Array, d: Callable[[], Array]) -> Array | None:
        """Report a step: `(systems, 1)`, the status that ends each system or 0; None if nothing can.

        Args:
            rr, d: squared residual norm and correction so far, in units of the round.
        """
        bk = self.bk
        norm = bk.where(self.running, bk.sqrt(rr) * self.unit, self.norm)
        x = self._shown(d()) if self.report.takes_x else None
        return self.report.after_step(bk, steps, norm, self.goal, active, x)

    def _shown(self, d: Array) -> Array:
        """x after the correction, as it would be returned; in rows."""
        x = self.without_null(self.x + self.bk.times(self.unit, d))
        return self.bk.flat(self.bk.where(self.running, x, self.x))


@dataclass(eq=False)
class InnerSteps:
    """Reports the iterations of a method that takes several in a step, on the host, one system after the other.

    Attributes:
        steps: iterations before this step, `(systems, 1)`.
        told: iterations that were reported last, likewise; None if none were.
        reason: the status that ends the solve, or 0.
    """

    round: Round
    steps: np.ndarray
    told: np.ndarray | None = None
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
        self.told = self.steps + taken
        reason = self.round.tell(self.told, rr, active, lambda: x)
        self.reason = 0 if reason is None else int(np.max(reason, initial=0))
        return self.reason > 0

    def tell(self, steps: np.ndarray, rr: Array, active: Array, d: Callable[[], Array]) -> Array | None:
        """As `Round.tell`, unless the last of these iterations has been reported."""
        known = self.told is not None and np.array_equal(self.told, steps)
        return 0 * steps + self.reason if self.reason or known else self.round.tell(steps, rr, active, d)


def ended(bk: Backend, status: Array, reason: Array) -> Array:
    """The status, with the reason for systems that would go on otherwise; a true residual may still be small enough."""
    return bk.where((reason > 0) & (status != _MAX_ITER) & (status != _DIVERGED), reason, status)


def unusable(bk: Backend, status: Array, norm: Array) -> Array:
    """Which systems were stopped at an x that is no number?"""
    return ((status == _STOPPED) | (status == _TIME_LIMIT)) & ~bk.isfinite(norm)


def _milliseconds() -> np.ndarray:
    return np.full((1, 1), int(time.monotonic() * 1000) % _WRAP, np.int32)


def show_progress(progress: Progress, method: str) -> Callable[[int, float, float], None] | None:
    """The function that gets (iteration, residual norm, goal) of the slowest running system; None if not asked for.

    Args:
        progress: False for none, True for a line on stderr, or a function.
        method: name of the method.
    """
    if progress is False:
        return None
    return progress if callable(progress) else _Line(method)


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
