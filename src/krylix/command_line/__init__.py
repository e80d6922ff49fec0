"""The commands of `krylix`: what they read, run and report. Exit codes are in `__main__`."""

from .commands import run
from .errors import SolveFailed, UsageError
from .streams import Streams

__all__ = ["SolveFailed", "Streams", "UsageError", "run"]
