"""What each command does."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence

from ..solvers import METHODS, PRECONDITIONERS
from . import facts, matrix_facts, report
from .arguments import parse
from .files import VECTOR_NAMES, check_output, write
from .inspected import load as load_matrix
from .picture import check_picture, draw
from .solve import solve, start_library
from .storage import describe as describe_storage
from .system import load

Say = Callable[[str], None]


def run(argv: Sequence[str], say: Say) -> int:
    """Run one command line; lines of its report go to `say`. Returns the exit code, 0 or 1.

    Raises:
        UsageError, SolveFailed: with what to say; exit codes 2 and 1.
        SystemExit: after --help and --version.
    """
    options = parse(argv)
    match options.command:
        case "solve":
            return _solve(options, say)
        case "inspect":
            return _inspect(options, say)
        case _:
            return _methods(say)


def _methods(say: Say) -> int:
    row = "{:<18} {:<11} {:<15} {:<16} {}".format
    say(row("method", "matrix", "numbers", "preconditioner", "products with A^T").rstrip())
    say(row("auto", "any", "real, complex", "any", "no"))
    for name, method in METHODS.items():
        matrix = "symmetric" if method.needs_hermitian else "any"
        numbers = "real, complex" if method.takes_complex else "real"
        kind = matrix if method.takes_preconditioner else "none"
        say(row(name, matrix, numbers, kind, "yes" if method.needs_transpose else "no"))
    say("biCG-stab(l) exists for every l >= 1; symmetric means Hermitian where complex; auto looks at the matrix.")
    say(f"preconditioners: auto, {', '.join(PRECONDITIONERS)}")
    return 0


def _solve(options: argparse.Namespace, say: Say) -> int:
    if options.output is not None:
        check_output(options.output, VECTOR_NAMES)
    started = time.perf_counter()
    system = load(options)
    reading = time.perf_counter() - started
    _say_lines(say, facts.describe(system))
    start_library(options.backend)
    outcome = solve(options, system)
    _say_lines(say, report.describe(system, outcome, options.backend, options.preconditioner))
    _say_lines(say, [("time", f"{outcome.seconds:.3g} s to set up and solve, {reading:.3g} s to read")])
    if options.output is not None:
        write(options.output, outcome.x)
        _say_lines(say, [("output", f"x, shape {outcome.x.shape}, written to {options.output}")])
    return 0 if outcome.converged and outcome.confirmed else 1


def _inspect(options: argparse.Namespace, say: Say) -> int:
    if options.plot is not None:
        check_picture(options.plot)
    inspected = load_matrix(options)
    _say_lines(say, matrix_facts.describe(inspected))
    start_library(options.backend)
    _say_lines(say, describe_storage(inspected.A, options.backend, options.format))
    if options.plot is not None:
        draw(options.plot, inspected.A, inspected.source)
        _say_lines(say, [("plot", f"written to {options.plot}")])
    return 0


def _say_lines(say: Say, lines: list[facts.Line]) -> None:
    for label, text in lines:
        say(f"{label:<16} {text}")
