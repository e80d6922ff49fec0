"""The command `krylix`, also `python -m krylix`.

Exit codes: 0 done or converged, 1 not converged or no result, 2 wrong input, 130 interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

from .command_line import SolveFailed, Streams, UsageError, run


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line (that of this process if `argv` is None) and return its exit code."""
    report = Streams()
    try:
        code = run(sys.argv[1:] if argv is None else list(argv), report)
    except UsageError as error:
        code = _complain(error, 2)
    except SolveFailed as error:
        code = _complain(error, 1)
    except MemoryError as error:
        code = _complain(f"there is not enough memory: {error}".removesuffix(": "), 1)
    except KeyboardInterrupt:
        code = _complain("interrupted", 130)
    except SystemExit as end:  # of --help and --version, which argparse prints
        code = int(end.code or 0)
    report.finish()
    return code if code or report.problem is None else _complain(report.problem, 1)


def _complain(problem: object, code: int) -> int:
    if sys.stderr is not None:
        with suppress(OSError):
            print("krylix:", " ".join(str(problem).split()), file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
