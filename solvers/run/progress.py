"""Progress reports: a line on the terminal, or a user's function."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from .outcome import iterations_in_words

Progress = bool | Callable[[int, float, float], None]


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
