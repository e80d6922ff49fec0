"""Preconditioners by name and from files, for the command line."""

from __future__ import annotations

import ast
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..solvers import Preconditioner, load_preconditioner, preconditioner
from .output import writing
from .terminal import Activity, SolveFailed, UsageError

ENDING = ".npz"
_OTHERS = ("A", "kind", "like")  # arguments of `preconditioner` that are no settings
_WORDS = {"true": True, "false": False, "none": None}


class Built(NamedTuple):
    """A preconditioner, and how many seconds it took."""

    M: Preconditioner
    seconds: float


def is_file(word: str | None) -> bool:
    """Is it the name of a file of `krylix precondition`, rather than of a kind?"""
    return word is not None and word.lower().endswith(ENDING)


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    """`name=value` as Python would read the value, or else as a text.

    >>> settings_of(["sweeps=2", "drop=1e-3", "smoother=jacobi", "symmetric=true"])
    {'sweeps': 2, 'drop': 0.001, 'smoother': 'jacobi', 'symmetric': True}

    Raises:
        UsageError: one has no such form.
    """
    settings = {}
    for word in words:
        name, equals, value = (part.strip() for part in word.partition("="))
        if name in _OTHERS:
            raise UsageError(
                f"--setting {word}: {name} is no setting of a preconditioner; see `krylix precondition -h`."
            )
        if not equals or not name.isidentifier():
            raise UsageError(f"--setting {word}: expected NAME=VALUE, such as --setting sweeps=2.")
        settings[name] = _WORDS.get(value.lower(), _value_of(value))
    return settings


def _value_of(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):  # as for `{[]: 1}` and for many brackets
        return text


def build(A: Any, kind: str, settings: dict[str, Any], part: tuple[int, int] | None = None) -> Built:
    """Make a preconditioner, with a line on the terminal, and a bar where it is one of several.

    Raises:
        UsageError: the matrix or a setting does not suit the kind.
        SolveFailed: the set-up fails, for lack of memory, for example.
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
        SolveFailed: it cannot be written.
    """
    try:
        with writing(path):
            M.save(path)
            return path.stat().st_size
    except (ValueError, TypeError) as error:
        raise SolveFailed(f"{path}: cannot be written: {error}") from error
