"""One call of SciPy's iterative solvers: `linear_solve` underneath, and `(x, info)` of its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..backends import choose_backend
from ..solvers import IterationState, Method, SolveResult, Status, linear_solve
from ..sparse import NonlinearError, Operator
from .checked import checked, for_scipy
from .systems import is_function, is_of_another_library, is_plain, system_of

_MOST = 1 << 29  # iterations; linear_solve keeps counts in 32 bits
_CONVERGED = int(Status.CONVERGED)


def iterate(
    function: Callable[..., Any],
    default: Method,
    A: Any,
    b: Any,
    x0: Any,
    rtol: Any,
    atol: Any,
    maxiter: Any,
    M: Any,
    method: str | Method | None,
    per_iteration: int = 1,
    limit: int = 0,
    breakdown: int = 0,
    callback: Callable[[Any], object] | None = None,
) -> tuple[Any, Any]:
    """x, and 0 if the true residual is below max(rtol |b|, atol), of b as it is: without a solution, never.

    What krylix refuses for its own method (a matrix that is not symmetric for CG, say) is left to SciPy's function,
    whose errors are then the user's too, and whose x is checked.

    Args:
        function: SciPy's, to fall back to.
        default: our method, if `method` names none.
        per_iteration: steps of the method that SciPy counts as one.
        limit: of SciPy's iterations by default; 0 for 10 n.
        breakdown: info after a breakdown, if SciPy's function says that of its own.
        callback: called with x after each iteration.
    """
    told = None if callback is None else _Told(callback)
    given = A, b, x0, rtol, atol, M
    try:
        if not is_plain(A, b, x0, M, rtol, atol, maxiter):
            A, b, x0, M, rtol, atol, done = system_of(A, b, x0, M, rtol, atol)
            if done is not None:
                return done, 0
        most = (limit or 10 * b.shape[0]) if maxiter is None else maxiter
        if type(x0) is np.ndarray and not x0.any():
            x0 = None  # saves a product
        result = linear_solve(
            A, b, x0=x0, method=default if method is None else method, preconditioner=M, rtol=rtol, atol=atol,
            max_iter=min(most * per_iteration, _MOST), nullspace=None, on_failure="status", callback=told,
        )  # fmt: skip
    except NonlinearError:
        raise
    except (ValueError, TypeError) as ours:
        A, b, x0, rtol, atol, M = given
        if method is not None or is_of_another_library(b) or is_function(A) or isinstance(A, Operator):
            raise
        if told is not None and told.has_failed:
            raise
        settings = {"callback": callback} if callback else {}
        try:
            return by_scipy(function, A, b, x0, rtol, atol, maxiter, M, settings)
        except (ValueError, TypeError) as theirs:
            if type(theirs) not in (ValueError, TypeError) or str(theirs) == str(ours):
                raise
            raise type(theirs)(f"{ours} (SciPy's function does not solve it either: {theirs})") from theirs
    if type(b) is np.ndarray and result.converged:
        return result.x, 0
    return result.x, _info(result, most, b, breakdown)


class _Told:
    """The callback of `linear_solve` for one of SciPy's, which gets x, and whose value is not looked at."""

    def __init__(self, callback: Callable[[Any], object]) -> None:
        self.callback, self.has_failed = callback, False

    def __call__(self, state: IterationState) -> None:
        try:
            self.callback(state.x)
        except BaseException:  # also where it is one of those that krylix raises of its own
            self.has_failed = True
            raise


def by_scipy(
    function: Callable[..., Any],
    A: Any,
    b: Any,
    x0: Any,
    rtol: Any,
    atol: Any,
    maxiter: Any,
    M: Any,
    settings: dict[str, Any],
) -> tuple[Any, int]:
    """SciPy's own function, with its true residual checked."""
    settings = settings if M is None else {**settings, "M": for_scipy(M, A)}
    return checked(function, A, b, x0, rtol, atol, maxiter, settings)


def _info(result: SolveResult, most: int, b: Any, breakdown: int) -> Any:
    """0: converged; > 0: a number of iterations; < 0: breakdown. An array in compiled functions."""
    if is_of_another_library(b):
        bk = choose_backend(b)
        if bk.compiled(result.x):
            return bk.where(result.status == _CONVERGED, 0 * result.iterations, bk.maximum(result.iterations, 1))
    if result.converged:
        return 0
    status = int(result.status)
    if status == Status.BREAKDOWN and breakdown:
        return breakdown
    return max(1, most if status == Status.MAX_ITER else int(result.iterations))
