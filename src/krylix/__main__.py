"""The command `krylix`, also `python -m krylix`: exit code 0 done or converged, 1 not converged, 2 wrong input."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from .command_line import SolveFailed, UsageError, run


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (that of this process if `argv` is None) and return its exit code."""
    try:
        return run(sys.argv[1:] if argv is None else list(argv), _say)
    except UsageError as error:
        return _complain(error, 2)
    except SolveFailed as error:
        return _complain(error, 1)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except BrokenPipeError:  # the reader of a pipe has gone: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _say(line: str) -> None:
    """One line on stdout now, whatever characters its encoding lacks (file names may have any)."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def _complain(problem: object, code: int) -> int:
    print("krylix:", " ".join(str(problem).split()), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
