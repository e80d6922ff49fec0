"""The commands of `krylix`: what they read, run and report. Printing and exit codes are in `__main__`."""

from .commands import run
from .errors import SolveFailed, UsageError

__all__ = ["SolveFailed", "UsageError", "run"]
