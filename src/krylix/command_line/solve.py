"""Set-up, solve and an independent check of the residual; preconditioners by name and from files."""

from __future__ import annotations

import argparse
import ast
import os
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..backends import Array, convert, get_backend
from ..solvers import (
    ConvergenceError,
    Preconditioner,
    PreparedSolver,
    SolveResult,
    Status,
    load_preconditioner,
    preconditioner,
)
from ..solvers.methods.registry import is_auto
from ..solvers.prepared import prepare_for_one
from .files import SystemRead, writing
from .terminal import Activity, SolveFailed, UsageError, errors_of_library

PRECONDITIONER_NAME = ".npz"
_OTHERS = ("A", "kind", "like")  # arguments of `preconditioner` that are no settings
_WORDS = {"true": True, "false": False, "none": None}


@dataclass(frozen=True)
class Ready:
    """A solver for b, whose arguments have all been checked."""

    solver: PreparedSolver
    b: Array  # in the array library
    seconds: float  # for the set-up
    notes: list[str]  # warnings of the set-up


@dataclass(frozen=True)
class SolveOutcome:
    """A result on the host; everything per system has the shape `(systems,)`.

    The norms of the residual that counts, b - A x or in least squares A^H (b - A x), are computed again here in double
    precision.
    """

    x: np.ndarray  # laid out as b, `(n,)` or `(n, k)`
    result: SolveResult
    status: np.ndarray  # of the result, as the next five
    singular: np.ndarray
    iterations: np.ndarray
    residual_norm: np.ndarray
    tolerance: np.ndarray
    null_part: np.ndarray
    check: np.ndarray  # norms of the residual that counts
    fit: np.ndarray  # norms of b - A x
    rounding: np.ndarray  # by how much `check` may differ from norms computed in the precision of the solve
    seconds: float  # for set-up and solve
    notes: list[str]  # warnings

    @property
    def converged(self) -> bool:
        return bool(np.all(self.status == Status.CONVERGED))

    @property
    def confirmed(self) -> bool:
        """Does the residual of every system meet its tolerance, apart from the unreachable part of b?"""
        return bool(np.all(self.check <= self.tolerance + self.rounding))


def start_library(name: str) -> None:
    """Import the array library, quietly and with double precision; raises UsageError if it is not installed."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with errors_of_library(f"the start of {name}"):
        get_backend(name).enable_double_precision()


def set_up(options: argparse.Namespace, system: SystemRead) -> Ready:
    """All checks, the choice of the method, its preconditioner or factors; before the report begins."""
    M = options.preconditioner
    if is_file(M):
        M = read_preconditioner(Path(M))
    elif M is None and is_auto(options.method):
        M = "auto"
    settings = {name: getattr(options, name) for name in ("rtol", "atol", "max_iter", "nullspace")}
    started = time.perf_counter()
    with _watched() as notes, Activity("setting up"):
        b = convert(system.rows, options.backend)
        solver = prepare_for_one(system.A, b, method=options.method, preconditioner=M, axis=-1, **settings)
    return Ready(solver, b, time.perf_counter() - started, notes)


def solve(options: argparse.Namespace, system: SystemRead, ready: Ready) -> SolveOutcome:
    """Solve and check."""

    def on_host(array: Array) -> np.ndarray:
        return np.asarray(get_backend(options.backend).to_numpy(array))

    started = time.perf_counter()
    with _watched() as notes:
        result = result_of(ready.solver, ready.b, progress=options.progress, history=options.plot is not None)
        x = on_host(result.x)  # waits for a device
    seconds = time.perf_counter() - started + ready.seconds
    residual = on_host(result.residual).reshape(system.rows.shape)
    if system.b.ndim > 1:
        x, residual = np.ascontiguousarray(x.T), residual.T
    check, rounding, fit = _checked_norms(system, x, residual, result.least_squares)
    per_system = ("status", "singular", "iterations", "residual_norm", "tolerance", "null_part")
    return SolveOutcome(
        x=x,
        result=result,
        **{name: on_host(getattr(result, name)).reshape(-1) for name in per_system},
        check=check,
        fit=fit,
        rounding=rounding,
        seconds=seconds,
        notes=list(dict.fromkeys([*ready.notes, *notes])),
    )


def result_of(solver: PreparedSolver, b: Array, **settings: Any) -> SolveResult:
    """The result, also of a solve that failed."""
    try:
        return solver.solve(b, **settings)
    except ConvergenceError as failure:
        if failure.result is None:
            raise
        return failure.result


def column_norms(v: np.ndarray) -> np.ndarray:
    """2-norms of `(n,)` or of the columns of `(n, k)`, in double precision and without overflow: `(1,)` or `(k,)`."""
    columns = v.reshape(len(v), -1).astype(np.result_type(v.dtype, np.float64))
    largest = np.max(np.abs(columns), axis=0)
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1)
    return scale * np.linalg.norm(columns / scale, axis=0)


@contextmanager
def _watched() -> Iterator[list[str]]:
    """Turn errors of the library into those of the command line; the list gets the warnings."""
    notes: list[str] = []
    with warnings.catch_warnings(record=True) as caught, errors_of_library("the solve"):
        warnings.simplefilter("always")
        yield notes
    notes += [str(w.message) for w in caught if issubclass(w.category, RuntimeWarning)]


def _checked_norms(
    system: SystemRead, x: np.ndarray, reported: np.ndarray, least_squares: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """In double precision: norms of the residual that counts, a bound on its rounding errors, norms of b - A x."""
    A, b = _double(system.A), _double(system.b)
    with np.errstate(all="ignore"):
        residual, sizes = b - A @ _double(x), np.abs(A) @ np.abs(_double(x)) + np.abs(b)
        fit = column_norms(residual)
        if least_squares:
            norms, sizes = column_norms(A.conj().T @ residual), np.abs(A).T @ sizes
        else:
            norms = column_norms(residual - unreachable(A, residual - _double(reported), x.dtype))
        return norms, 10 * np.finfo(x.dtype).eps * column_norms(sizes), fit


def unreachable(A: Any, part: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The columns of a part of b that `A^H` maps to zero, which no x reaches, and zeros for the others."""
    most = np.finfo(dtype).eps ** 0.5 * column_norms(np.abs(A).T @ np.abs(part))
    return np.where(column_norms(A.conj().T @ part) <= most, part, 0)


def _double(array: Any) -> Any:
    return array.astype(np.result_type(array.dtype, np.float64))


# ---- preconditioners by name and from files


class Built(NamedTuple):
    """A preconditioner, and the seconds of its set-up."""

    M: Preconditioner
    seconds: float


def is_file(word: str | None) -> bool:
    """Is it the name of a file of `krylix precondition`, rather than of a kind?"""
    return word is not None and word.lower().endswith(PRECONDITIONER_NAME)


def settings_of(words: Sequence[str]) -> dict[str, Any]:
    """`name=value` as Python would read the value, or else as a text.

    >>> settings_of(["sweeps=2", "drop=1e-3", "smoother=jacobi", "symmetric=true"])
    {'sweeps': 2, 'drop': 0.001, 'smoother': 'jacobi', 'symmetric': True}
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


def build_preconditioner(A: Any, kind: str, settings: dict[str, Any], part: tuple[int, int] | None = None) -> Built:
    """Make a preconditioner, with a line on the terminal, and a bar where it is one of several."""
    started = time.perf_counter()
    with errors_of_library("the set-up", f"{kind}: "), Activity(f"{kind}: setting up", part), np.errstate(all="ignore"):
        M = preconditioner(A, kind, **settings)
    return Built(M, time.perf_counter() - started)


def read_preconditioner(path: Path) -> Any:
    """The preconditioner, or the factors, in a file."""
    try:
        return load_preconditioner(path)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}.") from error
    except (ValueError, TypeError, MemoryError) as error:
        raise UsageError(str(error)) from error


def write_preconditioner(path: Path, M: Preconditioner) -> int:
    """Save it; the size of the file in bytes."""
    try:
        with writing(path):
            M.save(path)
            return path.stat().st_size
    except (ValueError, TypeError) as error:
        raise SolveFailed(f"{path}: cannot be written: {error}") from error
