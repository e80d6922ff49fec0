"""Arguments of SciPy's solvers, as `linear_solve` takes them: dtypes, columns `(n, 1)`, x0="Mb", tolerances."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from ..backends.registry import backend_name
from ..sparse import Operator

_FLOATING = "fdFD"


class ScipySystem(NamedTuple):
    """Arguments for `linear_solve`.

    Attributes:
        done: x of a system that needs no solve, as any x is within its tolerance.
    """

    A: Any
    b: Any
    x0: Any
    M: Any
    rtol: float
    atol: float
    done: Any = None


def is_plain(A: Any, b: Any, x0: Any, M: Any, rtol: Any, atol: Any, maxiter: Any) -> bool:
    """Does `linear_solve` read these as SciPy does, without a change? True for most calls; else `system_of` reads."""
    if type(b) is not np.ndarray or b.ndim != 1 or not (type(A) is np.ndarray or sp.issparse(A)):
        return False
    dtype, n = b.dtype, b.shape[0]
    return (
        A.shape == (n, n)
        and A.dtype == dtype
        and dtype.char in _FLOATING
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


def is_function(A: Any) -> bool:
    """Is it a Python function, which `linear_solve` takes and SciPy does not?"""
    return callable(A) and not hasattr(A, "shape")


def system_of(A: Any, b: Any, x0: Any, M: Any, rtol: Any, atol: Any) -> ScipySystem:
    """Convert as `scipy.sparse.linalg` does.

    Raises:
        ValueError, TypeError: SciPy refuses these, too, in its own words.
    """
    if is_of_another_library(b) or is_of_another_library(A) or is_function(A):
        return ScipySystem(A, b, x0, M, rtol, atol)
    A, M = _without_hidden_preconditioner(A, M)
    n = _size(A)
    b = np.asarray(b)
    if b.shape not in ((n,), (n, 1)):
        raise ValueError(f"shapes of A {A.shape} and b {b.shape} are incompatible")
    b = b.ravel()
    dtype = np.result_type(_floating(getattr(A, "dtype", None) or A.matvec(b).dtype), _floating(b.dtype))
    b = b.astype(dtype, copy=False)
    if not isinstance(M, str | None) and getattr(M, "shape", (n, n)) != (n, n):
        raise ValueError("matrix and preconditioner have different shapes")
    x0 = _start(x0, b, M)
    rtol, atol = float(rtol), _checked_atol(atol)
    if 0 <= rtol < 1 and atol < np.inf:
        return ScipySystem(A, b, x0, M, rtol, atol)
    goal = max(rtol * float(np.linalg.norm(b)), atol)
    if goal == np.inf:
        return ScipySystem(A, b, x0, M, 0.0, 0.0, np.zeros_like(b) if x0 is None else x0.copy())
    return ScipySystem(A, b, x0, M, 0.0, goal)


def _without_hidden_preconditioner(A: Any, M: Any) -> tuple[Any, Any]:
    """`psolve` and `rpsolve` of A, which SciPy takes for M; also matrices of old classes as arrays."""
    if isinstance(A, np.ndarray):
        return np.asarray(A), M
    if sp.issparse(A) or isinstance(A, Operator):
        return A, M
    apply = getattr(A, "psolve", None)
    if M is None and apply is not None:
        M = spl.LinearOperator(A.shape, matvec=apply, rmatvec=getattr(A, "rpsolve", None))
    return spl.aslinearoperator(A), M


def _size(A: Any) -> int:
    if len(A.shape) != 2 or A.shape[0] != A.shape[1]:
        raise ValueError(f"expected square matrix, but got shape={(A.shape,)}")
    return int(A.shape[0])


def _floating(dtype: Any) -> np.dtype:
    """The dtype itself if LAPACK has it, else float64."""
    dtype = np.dtype(dtype)
    return dtype if dtype.char in _FLOATING else np.dtype(float)


def _start(x0: Any, b: np.ndarray, M: Any) -> Any:
    if x0 is None:
        return None
    if isinstance(x0, str):
        if x0 != "Mb":
            raise ValueError(f"x0 must be an array, None or 'Mb', the product of M and b; got {x0!r}.")
        return b.copy() if M is None else np.asarray(spl.aslinearoperator(M).matvec(b), b.dtype)
    x0 = np.array(x0, dtype=b.dtype)
    if x0.shape not in ((len(b),), (len(b), 1)):
        raise ValueError(f"shapes of A {(len(b),) * 2} and x0 {x0.shape} are incompatible")
    return x0.ravel()


def _checked_atol(atol: Any) -> float:
    if isinstance(atol, str) or atol is None or not atol >= 0:
        raise ValueError(f"called with invalid `atol`={atol}; if set, `atol` must be a real, non-negative number.")
    return float(atol)
