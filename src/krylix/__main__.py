"""The command `krylix`, also `python -m krylix`.

Exit codes: 0 done or converged, 1 not converged or no result, 2 wrong input, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress

from .command_line import SolveFailed, UsageError, run


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (that of this process if `argv` is None) and return its exit code."""
    report = _Report()
    try:
        code = run(sys.argv[1:] if argv is None else list(argv), report.say)
    except UsageError as error:
        code = _complain(error, 2)
    except SolveFailed as error:
        code = _complain(error, 1)
    except KeyboardInterrupt:
        code = _complain("interrupted", 130)
    except SystemExit as end:  # of --help and --version, which argparse prints
        code = int(end.code or 0)
    report.finish()
    return code if code or report.problem is None else _complain(report.problem, 1)


class _Report:
    """Lines on stdout.

    Where nobody reads on (`krylix ... | head`), the work is done all the same, and its outcome decides about the exit
    code. A full disk is a problem to speak of.
    """

    def __init__(self) -> None:
        self.problem: str | None = None
        self._ended = False

    def say(self, line: str) -> None:
        """One line now, whatever characters the encoding lacks (file names may have any)."""
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self._write(line.encode(encoding, "backslashreplace").decode(encoding) + "\n")

    def finish(self) -> None:
        """Let nothing be left for the end of the process, where nobody could see to a failure."""
        self._write("")

    def _write(self, text: str) -> None:
        if self._ended or sys.stdout is None:
            return
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except OSError as error:
            self._ended = True
            if not isinstance(error, BrokenPipeError):
                self.problem = f"the report cannot be written: {error.strerror or error}."
            with suppress(OSError, ValueError):  # what could not be written must not fail again
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(problem: object, code: int) -> int:
    if sys.stderr is not None:
        with suppress(OSError):
            print("krylix:", " ".join(str(problem).split()), file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
