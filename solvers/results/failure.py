"""Handling of failures: an error, a warning, or the status alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...backends import Array, Backend, Kept, nan_of
from ...backends.on_failure import QUIET
from ...sparse.fingerprint import fingerprint
from ..iteration.outcome import Status
from .advice import LookForCauses
from .describe import describe
from .result import SolveResult, end_state_of, said_of


class ConvergenceError(RuntimeError):
    """A solve did not reach its tolerance. `result` holds all that it found, per system."""

    def __init__(self, message: str, result: SolveResult | None = None) -> None:
        super().__init__(message)
        self.result = result


class NotConverged(ConvergenceError):
    """The tolerance was not reached: limit of iterations, no more progress, or breakdown."""


class Diverged(ConvergenceError):
    """The iteration left the finite numbers, or its input already had."""


def apply_policy(bk: Backend, result: SolveResult, on_failure: str, look: LookForCauses | None = None) -> SolveResult:
    """`result`, after raising or warning if some system failed; in compiled functions at run time, by a callback.

    Args:
        look: looks for the causes, once it is known that there is a failure.

    Raises:
        NotConverged, Diverged: with the result attached (eagerly). A compiled function raises the error type of its
            library, whose text contains this message.
    """
    known = not bk.compiled(result.status)
    if on_failure in QUIET:
        return replace(result, _look=look) if known else result
    numbers = end_state_of(result)
    failed = bk.any(numbers[0] != int(Status.CONVERGED))
    if known and not failed:
        return result
    if on_failure == "raise" and not known and not bk.raises_in_programs:
        raise ValueError(
            "This solve is compiled for several processes, of which only one would raise if it failed, and the others "
            "go on as if all were well. Give on_failure='nan', 'warn', or 'status' and look at result.status."
        )
    if known and look is not None:
        result, look = replace(result, _causes=look(*map(bk.to_numpy, numbers))), None
    handler = _handler(result, on_failure, known, look)
    kept = None if known else _kept(result, on_failure, look)
    return replace(result, x=bk.guard(failed, handler, result.x, *numbers, kept=kept))


def _kept(result: SolveResult, on_failure: str, look: LookForCauses | None) -> Kept | None:
    """Persistent reference to the handler for stored programs; None without a lasting name."""
    seen = "" if look is None else look.name
    name = None if seen is None else fingerprint(on_failure, sorted(said_of(result).items()), seen)
    otherwise = f"{result.method} did not reach its tolerance. With on_failure='status' result.message says more."
    return None if name is None else Kept(name, on_failure, otherwise)


def _handler(result: SolveResult, on_failure: str, known: bool, look: LookForCauses | None) -> Callable[..., None]:
    attached = result if known else None  # a callback must not keep traced arrays
    said = said_of(result)

    def handle(status: np.ndarray, *numbers: np.ndarray) -> None:
        seen = said if look is None else {**said, "causes": look(status, *numbers)}
        message = describe(status, *numbers, **seen)
        if on_failure == "warn":
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return
        raise (Diverged if np.any(status == Status.DIVERGED) else NotConverged)(message, attached)

    return handle


def with_nan(bk: Backend, x: Array, status: Array) -> Array:
    """Rows x, NaN in the systems that have failed, of several checkpoints in the last one. Derivatives pass through.

    Args:
        status: `(*checkpoints, systems, 1)`.
    """
    failed = status != int(Status.CONVERGED)
    if len(status.shape) > 2:
        failed = bk.concat([bk.zeros_like(failed[:-1]), failed[-1:]], 0)
    # A sum, as the derivative of a choice would be zero; and -0 is what changes no number, not even a zero.
    same = bk.full_like(x, complex(-0.0, -0.0) if bk.dtype(x).kind == "c" else -0.0)
    return x + bk.where(failed, bk.full_like(x, nan_of(bk.dtype(x))), same)
