"""Effects of a failure by the policy `on_failure`: an error, a warning, NaN in x, or only a status.

A failure is reported at once where values are known, and in a compiled program by a call of the host when it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from ...backends import Array, Backend, Kept, nan_of
from ..log import log_failure, warn_caller
from ..run.outcome import Status, has_failed
from .result import Diverged, NotConverged

R = TypeVar("R", bound=Any)


class Ending(NamedTuple):
    """The end state of a solve, and its message.

    Attributes:
        numbers: arrays, the status in front.
        describe: makes the message from them, in NumPy arrays.
        name: lasting name of the message, for stored programs; None if there is none.
        may_be_stopped: may a callback have stopped the solve?
        warning: a bool, and a function of the numbers that warns where it holds and no system has failed.
    """

    numbers: Sequence[Array]
    describe: Callable[..., str]
    name: str | None = None
    may_be_stopped: bool = False
    warning: tuple[Array, Callable[..., None]] | None = None


def raise_or_warn(bk: Backend, policy: str, result: R, end: Ending) -> R:
    """`result`, a record with `x` and `method`, after an error or a warning if some system failed.

    Args:
        policy: "raise" or "warn".

    Raises:
        NotConverged, Diverged: with the result attached (eagerly). A compiled function raises the error type of its
            library, whose text contains the message.
    """
    status = end.numbers[0]
    known, failed = not bk.compiled(status), bk.any(has_failed(status, end.may_be_stopped))
    if known and not failed:
        return result
    if policy == "raise" and not known and not bk.raises_in_programs:
        raise ValueError(
            "This solve is compiled for several processes, of which only one would raise if it failed, while the "
            "others continue. Give on_failure='nan', 'warn', or 'status' and look at result.status."
        )
    attached = result if known else None  # a callback must not keep traced arrays
    warns, warn = (None, None) if end.warning is None else end.warning
    describe, may_be_stopped = end.describe, end.may_be_stopped

    def report(status: np.ndarray, *numbers: np.ndarray) -> None:
        if warn is not None and not np.any(has_failed(status, may_be_stopped)):
            return warn(status, *numbers)
        message = describe(status, *numbers)
        log_failure(message)
        if policy == "warn":
            return warn_caller(message, RuntimeWarning)
        raise (Diverged if np.any(status == Status.DIVERGED) else NotConverged)(message, attached)

    otherwise = f"{result.method} did not reach its tolerance. With on_failure='status' result.message says more."
    stored = None if end.name is None else Kept(end.name, policy, otherwise)
    return replace(result, x=bk.guard(failed, report, result.x, *end.numbers, kept=stored, noted=warns))


def with_nan(bk: Backend, x: Array, status: Array, may_be_stopped: bool = False) -> Array:
    """Rows x with NaN in the systems that have failed, at the last of several checkpoints. Derivatives pass through.

    Args:
        status: `(*checkpoints, systems, 1)`.
    """
    failed = has_failed(status, may_be_stopped)
    if len(status.shape) > 2:
        failed = bk.concat([bk.zeros_like(failed[:-1]), failed[-1:]], 0)
    # A sum, because the derivative of a choice would be zero. Adding -0 changes no number, not even a zero.
    same = bk.full_like(x, complex(-0.0, -0.0) if bk.dtype(x).kind == "c" else -0.0)
    return x + bk.where(failed, bk.full_like(x, nan_of(bk.dtype(x))), same)
