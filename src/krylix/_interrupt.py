"""Ctrl-C while the command `krylix` starts: imports take most of a second, and no `try` of ours is around them."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, NoReturn


def leave_quietly_if_a_command() -> None:
    """Make Ctrl-C end this process with exit code 130 and one line, if it is the command line and nothing else.

    Not by KeyboardInterrupt, which extension modules turn into errors of their own while they are imported.
    """
    if _is_the_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def _is_the_command() -> bool:
    started = sys.argv[0] if getattr(sys, "argv", None) else ""
    if started == "-m":  # as long as Python looks for the module
        return any(word in ("krylix", "-mkrylix") for word in sys.orig_argv)
    return Path(started).name.lower() in ("krylix", "krylix.exe")


def _leave(*_: Any) -> NoReturn:
    try:
        os.write(2, b"krylix: interrupted\n")
    finally:
        os._exit(130)
