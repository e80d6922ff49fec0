"""The commands: solve, compare, precondition, inspect, methods."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from ..backends import profile
from ..solvers import METHODS, OPTIONAL_METHODS, PRECONDITIONERS, find_method
from ..solvers.methods.method import Method
from ..solvers.methods.registry import is_auto
from . import compare, facts
from .arguments import parse
from .files import (
    STDIN,
    TRACE_NAME,
    VECTOR_NAMES,
    as_bytes,
    check_output,
    form_of,
    read_canonical,
    read_system,
    writing,
)
from .picture import check_picture, draw, draw_convergence, draw_histories
from .solve import (
    PRECONDITIONER_NAME,
    SolveOutcome,
    build_preconditioner,
    is_file,
    set_up,
    settings_of,
    solve,
    start_library,
    write_preconditioner,
)
from .terminal import Fact, Report, Streams

_FAMILIES = "biCG-stab(l), GMRES(m), FGMRES(m) and IDR(s) exist for every number >= 1, mixed-... for most methods"


def run(argv: Sequence[str], streams: Streams) -> int:
    """Run one command line, whose report goes to `streams`. Returns the exit code, 0 or 1.

    Raises UsageError (exit code 2) and SolveFailed (1) with a message, and SystemExit after --help and --version.
    """
    options = parse(argv)
    report = Report(options, streams)
    commands = {
        "solve": _solve, "compare": _compare, "precondition": _precondition, "inspect": _inspect, "methods": _methods,
    }  # fmt: skip
    succeeded = commands[options.command](options, report)
    report.end()
    return 0 if succeeded else 1


def _solve(options: argparse.Namespace, report: Report) -> bool:
    form = _checked_form_of_x(options)
    if options.output == STDIN:
        report.streams.step_aside()
    started = time.perf_counter()
    system = read_system(options, square=is_auto(options.method) or not find_method(options.method).least_squares)
    reading = time.perf_counter() - started
    start_library(options.backend)
    with nullcontext() if options.profile is None else profile() as prof:
        ready = set_up(options, system)
        report.add(facts.of_system(system))
        report.lines([ready.solver.explain()] if options.explain else [])
        outcome = solve(options, system, ready)
    report.add(facts.of_solve(options, system, outcome))
    seconds = {"read": reading, "solve": outcome.seconds}
    times = f"{outcome.seconds:.3g} s to set up and solve, {reading:.3g} s to read"
    report.add([Fact("time", times, {"seconds": seconds}), _write_x(options, form, outcome, report.streams)])
    if options.plot is not None:
        draw_histories(options.plot, outcome.result, system.source)
        report.add([_plot(options)])
    if prof is not None:
        with writing(options.profile):
            prof.save(options.profile)
        report.add([Fact("profile", f"{len(prof.events)} calls, written to {options.profile}")])
    return outcome.converged and outcome.confirmed


def _checked_form_of_x(options: argparse.Namespace) -> str:
    word = options.preconditioner
    inputs = (options.matrix, options.rhs, Path(word) if is_file(word) else None)
    if options.profile is not None:
        check_output(options.profile, (TRACE_NAME,), inputs)
    check_picture(options.plot, inputs)
    if options.output is None:
        return ""
    form = form_of(options.output, options.output_format)
    if options.output != STDIN:
        check_output(options.output, VECTOR_NAMES if options.output_format is None else ("",), inputs)
    return form


def _write_x(options: argparse.Namespace, form: str, outcome: SolveOutcome, streams: Streams) -> Fact:
    if options.output is None:
        return Fact("output", None, {"output": None})
    where = str(options.output)
    if options.output == STDIN:
        streams.send(as_bytes(form, outcome.x))
        where = f"standard output as {form}"
    else:
        with writing(options.output):
            options.output.write_bytes(as_bytes(form, outcome.x))
    return Fact("output", f"x, shape {outcome.x.shape}, written to {where}", {"output": str(options.output)})


def _plot(options: argparse.Namespace) -> Fact:
    text = None if options.plot is None else f"written to {options.plot}"
    return Fact("plot", text, {"plot": None if options.plot is None else str(options.plot)})


def _compare(options: argparse.Namespace, report: Report) -> bool:
    check_picture(options.plot, (options.matrix, options.rhs))
    system = compare.read_one_system(options)
    report.add(facts.of_system(system))
    rows = compare.compare(options, system)
    report.lines(compare.table(rows))
    report.add(compare.of_comparison(options, rows))
    if options.plot is not None:
        draw_convergence(options.plot, rows, system.source)
    report.add([_plot(options)])
    return any(row.converged for row in rows)


def _precondition(options: argparse.Namespace, report: Report) -> bool:
    if options.output is not None:
        check_output(options.output, (PRECONDITIONER_NAME,), (options.matrix,))
    settings = settings_of(options.setting)
    file = read_canonical(options)
    built = build_preconditioner(file.A, options.kind, settings)
    report.add([*facts.of_matrix(file.A, file.source), *facts.of_preconditioner(built)])
    if options.output is None:
        report.add([Fact("output", None, {"output": None})])
    else:
        size = write_preconditioner(options.output, built.M)
        entries = {"file": str(options.output), "bytes": size}
        report.add([Fact("output", f"{facts.bytes_text(size)}, written to {options.output}", {"output": entries})])
    return True


def _inspect(options: argparse.Namespace, report: Report) -> bool:
    check_picture(options.plot, (options.matrix,))
    file = read_canonical(options)
    if options.preconditioners:
        compare.check_square(file.A)
    start_library(options.backend)
    report.add([*facts.of_inspected(file), *facts.of_formats(file.A, options.backend, options.format)])
    rows: list[compare.ComparisonRow] = []
    if options.preconditioners:
        for row in compare.compare_preconditioners(file.A):
            report.lines(compare.head_of_preconditioners() if not rows else [])
            report.lines([compare.line_of_preconditioner(row)])
            rows.append(row)
    report.add([Fact("", None, {"preconditioners": [row.entries for row in rows] or None})])
    if options.plot is not None and rows:
        draw_convergence(options.plot, rows, file.source)
    elif options.plot is not None:
        draw(options.plot, file.A, file.source)
    report.add([_plot(options)])
    return True


def _methods(options: argparse.Namespace, report: Report) -> bool:
    names = ("name", "matrix", "numbers", "preconditioner", "transpose", "summary")
    rows, kinds = _rows_of_methods(), ["auto", *PRECONDITIONERS]
    line = "{:<18} {:<10} {:<8} {:<15} {:<4} {}".format
    report.lines([line("method", "matrix", "numbers", "preconditioner", "A^T", "what it is")])
    report.lines(line(*row[:4], "yes" if row[4] else "no", row[5]) for row in rows)
    report.lines(
        [
            f"{_FAMILIES}.",
            'matrix: "symmetric" means Hermitian where complex, "any" also rectangular (least squares);',
            '"grid" is a sum of matrices along its axes, as a Laplacian is, "band" has few diagonals in some order.',
            f"preconditioners: {', '.join(kinds)}",
        ]
    )
    methods = [dict(zip(names, row, strict=True)) for row in rows]
    report.add([Fact("", None, {"methods": methods, "preconditioners": kinds})])
    return True


def _rows_of_methods() -> list[tuple[str, str, str, str, bool, str]]:
    """Name, matrix, numbers, preconditioner, transpose and summary of every method, auto first."""

    def row(method: Method) -> tuple[str, str, str, str, bool, str]:
        special = "grid" if method.needs_grid else "band" if method.needs_band else None
        matrix = special or ("symmetric" if method.needs_symmetry else "any" if method.least_squares else "square")
        kind = "none" if not method.takes_preconditioner else "symmetric" if method.needs_symmetry else "any"
        numbers = "any" if method.takes_complex else "real"
        return method.name, matrix, numbers, kind, method.needs_transpose, method.summary

    auto = ("auto", "square", "any", "any", False, "Looks at the matrix and chooses one of these")
    return [auto, *map(row, (*METHODS.values(), *OPTIONAL_METHODS.values()))]
