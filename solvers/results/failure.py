"""What happens when a solve fails: an error, a warning, or nothing but its status."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...backends import Backend
from ..iteration.status import Status, describe
from .result import SolveResult

POLICIES = ("raise", "warn", "status")


class ConvergenceError(RuntimeError):
    """A solve did not reach its tolerance. `result` holds all that it found, per system."""

    def __init__(self, message: str, result: SolveResult | None = None) -> None:
        super().__init__(message)
        self.result = result


class NotConverged(ConvergenceError):
    """The tolerance was not reached: limit of iterations, no more progress, or breakdown."""


class Diverged(ConvergenceError):
    """The iteration left the finite numbers, or its input already had."""


def apply_policy(bk: Backend, result: SolveResult, on_failure: str) -> SolveResult:
    """`result`, after raising or warning if some system failed; in compiled functions at run time, by a callback.

    Raises:
        NotConverged, Diverged: with the result attached (eagerly). A compiled function raises the error type of its
            library, whose text contains this message.
    """
    if on_failure == "status":
        return result
    failed, known = bk.any(result.status != int(Status.CONVERGED)), not bk.compiled(result.status)
    if known and not failed:
        return result
    handler = _handler(result.method, on_failure, result if known else None, result.least_squares)
    x = bk.guard(failed, handler, result.x, result.status, result.iterations, result.residual_norm, result.tolerance)
    return replace(result, x=x)


def _handler(method: str, on_failure: str, result: SolveResult | None, least_squares: bool) -> Callable[..., None]:
    def handle(status: np.ndarray, steps: np.ndarray, norm: np.ndarray, bound: np.ndarray) -> None:
        message = describe(method, status, steps, norm, bound, least_squares=least_squares)
        if on_failure == "warn":
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return
        raise (Diverged if np.any(status == Status.DIVERGED) else NotConverged)(message, result)

    return handle
