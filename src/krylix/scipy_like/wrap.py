"""Calls of SciPy's solvers as calls of `linear_solve`: arguments, SciPy's own function behind it, and `(x, info)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from ..backends import choose_backend
from ..backends.registry import backend_name
from ..solvers import IterationState, Method, SolveResult, Status, linear_solve
from ..solvers.preconditioners import preconditioner
from ..sparse import NonlinearError, Operator, is_function

FLOATING = "fdFD"
_MOST = 1 << 29  # iterations; linear_solve keeps counts in 32 bits
_CONVERGED = int(Status.CONVERGED)
_ROUNDS = 10  # calls of SciPy's function
_LESS = 0.5  # a round that reduces the residual less than this is the last one


class ScipySolver(NamedTuple):
    """An iterative solver of SciPy, and the method of krylix in its place."""

    function: Callable[..., Any]
    method: Method
    is_scipys: bool = False  # is the method SciPy's? Then its function is called where it takes the arguments
    tests_residual: bool = False  # does the function stop by the true residual?
    breakdown: int = 0  # info of the function after a breakdown, if it has a special one


def solve(
    solver: ScipySolver, A: Any, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any, M: Any,
    method: str | Method | None, callback: Callable[[Any], object] | None, settings: dict[str, Any] | None = None, *,
    per_iteration: int = 1, limit: int = 0,
) -> tuple[Any, Any]:  # fmt: skip
    """x, and 0 if the true residual is below max(rtol |b|, atol), for b as given.

    Systems that krylix refuses for its own method (a matrix that is not symmetric for CG, say) are left to SciPy's
    function, whose errors the user then gets, and whose x is checked.

    Args:
        settings: of SciPy's function, where the algorithm is its own.
        per_iteration: steps of the method that SciPy counts as one.
        limit: of SciPy's iterations by default; 0 for 10 n.
    """
    settings = {"callback": callback} | (settings or {})
    if method is None and solver.is_scipys and not is_for_krylix(A, b):
        return solve_by_scipy(solver, A, b, x0, rtol, atol, maxiter, M, settings)
    watcher = None if callback is None else _XCallback(callback)
    arguments = A, b, x0, rtol, atol, maxiter, M
    try:
        if not _is_plain(A, b, x0, M, rtol, atol, maxiter):
            A, b, x0, M, rtol, atol, done = _system_of(A, b, x0, M, rtol, atol)
            if done is not None:
                return done, 0
        most = (limit or 10 * b.shape[0]) if maxiter is None else maxiter
        if type(x0) is np.ndarray and not x0.any():
            x0 = None  # saves a product
        result = linear_solve(
            A, b, x0=x0, method=solver.method if method is None else method, preconditioner=M, rtol=rtol, atol=atol,
            max_iter=min(most * per_iteration, _MOST), nullspace=None, on_failure="status", callback=watcher,
        )  # fmt: skip
    except NonlinearError:
        raise
    except (ValueError, TypeError) as ours:
        if method is not None or is_for_krylix(*arguments[:2]) or (watcher is not None and watcher.has_failed):
            raise
        try:
            return solve_by_scipy(solver, *arguments, settings)
        except (ValueError, TypeError) as theirs:
            if type(theirs) not in (ValueError, TypeError) or str(theirs) == str(ours):
                raise
            raise type(theirs)(f"{ours} (SciPy's function does not solve it either: {theirs})") from theirs
    if type(b) is np.ndarray and result.converged:
        return result.x, 0
    return result.x, _info(result, most, b, solver.breakdown)


class _XCallback:
    """Callback of `linear_solve` that passes x to one of SciPy's and ignores its return value."""

    def __init__(self, callback: Callable[[Any], object]) -> None:
        self.callback, self.has_failed = callback, False

    def __call__(self, state: IterationState) -> None:
        try:
            self.callback(state.x)
        except BaseException:  # krylix raises errors of the same types
            self.has_failed = True
            raise


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


# --- SciPy's own functions


def solve_by_scipy(
    solver: ScipySolver, A: Any, b: Any, x0: Any, rtol: Any, atol: Any, maxiter: Any, M: Any, settings: dict[str, Any],
) -> tuple[Any, int]:  # fmt: skip
    """SciPy's function, with info 0 only for an x whose true residual is below max(rtol |b|, atol).

    SciPy's recurrences may drift away from the residual, and TFQMR and MINRES stop by their own bounds. The function
    is called again from its x until the true residual is below the tolerance, which costs 1 more product with A per
    round.

    Args:
        settings: further keyword arguments of the function.
    """
    if solver.tests_residual and maxiter < 1:  # SciPy would return an x that it did not check, and report success
        raise ValueError(f"maxiter must be at least 1; got {maxiter}.")
    settings = {"rtol": rtol, "atol": atol, "maxiter": maxiter, **settings}
    if M is not None:
        settings["M"] = for_scipy(M, A)
    x, info = solver.function(A, b, x0, **settings)
    if info != 0 or solver.tests_residual:
        return x, info
    matvec, b = spl.aslinearoperator(A).matvec, np.asarray(b).ravel()
    goal, norm = max(rtol * float(np.linalg.norm(b)), atol), np.inf
    for _ in range(_ROUNDS):
        before, norm = norm, float(np.linalg.norm(b - matvec(x) + settings.get("shift", 0) * x))
        if norm <= goal:
            return x, 0
        if not norm < _LESS * before:
            break
        x, info = solver.function(A, b, x, **settings)
        if info != 0:
            return x, info
    return x, max(1, 10 * len(b) if maxiter is None else maxiter)


def for_scipy(M: Any, A: Any) -> Any:
    """A preconditioner of krylix, its name, or a function, in the form of SciPy's functions; others as they are."""
    if isinstance(M, str):
        M = preconditioner(A, M)
    if isinstance(M, Operator) or (callable(M) and not hasattr(M, "shape")):
        apply = (lambda v: M @ v) if isinstance(M, Operator) else M
        adjoint = (lambda v: M.H @ v) if isinstance(M, Operator) else None
        return spl.LinearOperator(A.shape, matvec=apply, rmatvec=adjoint)
    return M


# --- arguments


def _is_plain(A: Any, b: Any, x0: Any, M: Any, rtol: Any, atol: Any, maxiter: Any) -> bool:
    """Does `linear_solve` read these as SciPy does, as in most calls? Otherwise `_system_of` converts them."""
    if type(b) is not np.ndarray or b.ndim != 1 or not (type(A) is np.ndarray or sp.issparse(A)):
        return False
    dtype, n = b.dtype, b.shape[0]
    return (
        A.shape == (n, n)
        and A.dtype == dtype
        and dtype.char in FLOATING
        and type(rtol) is float
        and 0 <= rtol < 1
        and type(atol) is float
        and 0 <= atol < np.inf
        and (x0 is None or (type(x0) is np.ndarray and x0.dtype == dtype and x0.shape == b.shape))
        and (maxiter is None or (type(maxiter) is int and maxiter > 0))
        and (M is None or type(M) is str or getattr(M, "shape", None) == (n, n))
    )


def is_of_another_library(b: Any) -> bool:
    """Is it an array of JAX, PyTorch, TensorFlow or of another library that krylix knows?"""
    return not isinstance(b, np.ndarray | list | tuple) and backend_name(b) not in (None, "numpy")


def is_for_krylix(A: Any, b: Any) -> bool:
    """Are these arrays of other libraries, Python functions or operators of krylix, which SciPy does not take?"""
    return is_of_another_library(b) or is_function(A) or isinstance(A, Operator)


def _system_of(A: Any, b: Any, x0: Any, M: Any, rtol: Any, atol: Any) -> tuple[Any, ...]:
    """The arguments converted as SciPy converts them, and x where any x is within the tolerance, else None."""
    if is_of_another_library(b) or is_of_another_library(A) or is_function(A):
        return A, b, x0, M, rtol, atol, None
    if isinstance(A, np.ndarray):
        A = np.asarray(A)  # of a np.matrix
    elif not (sp.issparse(A) or isinstance(A, Operator)):
        if M is None and getattr(A, "psolve", None) is not None:  # where SciPy looks for a preconditioner
            M = spl.LinearOperator(A.shape, matvec=A.psolve, rmatvec=getattr(A, "rpsolve", None))
        A = spl.aslinearoperator(A)
    if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"expected square matrix, but got shape={(A.shape,)}")
    n, b = int(A.shape[0]), np.asarray(b)
    if b.shape not in ((n,), (n, 1)):
        raise ValueError(f"shapes of A {A.shape} and b {b.shape} are incompatible")
    b = b.ravel()
    dtype = np.result_type(_floating(getattr(A, "dtype", None) or A.matvec(b).dtype), _floating(b.dtype))
    b = b.astype(dtype, copy=False)
    if not isinstance(M, str | None) and getattr(M, "shape", (n, n)) != (n, n):
        raise ValueError("matrix and preconditioner have different shapes")
    if isinstance(x0, str):
        if x0 != "Mb":
            raise ValueError(f"x0 must be an array, None or 'Mb', the product of M and b; got {x0!r}.")
        x0 = b.copy() if M is None else np.asarray(spl.aslinearoperator(M).matvec(b), dtype)
    elif x0 is not None:
        x0 = np.array(x0, dtype=dtype)
        if x0.shape not in ((n,), (n, 1)):
            raise ValueError(f"shapes of A {(n, n)} and x0 {x0.shape} are incompatible")
        x0 = x0.ravel()
    if isinstance(atol, str) or atol is None or not atol >= 0:
        raise ValueError(f"called with invalid `atol`={atol}; if set, `atol` must be a real, non-negative number.")
    rtol, atol = float(rtol), float(atol)
    if 0 <= rtol < 1 and atol < np.inf:
        return A, b, x0, M, rtol, atol, None
    goal = max(rtol * float(np.linalg.norm(b)), atol)
    if goal == np.inf:
        return A, b, x0, M, 0.0, 0.0, np.zeros_like(b) if x0 is None else x0.copy()
    return A, b, x0, M, 0.0, goal, None


def _floating(dtype: Any) -> np.dtype:
    dtype = np.dtype(dtype)
    return dtype if dtype.char in FLOATING else np.dtype(float)


# --- names that krylix.scipy_like does not define


def object_of_scipy(name: str) -> Any:
    """SciPy's object of this name, looked up when it is used.

    Raises:
        AttributeError: SciPy has no such name either.
    """
    if name.startswith("_") or not hasattr(spl, name):
        raise AttributeError(f"module 'krylix.scipy_like' has no attribute {name!r}, nor has scipy.sparse.linalg.")
    return getattr(spl, name)


def names_of_scipy() -> list[str]:
    """Public names of SciPy's module."""
    return sorted(name for name in spl.__all__ if not name.startswith("_") and name != "test")
