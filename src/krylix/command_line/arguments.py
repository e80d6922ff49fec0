"""Arguments of the command line: one table of commands, in which each option is declared once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from .. import __version__
from ..solvers import PRECONDITIONERS, find_method
from ..solvers.methods.registry import is_auto
from ..solvers.preconditioners.build import check_kind
from .compare import NONE
from .files import FORMS, MATRIX_NAMES, STDIN, TRACE_NAME, VECTOR_NAMES
from .picture import PICTURE_NAMES
from .solve import PRECONDITIONER_NAME, is_file
from .terminal import UsageError, errors_of_library

EXAMPLES = (
    "airfoil", "bar", "helmholtz_2D", "knot", "local_disc_galerkin_diffusion", "recirc_flow", "unit_cube",
    "unit_square",
)  # fmt: skip
"""Matrices of real problems that come with pyamg."""
BACKENDS = ("numpy", "jax", "torch", "tensorflow")
FORMATS = ("csr", "csc", "coo", "dia", "ell", "hyb", "dense")
"""Formats of matrices; a stencil needs a grid, which files do not have."""

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
"""Options of other programs -> options here."""


# ---- values


def _names(text: str) -> list[str]:
    # Commas in brackets separate nothing.
    return [word.strip() for word in re.split(r",(?![^(]*\))", text) if word.strip()]


def _methods(text: str) -> list[str]:
    return [_method(name) for name in _names(text)]


def _kinds(text: str) -> list[str]:
    return [name if name == NONE else _kind(name) for name in _names(text)]


def _seconds(text: str) -> float:
    seconds = float(text)
    if not seconds > 0:
        raise argparse.ArgumentTypeError(f"must be above 0; got {text}")
    return seconds


def _method(name: str) -> str:
    if is_auto(name):
        return "auto"
    with errors_of_library("the choice"):
        return find_method(name).name


def _kind(name: str) -> str:
    with errors_of_library("the choice"):
        check_kind(name)
    return name


def _example(name: str) -> str:
    by_lower_case = {known.lower(): known for known in EXAMPLES}
    if name.lower() not in by_lower_case:
        raise UsageError(f"no example is called {name!r}; there are {', '.join(EXAMPLES)}.")
    return by_lower_case[name.lower()]


# ---- the table of commands


Option = tuple[str, dict[str, Any]]  # the name of an option or a file, and its settings for argparse


def _option(name: str, words: str, **settings: Any) -> Option:
    return name, {"help": words, **settings}


def _matrix(what: str) -> tuple[Option, Option]:
    files = f"{what}: {', '.join(MATRIX_NAMES)}; - reads it from standard input"
    examples = f"instead of files, a real matrix: {', '.join(EXAMPLES)}"
    return (
        _option("matrix", files, nargs="?", type=Path, metavar="A"),
        _option("--example", examples, type=_example, metavar="NAME"),
    )


def _dtype(whose: str) -> Option:
    return _option("--dtype", f"precision; default: {whose}", choices=("single", "double"))


def _backend(what: str) -> Option:
    return _option("--backend", what, choices=BACKENDS, default="numpy")


def _plot(what: str, default: str = "") -> Option:
    words = f"{what}: {', '.join(PICTURE_NAMES)}{default}"
    return _option("--plot", words, type=Path, nargs="?", const=Path("krylix.png"), metavar="FILE")


_INPUT = (
    *_matrix("matrix, square but for least squares"),
    _option("rhs", "right-hand side (n,), or one per column (n, k); also -", nargs="?", type=Path, metavar="b"),
    _dtype("that of the files"),
)
_GOAL = "converged means |b - A x| <= max(rtol |b|, atol); default 1e-10, in single precision 1e-5"
_TOLERANCES = (
    _option("--rtol", _GOAL, type=float, metavar="T"),
    _option("--atol", "default: 0", type=float, default=0.0, metavar="T"),
    _option("--max-iter", "default: 10 n, at most 10000", type=int, metavar="K"),
)
_REPORT = (  # at most one of them
    _option("--json", "print one JSON object, for programs to read", action="store_true"),
    _option("--quiet", "print nothing but errors; the exit code tells", action="store_true"),
)
_NO_B = "Without b, b = A x for a known x (x_i = sin i), and the error against this x is reported."


class Command(NamedTuple):
    """A command in the table."""

    summary: str  # in the list of commands
    description: str  # above its options
    options: dict[str, tuple[Option, ...]]  # by the title of their group, "" for none
    examples: tuple[tuple[str, str], ...]  # command lines, each with a description


COMMANDS = {
    "solve": Command(
        "solve a system",
        f"Solve A x = b, or with --method LSMR or CGLS min |b - A x|, where A need not be square. {_NO_B}",
        {
            "the system": _INPUT,
            "how to solve it": (
                _option(
                    "--method", "see `krylix methods`; default: %(default)s",
                    type=_method, default="auto", metavar="NAME",
                ),
                _option(
                    "--preconditioner",
                    "see `krylix methods`, or a file of `krylix precondition`; default: none, or what --method auto "
                    "chooses",
                    type=lambda name: name if is_file(name) else _kind(name), metavar="NAME",
                ),
                *_TOLERANCES,
                _option("--nullspace", "constant: A 1 = 0", choices=("auto", "constant"), default="auto"),
                _backend("array library; default: %(default)s"),
                _option(
                    "--output",
                    f"write x, laid out as b: {', '.join(VECTOR_NAMES)}; - writes it to standard output, and the "
                    "report to stderr",
                    type=Path, metavar="FILE",
                ),
                _option(
                    "--output-format",
                    f"{', '.join(FORMS)}; default: what the name of the file says, txt on standard output",
                    choices=FORMS, metavar="NAME",
                ),
                _option("--progress", "show the residual on stderr while it runs", action="store_true"),
                _option("--explain", "say why the method was chosen", action="store_true"),
                _plot("draw the residual against the iterations", "; default: %(const)s"),
                _option(
                    "--profile", f"write how long each call took: {TRACE_NAME}, for https://ui.perfetto.dev",
                    type=Path, metavar="FILE",
                ),
            ),
        },
        (
            ("krylix solve --example bar", "a real matrix that is there already"),
            ("krylix solve A.mtx b.mtx --output x.mtx", "two files, and x to a third one"),
            ("krylix solve A.mtx --method CG --preconditioner amg --rtol 1e-8", "choose how"),
            ("krylix solve A.mtx --explain --plot convergence.png", "why this method, and how it converged"),
            ("krylix solve A.mtx b.mtx --output - --quiet > x.txt", "x to standard output, as text"),
            ("krylix solve A.mtx --json", "for programs"),
        ),
    ),
    "compare": Command(
        "solve a system in several ways",
        f"Solve A x = b by several methods with several preconditioners, and sort them by time. {_NO_B}",
        {
            "the system": _INPUT,
            "what to compare": (
                _option(
                    "--methods", "names with commas between them; default: what suits the matrix, see docs",
                    type=_methods, default=[], metavar="NAMES",
                ),
                _option(
                    "--preconditioners",
                    "names with commas between them, also none; default: what suits the matrix",
                    type=_kinds, default=[], metavar="NAMES",
                ),
                _option(
                    "--time-limit",
                    "seconds for each of them, set-up included; its iterations end then; default: %(default)s",
                    type=_seconds, default=30.0, metavar="S",
                ),
                *_TOLERANCES,
                _plot("draw residuals against iterations and time", "; default: %(const)s"),
            ),
        },
        (
            ("krylix compare --example bar", "what suits the matrix, the fastest first"),
            ("krylix compare A.mtx b.mtx --plot comparison.png", "and how each one converged"),
            ("krylix compare A.mtx --methods CG,MINRES --preconditioners none,jacobi", "these four"),
            ("krylix compare A.mtx --methods GMRES --time-limit 5 --json", "5 s for each at most, for programs"),
        ),
    ),
    "precondition": Command(
        "make and save a preconditioner",
        "Make a preconditioner, say what it costs, and write it to a file that any array library reads.",
        {
            "": (
                *_matrix("square matrix"),
                _option(
                    "--kind", f"{', '.join(['auto', *PRECONDITIONERS])}; default: %(default)s",
                    type=_kind, default="auto", metavar="NAME",
                ),
                _option(
                    "--setting", "a setting of that kind; may be repeated",
                    action="append", default=[], metavar="NAME=VALUE",
                ),
                _dtype("that of the file"),
                _option(
                    "--output",
                    f"write it: {PRECONDITIONER_NAME}, for `krylix solve --preconditioner` and "
                    "krylix.load_preconditioner",
                    type=Path, metavar="FILE",
                ),
            ),
        },
        (
            ("krylix precondition --example bar --kind amg", "what it costs"),
            ("krylix precondition A.mtx --kind ilu --setting levels=1 --output M.npz", "with a setting, to a file"),
        ),
    ),
    "inspect": Command(
        "look at a matrix",
        "Say what can be seen of a matrix, square or not, without a solve.",
        {
            "": (
                *_matrix("matrix"),
                _option(
                    "--format", f"store it like this: {', '.join(FORMATS)}; default: what krylix would choose",
                    type=str.lower, choices=FORMATS, metavar="NAME",
                ),
                _backend("library to choose the format for"),
                _option(
                    "--preconditioners", "solve with every preconditioner, and say what each one costs and gains",
                    action="store_true",
                ),
                _plot("draw its entries, or with --preconditioners how they converge"),
            ),
        },
        (
            ("krylix inspect --example airfoil", "symmetry, definiteness, band, null space"),
            ("krylix inspect A.mtx --plot A.png", "a picture of the entries"),
            ("krylix inspect A.mtx --preconditioners", "what each preconditioner costs and gains"),
        ),
    ),
    "methods": Command(
        "list methods and preconditioners",
        "List what --method and --preconditioner can be.",
        {},
        (("krylix methods", "a table"), ("krylix methods --json", "for programs")),
    ),
}  # fmt: skip
EXIT_CODES = "exit codes: 0 done; 1 not converged, or no result; 2 the input cannot be used; 130 interrupted (Ctrl-C)"


# ---- the parser


class _Parser(argparse.ArgumentParser):
    """argparse, with errors of one line that krylix prints."""

    def _print_message(self, message: str, file: Any = None) -> None:
        # Before Python 3.11.3 a failure to write raises here; the end of the report handles it.
        with suppress(OSError):
            super()._print_message(message, file)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. See {self.prog} --help.")


class _Formatter(argparse.HelpFormatter):
    """argparse's, which keeps the lines of texts with several."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" not in text:
            return super()._fill_text(text, width, indent)
        return "\n".join(indent + line for line in text.splitlines())


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """`command` ("solve", "compare", "precondition", ...) and its options, with names and combinations checked."""
    parser = _Parser(prog="krylix", description="Solve linear systems A x = b.", epilog=EXIT_CODES, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"krylix {__version__}")
    added = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    parsers = {name: _add_command(added, name, command) for name, command in COMMANDS.items()}
    options, unknown = parser.parse_known_args(argv)
    if unknown:
        command = parsers[options.command]
        accepted = [option for option in command._option_string_actions if option.startswith("--")]
        word = unknown[0].partition("=")[0]
        meant = OTHER_OPTIONS.get(word.lower().replace("_", "-"))
        close = get_close_matches(word, accepted, 1)
        meant = meant if meant in accepted else close[0] if close and word.startswith("-") else None
        hint = f"; here {word} is {meant}" if meant else ""
        command.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    _check_combinations(options)
    return options


def _add_command(added: Any, name: str, command: Command) -> argparse.ArgumentParser:
    examples = [f"  {line}\n      {why}" for line, why in command.examples]
    epilog = "\n".join(["examples:", *examples, "", EXIT_CODES])
    words = {"help": command.summary, "description": command.description, "epilog": epilog}
    parser: argparse.ArgumentParser = added.add_parser(name, formatter_class=_Formatter, allow_abbrev=False, **words)
    for title, options in command.options.items():
        group = parser.add_argument_group(title) if title else parser
        for option, settings in options:
            group.add_argument(option, **settings)
    group = parser.add_argument_group("what it says") if any(command.options) else parser
    one_of = group.add_mutually_exclusive_group()
    for option, settings in _REPORT:
        one_of.add_argument(option, **settings)
    return parser


def _check_combinations(options: argparse.Namespace) -> None:
    command = options.command
    if command == "methods":
        return
    if options.example is None and options.matrix is None:
        raise UsageError(f"nothing to {command}: give a matrix file or --example NAME. See krylix {command} --help.")
    if options.example is not None and options.matrix is not None:
        raise UsageError(f"got both --example {options.example} and the file {options.matrix}; give one of them.")
    if command in ("solve", "compare") and options.matrix == options.rhs == STDIN:
        raise UsageError("standard input can be read once: give - for A or for b, and a file for the other.")
    if command != "solve":
        return
    if options.output == STDIN and options.json:
        raise UsageError("--json and --output - both write to standard output; give --output a file.")
    if options.output is None and options.output_format is not None:
        raise UsageError("--output-format says how --output is written; give --output FILE, or --output -.")
