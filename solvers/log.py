"""The logger "krylix": choices, set-up, fallbacks and failures at INFO; outcomes, kept set-ups, restarts at DEBUG.

Nothing is written and no text is made unless a program asks for it, `logging.basicConfig(level=logging.INFO)` say. A
solve that is not logged asks the logger once, by `log.isEnabledFor(DEBUG)`, which is a call of Python less than a
function here would be.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import ContextVar
from time import perf_counter
from typing import Any, TypeVar

T = TypeVar("T")

INFO, DEBUG = logging.INFO, logging.DEBUG
log = logging.getLogger("krylix")
log.addHandler(logging.NullHandler())


def log_choice(choice: Any) -> None:
    """Which method was chosen, and why: a `MethodChoice`."""
    if log.isEnabledFor(INFO):
        found = choice.explain()
        fallback = "" if found.fallback is None else f"; if it fails: {found.fallback}"
        log.info("auto chose %s: %s (%s%s)", found.method, found.why, found.row, fallback)


# The seconds of each set-up that is made within the solve that runs now: they are no part of its `solve_time`.
set_ups: ContextVar[list[float] | None] = ContextVar("set_ups", default=None)


def timed_set_up(what: str, make: Callable[[], T]) -> T:
    """What `make` returns, and how long it took."""
    within = set_ups.get()
    if within is None and not log.isEnabledFor(INFO):
        return make()
    began = perf_counter()
    made = make()
    seconds = perf_counter() - began
    if within is not None:
        within.append(seconds)
    if log.isEnabledFor(INFO):
        log.info("%s: set up %r in %.3g s", what, made, seconds)
    return made


def log_failure(message: str) -> None:
    """That a solve has failed, in the words of its error."""
    log.info("failed: %s", message)
