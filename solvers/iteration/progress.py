"""Progress reports: a line on the terminal, or a user's callback."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from .method import Method


def make_report(progress: bool | Callable[[int, float, float], None], method: Method) -> Callable[..., None] | None:
    """Make the callback of the loop, called after each iteration with arrays (steps, norm, goal, active), or None.

    Args:
        progress: False for none, True for a line on stderr, or a function of (iteration, residual norm, tolerance) of
            the slowest running system.
        method: the method, for its name.
    """
    if progress is False or progress is None:
        return None
    show = progress if callable(progress) else _Line(method.name)

    def report(steps: np.ndarray, norm: np.ndarray, goal: np.ndarray, active: np.ndarray) -> None:
        running = np.flatnonzero(active[:, 0])
        with np.errstate(all="ignore"):
            slowest = running[np.argmax((norm / goal)[running, 0])] if len(running) else 0
        show(int(steps[slowest, 0]), float(norm[slowest, 0]), float(goal[slowest, 0]))

    return report


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
            f"\r{self.method} [{bar:<24}] {iteration} iterations, residual {norm:.2e}, goal {goal:.2e}{end}"
        )
        sys.stderr.flush()
