"""`krylix solve`: set-up, solve, and an independent check of the residual."""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends import Array, convert, get_backend
from ..solvers import ConvergenceError, PreparedSolver, SolveResult, Status
from ..solvers.methods.registry import is_auto
from ..solvers.prepared import prepare_for_one
from . import preconditioning
from .activity import Activity
from .errors import SolveFailed, UsageError, as_options
from .facts import column_norms
from .system import SystemRead


@dataclass(frozen=True)
class Ready:
    """A solver that takes b: all that could be refused has been.

    Attributes:
        solver: of `prepare_for_one`.
        b: in the array library.
        seconds: for the set-up.
        notes: warnings that came up.
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
        automatic: was the method chosen by auto?
        status, singular, iterations, norm, tolerance, null_part: of the result, as NumPy arrays.
        check: the norms of the residual that counts, computed here in double precision: of b - A x, or in least squares
            of A^H (b - A x).
        fit: the norms of b - A x, computed here.
        rounding: by how much `check` may differ from norms computed in the precision of the solve.
        seconds: for set-up and solve.
        notes: warnings that came up.
    """

    x: np.ndarray
    result: SolveResult
    automatic: bool
    status: np.ndarray
    singular: np.ndarray
    iterations: np.ndarray
    norm: np.ndarray
    tolerance: np.ndarray
    null_part: np.ndarray
    check: np.ndarray
    fit: np.ndarray
    rounding: np.ndarray
    seconds: float
    notes: list[str]

    @property
    def converged(self) -> bool:
        """Does the result say so, for all systems?"""
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
    given = preconditioning.from_options(options)
    kind = "auto" if given is None and is_auto(options.method) else given
    settings = {name: getattr(options, name) for name in ("rtol", "atol", "max_iter", "nullspace")}
    started = time.perf_counter()
    with _watched() as notes, Activity("setting up"):
        b = convert(system.rows, options.backend)
        solver = prepare_for_one(system.A, b, method=options.method, preconditioner=kind, axis=-1, **settings)
    return Ready(solver, b, time.perf_counter() - started, notes)


def solve(options: argparse.Namespace, system: SystemRead, ready: Ready) -> SolveOutcome:
    """Solve and check.

    Raises:
        UsageError, SolveFailed: as `set_up`.
    """
    started = time.perf_counter()
    with _watched() as notes:
        result = _solved(options, ready)
        x = _on_host(options, result.x)  # waits for a device
    seconds = time.perf_counter() - started + ready.seconds
    x = x if system.b.ndim == 1 else np.ascontiguousarray(x.T)
    residual = _on_host(options, result.residual).reshape(system.rows.shape)
    check, rounding, fit = _residual(system, x, residual if system.b.ndim == 1 else residual.T, result.least_squares)
    return SolveOutcome(
        x=x,
        result=result,
        automatic=is_auto(options.method),
        status=_on_host(options, result.status).reshape(-1),
        singular=_on_host(options, result.singular).reshape(-1),
        iterations=_on_host(options, result.iterations).reshape(-1),
        norm=_on_host(options, result.residual_norm).reshape(-1),
        tolerance=_on_host(options, result.tolerance).reshape(-1),
        null_part=_on_host(options, result.null_part).reshape(-1),
        check=check,
        fit=fit,
        rounding=rounding,
        seconds=seconds,
        notes=list(dict.fromkeys([*ready.notes, *notes])),
    )


def _solved(options: argparse.Namespace, ready: Ready) -> SolveResult:
    """The result, also of a solve that failed, which then says why."""
    try:
        return ready.solver.solve(ready.b, progress=options.progress, history=options.plot is not None)
    except ConvergenceError as failure:
        if failure.result is None:
            raise
        return failure.result


@contextmanager
def _watched() -> Iterator[list[str]]:
    """Errors of the library as those of the command line; the list gets the warnings."""
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


def _on_host(options: argparse.Namespace, array: Array) -> np.ndarray:
    return np.asarray(get_backend(options.backend).to_numpy(array))


def _residual(
    system: SystemRead, x: np.ndarray, reported: np.ndarray, least_squares: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """In double precision: norms of the residual that counts, a bound on its rounding errors, norms of b - A x."""
    A, b = _double(system.A), _double(system.b)
    with np.errstate(all="ignore"):
        residual, sizes = b - A @ _double(x), np.abs(A) @ np.abs(_double(x)) + np.abs(b)
        fit = norms = column_norms(residual)
        if least_squares:
            norms, sizes = column_norms(A.conj().T @ residual), np.abs(A).T @ sizes
        else:
            norms = column_norms(residual - unreachable(A, residual - _double(reported), x.dtype))
        return norms, 10 * np.finfo(x.dtype).eps * column_norms(sizes), fit


def unreachable(A: Any, part: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return the columns of a part of b that `A^H` maps to zero, as no x reaches them, and zeros for the others."""
    most = np.finfo(dtype).eps ** 0.5 * column_norms(np.abs(A).T @ np.abs(part))
    return np.where(column_norms(A.conj().T @ part) <= most, part, 0)


def _double(array: Any) -> Any:
    return array.astype(np.result_type(array.dtype, np.float64))
