"""The commands: solve, compare, inspect, precondition, methods."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ..backends import profile
from . import (
    facts,
    machine,
    matrix_facts,
    methods,
    preconditioning,
    report,
    storage,
)
from .arguments import parse
from .compare import compare, comparison
from .files import STDIN
from .inspected import load as load_matrix
from .output import TRACE_NAME, VECTOR_NAMES, as_bytes, check_output, form_of, write, write_profile
from .picture import check_picture, draw, draw_convergence, draw_histories
from .solve import SolveOutcome, set_up, solve, start_library
from .streams import Streams
from .system import SystemRead, in_precision, load

Say = Callable[[str], None]


def run(argv: Sequence[str], out: Streams) -> int:
    """Run one command line, whose report goes to `out`. Returns the exit code, 0 or 1.

    Raises:
        UsageError, SolveFailed: with what to say; exit codes 2 and 1.
        SystemExit: after --help and --version.
    """
    options = parse(argv)
    if options.command == "solve":
        return _solve(options, out)
    commands = {
        "compare": _compare, "precondition": _precondition, "inspect": _inspect, "methods": _methods,
    }  # fmt: skip
    return commands[options.command](options, out.say)


def _methods(options: argparse.Namespace, say: Say) -> int:
    for line in [machine.text("methods", methods.as_object())] if options.json else methods.table():
        say(line)
    return 0


def _solve(options: argparse.Namespace, out: Streams) -> int:
    form = _check_outputs(options)
    if options.output == STDIN:
        out.step_aside()
    in_words = _in_words(options, out.say)
    started = time.perf_counter()
    system = load(options)
    reading = time.perf_counter() - started
    start_library(options.backend)
    with nullcontext() if options.profile is None else profile() as prof:
        ready = set_up(options, system)
        in_words(facts.describe(system))
        if options.explain and not options.json and not options.quiet:
            out.say(ready.solver.explain())
        outcome = solve(options, system, ready)
    in_words(report.describe(system, outcome, options.backend, options.preconditioner))
    in_words([("time", f"{outcome.seconds:.3g} s to set up and solve, {reading:.3g} s to read")])
    in_words(_written(options, form, system, outcome, out))
    if prof is not None:
        write_profile(options.profile, prof)
        in_words([("profile", f"{len(prof.events)} calls, written to {options.profile}")])
    if options.json:
        out.say(machine.text("solve", machine.of_solve(options, system, outcome, reading)))
    return 0 if outcome.converged and outcome.confirmed else 1


def _written(
    options: argparse.Namespace, form: str, system: SystemRead, outcome: SolveOutcome, out: Streams
) -> list[facts.Line]:
    """Write x and the picture."""
    lines = []
    if options.output == STDIN:
        out.send(as_bytes(form, outcome.x))
        lines.append(("output", f"x, shape {outcome.x.shape}, written to standard output as {form}"))
    elif options.output is not None:
        write(options.output, form, outcome.x)
        lines.append(("output", f"x, shape {outcome.x.shape}, written to {options.output}"))
    if options.plot is not None:
        draw_histories(options.plot, outcome.result, system.source)
        lines.append(("plot", f"written to {options.plot}"))
    return lines


def _check_outputs(options: argparse.Namespace) -> str:
    """Returns the form of x."""
    word = options.preconditioner
    preconditioner = Path(word) if word is not None and preconditioning.is_file(word) else None
    inputs = (options.matrix, options.rhs, preconditioner)
    if options.profile is not None:
        check_output(options.profile, (TRACE_NAME,), inputs)
    if options.plot is not None:
        check_picture(options.plot, inputs)
    if options.output is None:
        return ""
    form = form_of(options.output, options.output_format)
    if options.output != STDIN:
        check_output(options.output, VECTOR_NAMES if options.output_format is None else ("",), inputs)
    return form


def _compare(options: argparse.Namespace, say: Say) -> int:
    if options.plot is not None:
        check_picture(options.plot, (options.matrix, options.rhs))
    in_words = _in_words(options, say)
    system = compare.load(options)
    in_words(facts.describe(system))
    rows = compare.compare(options, system)
    if not options.json and not options.quiet:
        for line in compare.table(rows):
            say(line)
    in_words(compare.advice(options, rows))
    if options.plot is not None:
        draw_convergence(options.plot, rows, system.source)
        in_words([("plot", f"written to {options.plot}")])
    if options.json:
        say(machine.text("compare", machine.of_compare(options, system, rows)))
    return 0 if any(row.converged for row in rows) else 1


def _precondition(options: argparse.Namespace, say: Say) -> int:
    if options.output is not None:
        check_output(options.output, (preconditioning.ENDING,), (options.matrix,))
    settings = preconditioning.settings_of(options.setting)
    in_words = _in_words(options, say)
    inspected = load_matrix(options)
    A = inspected.A if options.dtype is None else in_precision(inspected.A, options.dtype, inspected.source)
    built = preconditioning.build(A, options.kind, settings)
    in_words([("matrix", inspected.source), ("shape", facts.size_text(A)), *preconditioning.describe(built)])
    size = None
    if options.output is not None:
        size = preconditioning.write(options.output, built.M)
        in_words([("output", f"{storage.in_words(size)}, written to {options.output}")])
    if options.json:
        say(machine.text("precondition", machine.of_precondition(options, inspected, built, size)))
    return 0


def _inspect(options: argparse.Namespace, say: Say) -> int:
    if options.plot is not None:
        check_picture(options.plot, (options.matrix,))
    in_words = _in_words(options, say)
    inspected = load_matrix(options)
    if options.preconditioners:
        comparison.check_square(inspected.A)
    start_library(options.backend)
    stored = storage.describe(inspected.A, options.backend, options.format)
    in_words([*matrix_facts.describe(inspected), *stored])
    rows = _compared(options, inspected.A, say) if options.preconditioners else None
    if options.plot is not None:
        if rows is not None:
            draw_convergence(options.plot, rows, inspected.source)
        else:
            draw(options.plot, inspected.A, inspected.source)
        in_words([("plot", f"written to {options.plot}")])
    if options.json:
        say(machine.text("inspect", machine.of_inspect(options, inspected, rows)))
    return 0


def _compared(options: argparse.Namespace, A: Any, say: Say) -> list[comparison.ComparisonRow]:
    """Says each row as soon as it is known, if people are to read the report."""
    found: list[comparison.ComparisonRow] = []
    aloud = not options.json and not options.quiet
    for row in comparison.compare(A):
        for line in [*(comparison.HEAD if not found else ()), comparison.text(row)] if aloud else ():
            say(line)
        found.append(row)
    return found


def _in_words(options: argparse.Namespace, say: Say) -> Callable[[list[facts.Line]], None]:
    """Says labelled lines, if people are to read the report."""

    def lines(found: list[facts.Line]) -> None:
        for label, text in found:
            say(f"{label:<16} {text}")

    return (lambda found: None) if options.json or options.quiet else lines
