"""Preconditioners by name and from files, for the command line."""

from __future__ import annotations

import argparse
import ast
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..solvers import PRECONDITIONERS, Preconditioner, load_preconditioner, preconditioner
from ..solvers.preconditioners.build import check_kind as ours
from .activity import Activity
from .errors import SolveFailed, UsageError, as_options
from .facts import Line
from .storage import in_words

ENDING = ".npz"
_OTHERS = ("A", "kind", "like")  # arguments of `preconditioner` that are no settings
_WORDS = {"true": True, "false": False, "none": None}


class Built(NamedTuple):
    """A preconditioner, and how many seconds it took."""

    M: Preconditioner
    seconds: float


def is_file(word: str) -> bool:
    """Is it the name of a file of `krylix precondition`, rather than of a kind?"""
    return word.lower().endswith(ENDING)


def kinds() -> list[str]:
    """What `--preconditioner` and `--kind` can be."""
    return ["auto", *PRECONDITIONERS]


def check_kind(kind: str) -> None:
    """Raises UsageError where no preconditioner has this name."""
    try:
        ours(kind)
    except ValueError as error:
        raise UsageError(as_options(str(error))) from error


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    """`name=value` as Python would read the value, or else as a text.

    >>> settings_of(["sweeps=2", "drop=1e-3", "smoother=jacobi", "symmetric=true"])
    {'sweeps': 2, 'drop': 0.001, 'smoother': 'jacobi', 'symmetric': True}

    Raises:
        UsageError: one has no such form.
    """
    found = {}
    for word in words:
        name, equals, value = (part.strip() for part in word.partition("="))
        if name in _OTHERS:
            raise UsageError(
                f"--setting {word}: {name} is no setting of a preconditioner; see `krylix precondition -h`."
            )
        if not equals or not name.isidentifier():
            raise UsageError(f"--setting {word}: expected NAME=VALUE, such as --setting sweeps=2.")
        found[name] = _WORDS.get(value.lower(), _value_of(value))
    return found


def _value_of(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # as of `{[]: 1}` and of many brackets
        return text


def build(A: Any, kind: str, settings: dict[str, Any], part: tuple[int, int] | None = None) -> Built:
    """Make one, with a line on the terminal that tells so, and a bar where it is a part of several.

    Raises:
        UsageError: the matrix or a setting does not suit the kind.
        SolveFailed: for lack of memory, for example.
    """
    started = time.perf_counter()
    try:
        with Activity(f"{kind}: setting up", part), np.errstate(all="ignore"):
            M = preconditioner(A, kind, **settings)
    except (np.linalg.LinAlgError, RuntimeError, MemoryError, ArithmeticError) as error:
        raise SolveFailed(f"{kind}: the set-up failed: {error or type(error).__name__}") from error
    except (ValueError, TypeError) as error:
        raise UsageError(f"{kind}: {error}") from error
    return Built(M, time.perf_counter() - started)


def read(path: Path) -> Any:
    """The preconditioner, or the factors, in a file.

    Raises:
        UsageError: it cannot be used.
    """
    try:
        return load_preconditioner(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}.") from error
    except (ValueError, TypeError, MemoryError) as error:
        raise UsageError(str(error)) from error


def write(path: Path, M: Preconditioner) -> int:
    """Save it; the size of the file in bytes.

    Raises:
        SolveFailed: it cannot be written after all.
    """
    try:
        M.save(path)
        return path.stat().st_size
    except OSError as error:
        raise SolveFailed(f"{path}: cannot be written: {error.strerror or error}.") from error
    except (ValueError, TypeError) as error:
        raise SolveFailed(f"{path}: cannot be written: {error}") from error


def describe(built: Built) -> list[Line]:
    """What it is, what it costs, and what is known of it."""
    M = built.M
    settings = ", ".join(f"{name} = {value}" for name, value in M.settings)
    return [
        ("preconditioner", repr(M)),
        *([("settings", settings)] if settings else []),
        *([("memory", _memory(M))] if M.memory is not None else []),
        *([("work", _work(M))] if M.work is not None else []),
        ("symmetry", symmetry_text(M)),
        *([("note", M.note)] if M.note else []),
        ("set-up", f"{built.seconds:.3g} s"),
    ]


def symmetry_text(M: Preconditioner) -> str:
    """May CG and MINRES take it?"""
    word = "Hermitian" if M.dtype.kind == "c" else "symmetric"
    known = {True: f"{word}: for CG and MINRES too", False: f"not {word}: not for CG and MINRES", None: "not known"}
    return known[M.hermitian]


def _memory(M: Preconditioner) -> str:
    numbers = M.memory or 0
    of_A = f", {numbers / M.entries:.3g} times the entries of A" if M.entries else ""
    return f"{numbers} numbers ({in_words(numbers * M.dtype.itemsize)}){of_A}"


def _work(M: Preconditioner) -> str:
    of_A = f", {(M.work or 0) / M.entries:.3g} products with A" if M.entries else ""
    return f"{M.work} multiplications per application{of_A}"


def as_object(built: Built) -> dict[str, Any]:
    """The same for programs."""
    M = built.M
    facts = {name: getattr(M, name) for name in ("kind", "hermitian", "memory", "work", "entries", "note")}
    return {**facts, "settings": dict(M.settings), "dtype": M.dtype.name, "seconds": {"set_up": built.seconds}}


def from_options(options: argparse.Namespace) -> Any:
    """What `solve --preconditioner` means for `prepare`: a name, what a file holds, or None."""
    word = options.preconditioner
    return read(Path(word)) if word is not None and is_file(word) else word
