"""The logger "krylix": choices, set-up, fallbacks and failures at INFO; outcomes, kept set-ups, restarts at DEBUG.

Nothing is written and no text is made unless a program asks for it, `logging.basicConfig(level=logging.INFO)` say. A
solve that is not logged asks the logger once, by `log.isEnabledFor(DEBUG)`, which is a call of Python less than a
function here would be.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
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


def timed_set_up(what: str, make: Callable[[], T]) -> T:
    """What `make` returns, and how long it took."""
    if not log.isEnabledFor(INFO):
        return make()
    began = perf_counter()
    made = make()
    log.info("%s: set up %r in %.3g s", what, made, perf_counter() - began)
    return made


def log_failure(message: str) -> None:
    """That a solve has failed, in the words of its error."""
    log.info("failed: %s", message)
