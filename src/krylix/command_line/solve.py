"""`krylix solve`: set-up, solve, and an independent check of the residual."""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..backends import Array, convert, get_backend
from ..solvers import ConvergenceError, PreparedSolver, SolveResult, Status
from ..solvers.methods.registry import is_auto
from ..solvers.prepared import prepare_for_one
from . import preconditioning
from .files import SystemRead
from .terminal import Activity, SolveFailed, UsageError, as_options


@dataclass(frozen=True)
class Ready:
    """A solver for b, whose arguments have all been checked.

    Attributes:
        solver: of `prepare_for_one`.
        b: in the array library.
        seconds: for the set-up.
        notes: warnings of the set-up.
    """

    solver: PreparedSolver
    b: Array
    seconds: float
    notes: list[str]


@dataclass(frozen=True)
class SolveOutcome:
    """A result on the host; everything per system has the shape `(systems,)`.

    Attributes:
        x: laid out as b, `(n,)` or `(n, k)`.
        result: of `linear_solve`.
        status, singular, iterations, residual_norm, tolerance, null_part: of the result, as NumPy arrays.
        check: the norms of the residual that counts, computed here in double precision: of b - A x, or in least squares
            of A^H (b - A x).
        fit: the norms of b - A x, computed here.
        rounding: by how much `check` may differ from norms computed in the precision of the solve.
        seconds: for set-up and solve.
        notes: warnings that came up.
    """

    x: np.ndarray
    result: SolveResult
    status: np.ndarray
    singular: np.ndarray
    iterations: np.ndarray
    residual_norm: np.ndarray
    tolerance: np.ndarray
    null_part: np.ndarray
    check: np.ndarray
    fit: np.ndarray
    rounding: np.ndarray
    seconds: float
    notes: list[str]

    @property
    def converged(self) -> bool:
        return bool(np.all(self.status == Status.CONVERGED))

    @property
    def confirmed(self) -> bool:
        """Does the residual of every system meet its tolerance, apart from the unreachable part of b?"""
        return bool(np.all(self.check <= self.tolerance + self.rounding))


def start_library(name: str) -> None:
    """Import the array library, quietly and with double precision.

    Raises:
        UsageError: it is not installed.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        get_backend(name).enable_double_precision()
    except TypeError as error:
        raise UsageError(str(error)) from error


def set_up(options: argparse.Namespace, system: SystemRead) -> Ready:
    """All checks, the choice of the method, its preconditioner or factors; before the report begins.

    Raises:
        UsageError: the method or another setting does not fit the system.
        SolveFailed: for lack of memory, for example.
    """
    given = options.preconditioner
    if preconditioning.is_file(given):
        given = preconditioning.read(Path(given))
    elif given is None and is_auto(options.method):
        given = "auto"
    settings = {name: getattr(options, name) for name in ("rtol", "atol", "max_iter", "nullspace")}
    started = time.perf_counter()
    with _watched() as notes, Activity("setting up"):
        b = convert(system.rows, options.backend)
        solver = prepare_for_one(system.A, b, method=options.method, preconditioner=given, axis=-1, **settings)
    return Ready(solver, b, time.perf_counter() - started, notes)


def solve(options: argparse.Namespace, system: SystemRead, ready: Ready) -> SolveOutcome:
    """Solve and check.

    Raises:
        UsageError, SolveFailed: as `set_up`.
    """

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
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield notes
        except (np.linalg.LinAlgError, RuntimeError, MemoryError, ArithmeticError) as error:
            raise SolveFailed(f"the solve failed: {error or type(error).__name__}") from error
        except (ValueError, TypeError, ImportError) as error:
            raise UsageError(as_options(str(error))) from error
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
