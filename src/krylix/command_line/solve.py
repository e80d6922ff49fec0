"""Run `linear_solve` as the command line says, and look at its result from outside."""

from __future__ import annotations

import argparse
import os
import time
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backends import Array, convert, get_backend
from ..solvers import SolveResult, Status, linear_solve
from .errors import SolveFailed, UsageError
from .facts import column_norms
from .system import System


@dataclass(frozen=True)
class Outcome:
    """A result on the host; everything per system has the shape `(systems,)`.

    Attributes:
        x: laid out as b, `(n,)` or `(n, k)`.
        result: of `linear_solve`.
        automatic: was the method chosen by auto?
        status, iterations, norm, tolerance: of the result, as NumPy arrays.
        check: norms of b - A x, computed here in double precision.
        rounding: by how much these may differ from those computed in the precision of the solve.
        seconds: for set-up and solve.
        notes: warnings that came up.
    """

    x: np.ndarray
    result: SolveResult
    automatic: bool
    status: np.ndarray
    iterations: np.ndarray
    norm: np.ndarray
    tolerance: np.ndarray
    check: np.ndarray
    rounding: np.ndarray
    seconds: float
    notes: list[str]

    @property
    def converged(self) -> bool:
        """Does the result say so, for all systems?"""
        return bool(np.all(self.status == Status.CONVERGED))

    @property
    def confirmed(self) -> bool:
        """Does the residual computed here meet the tolerance, for all systems?"""
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


def solve(options: argparse.Namespace, system: System) -> Outcome:
    """Solve and check.

    Raises:
        UsageError: the method or another setting does not fit the system.
        SolveFailed: no result, for lack of memory for example.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            b = convert(system.rows, options.backend)
            started = time.perf_counter()
            result = linear_solve(system.A, b, method=options.method, preconditioner=options.preconditioner,
                                  on_failure="status", progress=options.progress, **_settings(options))  # fmt: skip
            x = _on_host(options, result.x)  # waits for a device
            seconds = time.perf_counter() - started
        except (np.linalg.LinAlgError, RuntimeError, MemoryError, ArithmeticError) as error:
            raise SolveFailed(f"the solve failed: {error or type(error).__name__}") from error
        except (ValueError, TypeError) as error:
            raise UsageError(str(error)) from error
    notes = dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, RuntimeWarning))
    x = x if system.b.ndim == 1 else np.ascontiguousarray(x.T)
    check, rounding = _residual(system, x)
    return Outcome(
        x=x,
        result=result,
        automatic=options.method.strip().lower() == "auto",
        status=_on_host(options, result.status).reshape(-1),
        iterations=_on_host(options, result.iterations).reshape(-1),
        norm=_on_host(options, result.residual_norm).reshape(-1),
        tolerance=_on_host(options, result.tolerance).reshape(-1),
        check=check,
        rounding=rounding,
        seconds=seconds,
        notes=list(notes),
    )


def _on_host(options: argparse.Namespace, array: Array) -> np.ndarray:
    return np.asarray(get_backend(options.backend).to_numpy(array))


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    return {name: getattr(options, name) for name in ("rtol", "atol", "max_iter", "nullspace")}


def _residual(system: System, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Norms of b - A x in double precision, and a bound on the rounding errors of the same in the solve's precision."""
    A, b = _double(system.A), _double(system.b)
    with np.errstate(all="ignore"):
        norms = column_norms(b - A @ _double(x))
        sizes = column_norms(np.abs(A) @ np.abs(_double(x)) + np.abs(b))
    return norms, 10 * np.finfo(x.dtype).eps * sizes


def _double(array: Any) -> Any:
    return array.astype(np.result_type(array.dtype, np.float64))
