"""Report of an error that a callback raises inside a compiled program, ahead of XLA's own text.

XLA turns the error into a `JaxRuntimeError` of its own whose text ends with ours, of a Python callback below pages of
traceback, and before that JAX logs the traceback too: neither keeps the class or `__cause__`. So the message goes out
by itself, before both, and JAX's copy in the log is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache
from typing import Any

_LOGS = ("jax._src.callback", "jax._src.debugging")  # of pure_callback, and of debug.callback


def reporting(handler: Callable[..., None]) -> Callable[..., None]:
    """`handler`, whose errors are logged by `logging.getLogger("krylix")` before they reach XLA."""

    def report(*arrays: Any) -> None:
        try:
            handler(*arrays)
        except Exception as error:
            _leave_out_copies()
            error.reported = True  # type: ignore[attr-defined]
            logging.getLogger("krylix").error("%s: %s", type(error).__name__, error)
            raise

    return report


@cache
def _leave_out_copies() -> None:
    for name in _LOGS:
        logging.getLogger(name).addFilter(_is_new)


def _is_new(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not getattr(error, "reported", False)
