"""Arguments of the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__
from ..solvers import find_method
from .compare.comparison import NONE
from .errors import UsageError, as_options
from .files import MATRIX_NAMES, STDIN
from .help import EXIT_CODES, Formatter, epilog
from .output import FORMS, TRACE_NAME, VECTOR_NAMES
from .picture import DEFAULT_PICTURE, PICTURE_NAMES
from .preconditioning import ENDING, check_kind, is_file, kinds

EXAMPLES = (
    "airfoil",
    "bar",
    "helmholtz_2D",
    "knot",
    "local_disc_galerkin_diffusion",
    "recirc_flow",
    "unit_cube",
    "unit_square",
)
"""Matrices of real problems that pyamg brings along."""
BACKENDS = ("numpy", "jax", "torch", "tensorflow")

OTHER_OPTIONS = {
    **dict.fromkeys(("--tol", "--tolerance", "--rel-tol", "--reltol", "-t"), "--rtol"),
    **dict.fromkeys(("--abs-tol", "--abstol"), "--atol"),
    **dict.fromkeys(("--maxiter", "--maxit", "--max-it", "--iterations", "--max-steps", "-n"), "--max-iter"),
    **dict.fromkeys(("--out", "-o"), "--output"),
    **dict.fromkeys(("--solver", "-m"), "--method"),
    **dict.fromkeys(("--solvers",), "--methods"),
    **dict.fromkeys(("--timeout", "--limit", "--max-time"), "--time-limit"),
    **dict.fromkeys(("--precond", "--pc", "--prec", "-p"), "--preconditioner"),
    **dict.fromkeys(("--verbose", "-v"), "--progress"),
    **dict.fromkeys(("--null-space", "--nullspaces"), "--nullspace"),
    **dict.fromkeys(("-q", "--silent"), "--quiet"),
    **dict.fromkeys(("-b", "--library"), "--backend"),
}
"""What other programs call options -> what they are called here."""

FORMATS = ("csr", "csc", "coo", "dia", "ell", "hyb", "dense")
"""How a matrix can be stored; a stencil needs a grid, which files do not know."""

_SOLVE = "Solve A x = b, or with --method LSMR or CGLS min |b - A x|, where A need not be square."
_NO_B = "Without b, b = A x for a known x (x_i = sin i), and the error against this x is reported."
_COMPARE = "Solve A x = b by several methods with several preconditioners, and sort them by time."
_INSPECT = "Say what can be seen of a matrix, square or not, without a solve."
_PRECONDITION = "Make a preconditioner, say what it costs, and write it to a file that any array library reads."
_METHODS = "List what --method and --preconditioner can be."


class _Parser(argparse.ArgumentParser):
    """argparse, but an error is one line and ours to print."""

    def _print_message(self, message: str, file: Any = None) -> None:
        """Also before Python 3.11.3, where what cannot be written raises: whoever ends the report sees to that."""
        with suppress(OSError):
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See {self.prog} --help.")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """`command` ("solve", "compare", "precondition", ...) and its options, with names checked.

    Raises:
        UsageError: unknown words, missing or contradicting ones.
        SystemExit: after --help and --version.
    """
    parser = _parser()
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        _refuse_words(parser, options.command, unknown)
    if not hasattr(options, "quiet"):
        options.quiet = False
    if options.command != "methods":
        _check_matrix(options)
    if options.command == "precondition":
        check_kind(options.kind)
    if options.command == "compare":
        _check_lists(options)
    if options.command in ("solve", "compare") and options.matrix == options.rhs == STDIN:
        raise UsageError("standard input can be read once: give - for A or for b, and a file for the other.")
    if options.command == "solve":
        _check_names(options)
        if options.output == STDIN and options.json:
            raise UsageError("--json and --output - both write to standard output; give --output a file.")
        if options.output is None and options.output_format is not None:
            raise UsageError("--output-format says how --output is written; give --output FILE, or --output -.")
    return options


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="krylix", description="Solve linear systems A x = b.", epilog=EXIT_CODES, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"krylix {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, summary: str, description: str) -> argparse.ArgumentParser:
        words: dict[str, Any] = {"epilog": epilog(name), "formatter_class": Formatter, "allow_abbrev": False}
        return commands.add_parser(name, help=summary, description=description, **words)

    solve = command("solve", "solve a system", f"{_SOLVE} {_NO_B}")
    _add_input(solve.add_argument_group("the system"))
    _add_settings(solve.add_argument_group("how to solve it"))
    _add_report(solve.add_argument_group("what it says"), "--quiet")
    compare = command("compare", "solve a system in several ways", f"{_COMPARE} {_NO_B}")
    _add_input(compare.add_argument_group("the system"))
    _add_comparison(compare.add_argument_group("what to compare"))
    _add_report(compare.add_argument_group("what it says"), "--quiet")
    precondition = command("precondition", "make and save a preconditioner", _PRECONDITION)
    _add_matrix(precondition, "square matrix")
    _add_preconditioner(precondition)
    _add_report(precondition, "--quiet")
    inspect = command("inspect", "look at a matrix", _INSPECT)
    _add_matrix(inspect, "matrix")
    _add_views(inspect)
    _add_report(inspect, "--quiet")
    _add_report(command("methods", "list methods and preconditioners", _METHODS))
    return parser


def _refuse_words(parser: argparse.ArgumentParser, command: str, unknown: Sequence[str]) -> NoReturn:
    """Words that are no options, with the option that is meant, where the command has it."""
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    own: argparse.ArgumentParser = commands.choices[command]
    there = [option for option in own._option_string_actions if option.startswith("--")]
    word = unknown[0].partition("=")[0]
    meant = OTHER_OPTIONS.get(word.lower().replace("_", "-"))
    close = get_close_matches(word, there, 1)
    meant = meant if meant in there else close[0] if close and word.startswith("-") else None
    hint = f"; here {word} is {meant}" if meant else ""
    own.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")


def _add_report(group: argparse._ActionsContainer, *quiet: str) -> None:
    one = group.add_mutually_exclusive_group()
    one.add_argument("--json", action="store_true", help="print one JSON object, for programs to read")
    for name in quiet:
        one.add_argument(name, action="store_true", help="print nothing but errors; the exit code tells")


def _add_matrix(group: argparse._ActionsContainer, what: str) -> None:
    words = f"{what}: {', '.join(MATRIX_NAMES)}; - reads it from standard input"
    group.add_argument("matrix", nargs="?", type=Path, metavar="A", help=words)
    group.add_argument("--example", metavar="NAME", help=f"instead of files, a real matrix: {', '.join(EXAMPLES)}")


def _add_views(group: argparse._ActionsContainer) -> None:
    words = f"store it like this: {', '.join(FORMATS)}; default: what krylix would choose"
    group.add_argument("--format", type=str.lower, choices=FORMATS, metavar="NAME", help=words)
    group.add_argument("--backend", choices=BACKENDS, default="numpy", help="library to choose the format for")
    words = "solve with every preconditioner, and say what each one costs and gains"
    group.add_argument("--preconditioners", action="store_true", help=words)
    words = f"draw its entries, or with --preconditioners how they converge: {', '.join(PICTURE_NAMES)}"
    group.add_argument("--plot", type=Path, nargs="?", const=DEFAULT_PICTURE, metavar="FILE", help=words)


def _add_preconditioner(group: argparse._ActionsContainer) -> None:
    group.add_argument("--kind", default="auto", metavar="NAME", help=f"{', '.join(kinds())}; default: %(default)s")
    words = "a setting of that kind; may be repeated"
    group.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE", help=words)
    group.add_argument("--dtype", choices=("single", "double"), help="precision; default: that of the file")
    words = f"write it: {ENDING}, for `krylix solve --preconditioner` and krylix.load_preconditioner"
    group.add_argument("--output", type=Path, metavar="FILE", help=words)


def _add_input(group: argparse._ArgumentGroup) -> None:
    _add_matrix(group, "matrix, square but for least squares")
    words = "right-hand side (n,), or one per column (n, k); also -"
    group.add_argument("rhs", nargs="?", type=Path, metavar="b", help=words)
    group.add_argument("--dtype", choices=("single", "double"), help="precision; default: that of the files")


def _add_settings(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--method", default="auto", metavar="NAME", help="see `krylix methods`; default: %(default)s")
    words = "see `krylix methods`, or a file of `krylix precondition`; default: none, or what --method auto takes"
    group.add_argument("--preconditioner", metavar="NAME", help=words)
    _add_tolerances(group)
    group.add_argument("--nullspace", choices=("auto", "constant"), default="auto", help="constant: A 1 = 0")
    group.add_argument("--backend", choices=BACKENDS, default="numpy", help="array library; default: %(default)s")
    words = (
        f"write x, laid out as b: {', '.join(VECTOR_NAMES)}; - writes it to standard output, and the report to stderr"
    )
    group.add_argument("--output", type=Path, metavar="FILE", help=words)
    words = f"{', '.join(FORMS)}; default: what the name of the file says, txt on standard output"
    group.add_argument("--output-format", choices=FORMS, metavar="NAME", help=words)
    group.add_argument("--progress", action="store_true", help="show the residual on stderr while it runs")
    group.add_argument("--explain", action="store_true", help="say why the method was chosen")
    words = f"draw the residual against the iterations: {', '.join(PICTURE_NAMES)}; default: %(const)s"
    group.add_argument("--plot", type=Path, nargs="?", const=DEFAULT_PICTURE, metavar="FILE", help=words)
    words = f"write how long each call took: {TRACE_NAME}, for https://ui.perfetto.dev"
    group.add_argument("--profile", type=Path, metavar="FILE", help=words)


def _add_tolerances(group: argparse._ArgumentGroup) -> None:
    goal = "converged means |b - A x| <= max(rtol |b|, atol); default 1e-10, in single precision 1e-5"
    group.add_argument("--rtol", type=float, metavar="T", help=goal)
    group.add_argument("--atol", type=float, default=0.0, metavar="T", help="default: 0")
    group.add_argument("--max-iter", type=int, metavar="K", help="default: 10 n, at most 10000")


def _add_comparison(group: argparse._ArgumentGroup) -> None:
    words = "names with commas between them; default: what suits the matrix, see docs"
    group.add_argument("--methods", type=_names, default=[], metavar="NAMES", help=words)
    words = "names with commas between them, also none; default: what suits the matrix"
    group.add_argument("--preconditioners", type=_names, default=[], metavar="NAMES", help=words)
    words = "seconds for each of them, set-up included; its iterations end then; default: %(default)s"
    group.add_argument("--time-limit", type=_seconds, default=30.0, metavar="S", help=words)
    _add_tolerances(group)
    words = f"draw residuals against iterations and time: {', '.join(PICTURE_NAMES)}; default: %(const)s"
    group.add_argument("--plot", type=Path, nargs="?", const=DEFAULT_PICTURE, metavar="FILE", help=words)


def _names(text: str) -> list[str]:
    """Between commas, but for those in brackets."""
    return [word.strip() for word in re.split(r",(?![^(]*\))", text) if word.strip()]


def _seconds(text: str) -> float:
    found = float(text)
    if not found > 0:
        raise argparse.ArgumentTypeError(f"must be above 0; got {text}")
    return found


def _check_matrix(options: argparse.Namespace) -> None:
    command = options.command
    if options.example is None and options.matrix is None:
        raise UsageError(f"nothing to {command}: give a matrix file or --example NAME. See krylix {command} --help.")
    if options.example is not None:
        _check_example(options)


def _check_names(options: argparse.Namespace) -> None:
    _check_method(options.method)
    if options.preconditioner is not None and not is_file(options.preconditioner):
        check_kind(options.preconditioner)


def _check_method(name: str) -> str:
    """The name as it is written here."""
    if name.strip().lower() == "auto":
        return "auto"
    try:
        return find_method(name).name
    except ValueError as error:
        raise UsageError(as_options(str(error))) from error


def _check_lists(options: argparse.Namespace) -> None:
    options.methods = [_check_method(name) for name in options.methods]
    for kind in options.preconditioners:
        if kind != NONE:
            check_kind(kind)


def _check_example(options: argparse.Namespace) -> None:
    if options.matrix is not None:
        raise UsageError(f"got both --example {options.example} and the file {options.matrix}; give one of them.")
    by_lower_case = {name.lower(): name for name in EXAMPLES}
    name = by_lower_case.get(options.example.lower())
    if name is None:
        raise UsageError(f"no example is called {options.example!r}; there are {', '.join(EXAMPLES)}.")
    options.example = name
