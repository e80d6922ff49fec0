"""The logger "krylix", and warnings at the caller's line.

Choices, set-up, fallbacks and failures are logged at INFO; outcomes, kept set-ups and restarts at DEBUG.

Nothing is written and no text is made unless a program asks for it, `logging.basicConfig(level=logging.INFO)` say. A
solve that is not logged asks the logger once, by `log.isEnabledFor(DEBUG)`, which is a call of Python less than a
function here would be.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from contextvars import ContextVar
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")

INFO, DEBUG = logging.INFO, logging.DEBUG
log = logging.getLogger("krylix")
log.addHandler(logging.NullHandler())


def log_choice(choice: Any) -> None:
    """Log a `MethodChoice`: which method was chosen, and why."""
    if log.isEnabledFor(INFO):
        explanation = choice.explain()
        fallback = "" if explanation.fallback is None else f"; if it fails: {explanation.fallback}"
        log.info("auto chose %s: %s (%s%s)", explanation.method, explanation.why, explanation.row, fallback)


# Seconds of each set-up inside the current solve, which do not count as its `solve_time`.
set_ups: ContextVar[list[float] | None] = ContextVar("set_ups", default=None)


def timed_set_up(what: str, make: Callable[[], T]) -> T:
    """`make()`, whose time is recorded and logged."""
    within = set_ups.get()
    if within is None and not log.isEnabledFor(INFO):
        return make()
    began = perf_counter()
    result = make()
    seconds = perf_counter() - began
    if within is not None:
        within.append(seconds)
    if log.isEnabledFor(INFO):
        log.info("%s: set up %r in %.3g s", what, result, seconds)
    return result


def log_failure(message: str) -> None:
    """Log that a solve has failed, in the words of its error."""
    log.info("failed: %s", message)


_LIBRARIES = (__name__.partition(".")[0], "tensorflow", "torch", "jax")  # frames between the user and us


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line of the first caller outside this library."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
