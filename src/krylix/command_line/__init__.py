"""The commands of `krylix`: what they read, run and report. Exit codes are in `__main__`."""

from .commands import run
from .terminal import SolveFailed, Streams, UsageError

__all__ = ["SolveFailed", "Streams", "UsageError", "run"]
