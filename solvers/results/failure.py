"""What happens when a solve fails: an error, a warning, or nothing but its status."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...backends import Backend
from ..iteration.status import Status, describe
from .result import SolveResult, numbers_of

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
    numbers = numbers_of(result)
    failed, known = bk.any(numbers[0] != int(Status.CONVERGED)), not bk.compiled(result.status)
    if known and not failed:
        return result
    if on_failure == "raise" and not known and not bk.raises_in_programs:
        raise ValueError(
            "This solve is compiled for several processes, of which only one would raise if it failed, and the others "
            "go on as if all were well. Give on_failure='status' and look at result.status, or on_failure='warn'."
        )
    handler = _handler(result, on_failure, known)
    return replace(result, x=bk.guard(failed, handler, result.x, *numbers))


def _handler(result: SolveResult, on_failure: str, known: bool) -> Callable[..., None]:
    method, least_squares, no_solution = result.method, result.least_squares, result._no_solution
    attached = result if known else None  # a callback must not keep traced arrays

    def handle(status: np.ndarray, *numbers: np.ndarray) -> None:
        numbers, singular = numbers[:-1], numbers[-1]
        message = describe(
            method,
            status,
            *numbers,
            precision=str(numbers[-1].dtype),
            least_squares=least_squares,
            no_solution=no_solution,
            singular=singular,
        )
        if on_failure == "warn":
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return
        raise (Diverged if np.any(status == Status.DIVERGED) else NotConverged)(message, attached)

    return handle
