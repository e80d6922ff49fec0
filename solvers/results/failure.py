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
from ...backends.settings import QUIET
from ...sparse.fingerprint import fingerprint
from ..log import INFO, log, log_failure
from ..run.outcome import Outcome, Status, has_failed
from ..singular.from_factors import Singularity
from .numbers import EndState, end_state_of, said_of
from .result import SolveResult
from .words import LookForCauses, describe

R = TypeVar("R", bound=Any)

_LIBRARIES = (__name__.partition(".")[0], "tensorflow", "torch", "jax")  # frames between the user and us


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
    """The iteration produced NaN or infinity, or its input had them.

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

    The error may be that of another solve (inside this one, or older), whose result is complete, or of a user's
    function, without a result.
    """
    result: Any = error.result
    ended = not isinstance(result, SolveResult) or "_later" in result.__dict__ or result.setup_time is not None
    return None if ended else result


def converted(solve: Callable[[], SolveResult], back: Callable[[SolveResult], SolveResult]) -> SolveResult:
    """`back(solve())`, also of the result in an error of this solve."""
    try:
        result = solve()
    except ConvergenceError as error:
        if (failed := result_of_this_solve(error)) is not None:
            error.result = back(failed)
        raise
    return back(result)


def apply_policy(
    bk: Backend,
    result: SolveResult,
    on_failure: str,
    look: LookForCauses | None = None,
    stops: bool = True,
    vectors: str | None = None,
) -> SolveResult:
    """`result`, after raising or warning if some system failed; in compiled functions at run time, by a callback.

    Args:
        look: looks for the causes, once it is known that there is a failure.
        stops: may a callback have stopped it?
        vectors: names the null vectors to warn of, in which a b of a compiled function may have a component.

    Raises:
        NotConverged, Diverged: with the result attached (eagerly). A compiled function raises the error type of its
            library, whose text contains this message.
    """
    known, end, said = not bk.compiled(result.status), end_state_of(result), said_of(result)

    def say(*numbers: np.ndarray) -> str:
        end = EndState.in_numpy(numbers)
        return describe(end, **(said if look is None else {**said, "causes": look(end)}))

    if on_failure in QUIET:
        if known and log.isEnabledFor(INFO) and bk.any(has_failed(end.status)):
            log_failure(describe(EndState.in_numpy([*map(bk.to_numpy, end.arrays())]), **said))
        return replace(result, _look=look) if known else result
    if known:
        if look is not None and bk.any(has_failed(end.status)):
            said["causes"], look = look(EndState.in_numpy([*map(bk.to_numpy, end.arrays())])), None
            result = replace(result, _causes=said["causes"])
        return raise_or_warn(bk, result, end.arrays(), on_failure, say, None, stops)
    seen, aside, named = "" if look is None else look.name, None, () if vectors is None else (vectors,)
    name = None if seen is None else fingerprint(on_failure, sorted(said.items()), seen, *named)
    if vectors is not None:
        method = result.method  # a callback must not keep traced arrays

        def warn(*numbers: np.ndarray) -> None:
            _warn_of_inconsistent(method, _inconsistent(EndState(*numbers)), vectors)

        aside = bk.any(_inconsistent(end)), warn
    return raise_or_warn(bk, result, end.arrays(), on_failure, say, name, stops, aside)


def raise_or_warn(
    bk: Backend,
    result: R,
    numbers: Sequence[Array],
    on_failure: str,
    say: Callable[..., str],
    name: str | None = None,
    stops: bool = False,
    aside: tuple[Array, Callable[..., None]] | None = None,
) -> R:
    """`result`, after an error or a warning if some system failed; in compiled functions at run time, by a callback.

    Args:
        result: a record with `x` and `method`.
        numbers: its end state, the status in front.
        on_failure: "raise" or "warn".
        say: the message for the end state, in NumPy arrays.
        name: lasting name of what `say` says, for stored programs; None if there is none.
        stops: may a callback have stopped it?
        aside: a bool, and a function of the end state that warns where no system has failed.

    Raises:
        NotConverged, Diverged: see `apply_policy`.
    """
    known = not bk.compiled(numbers[0])
    failed = bk.any(has_failed(numbers[0], stops))
    if known and not failed:
        return result
    if on_failure == "raise" and not known and not bk.raises_in_programs:
        raise ValueError(
            "This solve is compiled for several processes, of which only one would raise if it failed, while the "
            "others continue. Give on_failure='nan', 'warn', or 'status' and look at result.status."
        )
    attached = result if known else None  # a callback must not keep traced arrays
    noted, note = (None, None) if aside is None else aside

    def handle(status: np.ndarray, *others: np.ndarray) -> None:
        if note is not None and not np.any(has_failed(status, stops)):
            return note(status, *others)
        message = say(status, *others)
        log_failure(message)
        if on_failure == "warn":
            return warnings.warn(message, RuntimeWarning, stacklevel=2)
        raise (Diverged if np.any(status == Status.DIVERGED) else NotConverged)(message, attached)

    otherwise = f"{result.method} did not reach its tolerance. With on_failure='status' result.message says more."
    kept = None if name is None else Kept(name, on_failure, otherwise)
    return replace(result, x=bk.guard(failed, handle, result.x, *numbers, kept=kept, noted=noted))


def with_nan(bk: Backend, x: Array, status: Array, stops: bool = False) -> Array:
    """Rows x with NaN in the systems that have failed, at the last of several checkpoints. Derivatives pass through.

    Args:
        status: `(*checkpoints, systems, 1)`.
        stops: may a callback have stopped it?
    """
    failed = has_failed(status, stops)
    if len(status.shape) > 2:
        failed = bk.concat([bk.zeros_like(failed[:-1]), failed[-1:]], 0)
    # A sum, because the derivative of a choice would be zero. Adding -0 changes no number, not even a zero.
    same = bk.full_like(x, complex(-0.0, -0.0) if bk.dtype(x).kind == "c" else -0.0)
    return x + bk.where(failed, bk.full_like(x, nan_of(bk.dtype(x))), same)


class SingularMatrixWarning(LinAlgWarning):
    """The matrix is singular, or so ill-conditioned that x may have no correct digit, though its residual is small.

    Also given where A is known to be singular and b has a component that no x reaches: x solves the system without it.

    Examples:
        >>> import warnings, numpy as np, krylix
        >>> A = np.array([[1.0, 1.0], [1.0, 1.0]])
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     x = krylix.linear_solve(A, np.array([2.0, 2.0]), method="direct").x
        >>> np.round(x, 6)  # the solution of least norm
        array([1., 1.])
    """


def warn_of_singular(bk: Backend, method: str, outcome: Outcome, vectors: Callable[[], str]) -> None:
    """Warn where factors have a zero pivot, x may be rounding only, or b has a component that no x reaches.

    Failures are reported elsewhere.

    Args:
        outcome: of all systems, known now.
        vectors: names the null vectors that are known.
    """
    status, consistent, singularity = (
        bk.to_numpy(a).reshape(-1) for a in (outcome.status, outcome.consistent, outcome.singular)
    )
    converged = status == int(Status.CONVERGED)
    lost = converged & (consistent == 0)
    if lost.any():
        _warn_of_inconsistent(method, lost, vectors())
    for kind, text in _TEXTS.items():
        which = converged & ~lost & (singularity == kind)
        if which.any():
            warnings.warn(f"{method}: the matrix{_of_which(which)} {text}", SingularMatrixWarning, stacklevel=outside())


def _inconsistent(end: EndState) -> Array:
    """Which systems were solved without a component of b that is more than rounding?"""
    return (end.status == int(Status.CONVERGED)) & ~end.consistent


def _warn_of_inconsistent(method: str, lost: np.ndarray, vectors: str) -> None:
    warnings.warn(
        f"{method}: b{_of_which(lost)} has a component in {vectors}, which the adjoint of A maps to zero, so no x "
        "reaches it. It was subtracted (result.null_part is its norm), and x is a least-squares solution. Subtract it "
        "from b, check b and the boundary conditions, or give nullspace=None, with which such a system fails.",
        SingularMatrixWarning,
        stacklevel=outside(),
    )


def _of_which(chosen: np.ndarray) -> str:
    return "" if chosen.size == 1 else f" of {int(chosen.sum())} of {chosen.size} systems"


_TEXTS = {
    Singularity.SINGULAR: "is singular: a pivot is zero up to rounding, so x is one of many solutions, the one "
    "orthogonal to the null vectors that were found. Name them with nullspace=..., add a constraint that fixes x, or "
    "check the matrix.",
    Singularity.ILL_CONDITIONED: "is ill-conditioned: its reciprocal condition number is below the rounding unit, so x "
    "may have no correct digit, though its residual is small. Scale or reformulate the system, or use more precision.",
}


def outside() -> int:
    """Stack level of the first caller outside this library, for warnings of the calling function."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    return level
