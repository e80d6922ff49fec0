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
from ..log import INFO, log, log_failure
from ..run.outcome import Outcome, Status, has_failed
from .result import Diverged, NotConverged, SolveResult
from .words import SINGULARITIES, EndState, LookForCauses, describe, inconsistent_in_words, singular_in_words

R = TypeVar("R", bound=Any)

_LIBRARIES = (__name__.partition(".")[0], "tensorflow", "torch", "jax")  # frames between the user and us


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
    record, background = result._record, result._background
    known, end = not bk.compiled(record.arrays["status"]), record.end_state(result.checkpoints)

    def say(*numbers: np.ndarray) -> str:
        end = EndState.in_numpy(numbers)
        return describe(end, background if look is None else background._replace(causes=look(end)))

    if on_failure in QUIET:
        if known and log.isEnabledFor(INFO) and bk.any(has_failed(end.status)):
            log_failure(describe(EndState.in_numpy([*map(bk.to_numpy, end.arrays())]), background))
        record.look = look if known else None
        return result
    if known:
        if look is not None and bk.any(has_failed(end.status)):
            causes, look = look(EndState.in_numpy([*map(bk.to_numpy, end.arrays())])), None
            background = background._replace(causes=causes)
            result = replace(result, _background=background)
        return raise_or_warn(bk, result, end.arrays(), on_failure, say, None, stops)
    seen, aside, named = "" if look is None else look.name, None, () if vectors is None else (vectors,)
    name = None if seen is None else fingerprint(on_failure, background, seen, *named)
    if vectors is not None:
        method = result.method  # a callback must not keep traced arrays

        def warn(*numbers: np.ndarray) -> None:
            _warn(inconsistent_in_words(method, _inconsistent(EndState(*numbers)), vectors))

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
        _warn(inconsistent_in_words(method, lost, vectors()))
    for kind in SINGULARITIES:
        which = converged & ~lost & (singularity == kind)
        if which.any():
            _warn(singular_in_words(method, which, kind))


def _inconsistent(end: EndState) -> Array:
    """Which systems were solved without a component of b that is more than rounding?"""
    return (end.status == int(Status.CONVERGED)) & ~end.consistent


def _warn(message: str) -> None:
    warnings.warn(message, SingularMatrixWarning, stacklevel=outside())


def outside() -> int:
    """Stack level of the first caller outside this library, for warnings of the calling function."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
        level, frame = level + 1, frame.f_back
    return level
