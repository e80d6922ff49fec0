"""Handling of failures: an error, a warning, or the status alone; and the warning of singular matrices."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from scipy.linalg import LinAlgWarning

from ...backends import Array, Backend, Kept, nan_of
from ...backends.on_failure import QUIET
from ...sparse.fingerprint import fingerprint
from ..iteration.outcome import Status, has_failed
from ..log import INFO, log, log_failure
from ..methods.direct.singular import Singularity
from .advice import LookForCauses
from .describe import describe
from .end_state import end_state_of, said_of
from .result import SolveResult

R = TypeVar("R", bound=Any)

_LIBRARIES = (__name__.partition(".")[0], "tensorflow", "torch", "jax")  # some call us for the user


class ConvergenceError(RuntimeError):
    """A solve did not reach its tolerance: the base class of `NotConverged` and `Diverged`.

    Attributes:
        result: all that the solve found, as without the error; None where it is not known.

    Examples:
        >>> import numpy as np, krylix
        >>> try:
        ...     krylix.linear_solve(np.diag([1.0, 2.0]), np.ones(2), method="CG", max_iter=1)
        ... except krylix.ConvergenceError as error:
        ...     print(type(error).__name__, error.result.status.name, error.result.iterations)
        NotConverged MAX_ITER 1
    """

    result: SolveResult

    def __init__(self, message: str, result: Any = None) -> None:  # None: pickle sets it afterwards
        super().__init__(message)
        self.result = result


class NotConverged(ConvergenceError):
    """The tolerance was not reached: limit of iterations or of time, no more progress, or breakdown.

    Attributes:
        result: all that the solve found.

    Examples:
        >>> import numpy as np, krylix
        >>> A = np.diag([1.0, 2.0, 4.0])
        >>> try:
        ...     x = krylix.linear_solve(A, np.ones(3), method="CG", max_iter=2).x
        ... except krylix.NotConverged as error:
        ...     x = krylix.linear_solve(A, np.ones(3), x0=error.result.x).x
        >>> x
        array([1.  , 0.5 , 0.25])
    """


class Diverged(ConvergenceError):
    """The iteration left the finite numbers, or its input already had.

    Attributes:
        result: all that the solve found.

    Examples:
        >>> import numpy as np, krylix
        >>> try:
        ...     krylix.linear_solve(np.eye(3), np.array([1.0, np.nan, 1.0]), method="CG")
        ... except krylix.Diverged as error:
        ...     print(error.result.converged, error.result.iterations)
        False 0
    """


def result_of_this_solve(error: ConvergenceError) -> SolveResult | None:
    """The result that the solve which catches its own error has yet to complete; None where there is none.

    The error of a solve that has ended (one inside this solve, or an older one) may come through here, with a result
    that was told already; one that a user's function raises may have none.
    """
    result: Any = error.result
    ended = not isinstance(result, SolveResult) or "_later" in result.__dict__ or result.setup_time is not None
    return None if ended else result


def apply_policy(
    bk: Backend, result: SolveResult, on_failure: str, look: LookForCauses | None = None, stops: bool = True
) -> SolveResult:
    """`result`, after raising or warning if some system failed; in compiled functions at run time, by a callback.

    Args:
        look: looks for the causes, once it is known that there is a failure.
        stops: may a callback have stopped it?

    Raises:
        NotConverged, Diverged: with the result attached (eagerly). A compiled function raises the error type of its
            library, whose text contains this message.
    """
    known = not bk.compiled(result.status)
    numbers = end_state_of(result)
    if on_failure in QUIET:
        if known and log.isEnabledFor(INFO) and bk.any(has_failed(numbers[0])):
            log_failure(describe(*map(bk.to_numpy, numbers), **said_of(result)))
        return replace(result, _look=look) if known else result
    if known and look is not None and bk.any(has_failed(numbers[0])):
        result, look = replace(result, _causes=look(*map(bk.to_numpy, numbers))), None
    said = said_of(result)

    def say(*numbers: np.ndarray) -> str:
        return describe(*numbers, **(said if look is None else {**said, "causes": look(*numbers)}))

    name = None if known else _name(result, on_failure, look)
    return raise_or_warn(bk, result, numbers, on_failure, say, name, stops)


def raise_or_warn(
    bk: Backend,
    result: R,
    numbers: Sequence[Array],
    on_failure: str,
    say: Callable[..., str],
    name: str | None = None,
    stops: bool = False,
) -> R:
    """`result`, after an error or a warning if some system failed; in compiled functions at run time, by a callback.

    Args:
        result: a record with `x` and `method`.
        numbers: its end state, the status in front.
        on_failure: "raise" or "warn".
        say: the message for the end state, in NumPy arrays.
        name: lasting name of what `say` says, for stored programs; None if there is none.
        stops: may a callback have stopped it?

    Raises:
        NotConverged, Diverged: see `apply_policy`.
    """
    known = not bk.compiled(numbers[0])
    failed = bk.any(has_failed(numbers[0], stops))
    if known and not failed:
        return result
    if on_failure == "raise" and not known and not bk.raises_in_programs:
        raise ValueError(
            "This solve is compiled for several processes, of which only one would raise if it failed, and the others "
            "go on as if all were well. Give on_failure='nan', 'warn', or 'status' and look at result.status."
        )
    attached = result if known else None  # a callback must not keep traced arrays

    def handle(status: np.ndarray, *others: np.ndarray) -> None:
        message = say(status, *others)
        log_failure(message)
        if on_failure == "warn":
            warnings.warn(message, RuntimeWarning, stacklevel=2)
            return
        raise (Diverged if np.any(status == Status.DIVERGED) else NotConverged)(message, attached)

    otherwise = f"{result.method} did not reach its tolerance. With on_failure='status' result.message says more."
    kept = None if name is None else Kept(name, on_failure, otherwise)
    return replace(result, x=bk.guard(failed, handle, result.x, *numbers, kept=kept))


def _name(result: SolveResult, on_failure: str, look: LookForCauses | None) -> str | None:
    """Lasting name of the message; None without one."""
    seen = "" if look is None else look.name
    return None if seen is None else fingerprint(on_failure, sorted(said_of(result).items()), seen)


def with_nan(bk: Backend, x: Array, status: Array, stops: bool = False) -> Array:
    """Rows x, NaN in the systems that have failed, of several checkpoints in the last one. Derivatives pass through.

    Args:
        status: `(*checkpoints, systems, 1)`.
        stops: may a callback have stopped it?
    """
    failed = has_failed(status, stops)
    if len(status.shape) > 2:
        failed = bk.concat([bk.zeros_like(failed[:-1]), failed[-1:]], 0)
    # A sum, as the derivative of a choice would be zero; and -0 is what changes no number, not even a zero.
    same = bk.full_like(x, complex(-0.0, -0.0) if bk.dtype(x).kind == "c" else -0.0)
    return x + bk.where(failed, bk.full_like(x, nan_of(bk.dtype(x))), same)


class SingularMatrixWarning(LinAlgWarning):
    """The matrix is singular, or so ill-conditioned that x may have no correct digit, though its residual is small.

    Examples:
        >>> import warnings, numpy as np, krylix
        >>> A = np.array([[1.0, 1.0], [1.0, 1.0]])
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     x = krylix.linear_solve(A, np.array([2.0, 2.0]), method="direct").x
        >>> np.round(x, 6)  # the solution of least norm
        array([1., 1.])
    """


def warn_of_singular(bk: Backend, method: str, singularity: Array, converged: Array) -> None:
    """Warn where factors have met a zero pivot, or rounding may have decided about x.

    Not where null vectors were given, or found before: there x is what was asked for. Failures speak for themselves.

    Args:
        singularity: numbers of `Singularity`, of all systems, that are known now.
        converged: bools of the same shape.
    """
    found = np.where(bk.to_numpy(converged), bk.to_numpy(singularity), int(Singularity.REGULAR)).reshape(-1)
    for kind, text in _TEXTS.items():
        count = int(np.count_nonzero(found == kind))
        if count:
            which = "" if len(found) == 1 else f" of {count} of {len(found)} systems"
            warnings.warn(f"{method}: the matrix{which} {text}", SingularMatrixWarning, stacklevel=outside())


_TEXTS = {
    Singularity.SINGULAR: "is singular: a pivot is zero, but for rounding, so x is one of many solutions. It has no "
    "part in the null vectors that were found. Name them with nullspace=..., add what fixes x, or check the matrix.",
    Singularity.ILL_CONDITIONED: "is ill-conditioned: its reciprocal condition number is below the rounding unit, so x "
    "may have no correct digit, though its residual is small. Scale or reformulate the system, or use more precision.",
}


def outside() -> int:
    """Stack level of the first caller outside of this library, for warnings of the function that asks."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    return level
