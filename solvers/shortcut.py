"""First lines of a solve on NumPy: existing factors are applied once to one right-hand side; the residual decides.

A solve that its first step ends does the same, operation by operation, so every number is the same.
Small dense matrices are factorised by LAPACK and with stricter bounds: systems that may be singular, ill-conditioned or
nearly symmetric are left to the planned solve. So is everything unusual: other settings, zero or huge numbers, null
vectors, a residual above the tolerance, and arrays of other libraries that derivatives or transformations watch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from ..backends import Backend, get_backend, get_precision, precision
from ..backends.numpy.one_system import OneSystemBackend
from ..backends.registry import backend_name
from ..backends.settings import POLICIES
from ..sparse import DenseOperator
from .choose import ROWS, auto_reason
from .derivatives.sensitivity import Sensitivity
from .factors.dense import Apply, regular_factors_of_small
from .factors.sparse import provider_note
from .judge import judged_in_program
from .log import DEBUG, log
from .methods.direct import Direct
from .plan import AS_GIVEN, Plan, Rung
from .read.arguments import Request, default_rtol
from .read.system import KnownNull, read_system
from .results.messages import Background, MadeBy
from .results.result import Gradient, Record, SolveResult, in_library
from .run.outcome import Status

MOST = 64  # unknowns of small dense systems; with more, the planned solve takes at most a few times as long as LAPACK
NUMBERS = OneSystemBackend()  # same digits as with arrays
_NEAR, _FAR = 1e-5, 1e5  # sizes of b that need no scaling by powers of two
_SQUARES = {"f": (1e-20, 1e30), "d": (1e-200, 1e300)}  # as in `Backend.norm`
_ONE, _CONVERGED = np.int32(1), np.int32(Status.CONVERGED)
_BY_LAPACK = Background((MadeBy(Direct().name, Direct(), None),))
_DIRECTLY, _WHY, _HOST = (Rung(Direct()),), auto_reason(ROWS[0].why), get_backend("numpy")


def solve_by_factors(plan: Plan, request: Request, b: Any) -> SolveResult | None:
    """Solve by the factors of a plan; None where the loop has to.

    Args:
        request: settings of the solve; its A and b are not used.
    """
    inverse = plan.inverse
    if inverse is None or type(b) is not np.ndarray or b.shape != plan.A.shape[:1] or b.dtype != plan.A.dtype:
        return None
    if get_precision() is not None or not _is_plain(request):
        return None
    with np.errstate(all="ignore"):
        return _by_one_application(plan, plan.background, inverse, request, b)


def solve_small_dense(request: Request) -> SolveResult | None:
    """Solve a regular system; None where the planned solve has to.

    On NumPy arrays x equals that of the planned solve to the last digit; other libraries may round otherwise.
    """
    bk, A, b = _on_host(request.A, request.b)
    if A is None or b is None or A.ndim != 2 or b.ndim != 1:
        return None
    n, dtype = len(b), A.dtype
    if not 2 <= n <= MOST or A.shape != (n, n) or dtype.char not in "fdFD" or b.dtype != dtype or not dtype.isnative:
        return None
    named = type(request.method) is str and request.method in ("auto", "direct")
    if not named or request.preconditioner is not None or get_precision() is not None or not _is_plain(request):
        return None
    matrix = DenseOperator(_HOST, A)
    with np.errstate(all="ignore"):
        solve = regular_factors_of_small(matrix)
        if solve is None:
            return None
        reason = AS_GIVEN if request.method == "direct" else _WHY
        plan = Plan(matrix, None, _DIRECTLY, None, reason)
        result = _by_one_application(plan, _BY_LAPACK, lambda rows: solve(rows[0])[None], request, b)
    if bk is None or result is None:
        return result
    return in_library(bk, result, bk.from_host(np.asarray(result.x), request.b), request.b)


def _is_plain(request: Request) -> bool:
    """Are the settings valid, for one system and one precision, with nothing to watch?"""
    rtol, atol, limit = request.rtol, request.atol, request.max_iter
    return (
        (rtol is None or (type(rtol) is float and 0 <= rtol < 1))
        and type(atol) is float
        and 0 <= atol < np.inf
        and (limit is None or (type(limit) is int and 0 < limit < 1 << 30))
        and request.on_failure in POLICIES
        and type(request.batch_ndim) is int
        and request.batch_ndim == 0
        and (request.axis is None or (type(request.axis) is int and request.axis in (0, -1)))
        and (request.nullspace is None or (type(request.nullspace) is str and request.nullspace == "auto"))
        and request.matrix_offset is None
        and not request.args
        and request.x0 is None
        and request.history is False
        and request.monitor is None
        and request.over is None
    )


def _by_one_application(
    plan: Plan, background: Background, inverse: Apply, request: Request, b: np.ndarray
) -> SolveResult | None:  # fmt: skip
    """The result of one application, if b needs no scaling and the residual is within the tolerance; else None."""
    begun, rows, A = perf_counter(), b[None], plan.A
    size = _norm(plan, rows)
    real = type(size)
    rtol = default_rtol(b.dtype) if request.rtol is None else request.rtol
    bound = max(real(rtol) * size, real(request.atol))
    if not (bound < size and _needs_no_scale(b, size)):  # False for NaN
        return None
    x = inverse(rows)
    residual = rows - A.apply(x)
    norm = _norm(plan, residual)
    if not norm <= bound:
        return None
    zero, (method, M, *_) = norm.dtype.type(0), plan.rungs[0]
    arrays = {
        "residual": residual[0],
        "residual_norm": norm,
        "tolerance": bound,
        "attainable": zero,
        "null_part": zero,
        "consistent": np.True_,
        "iterations": _ONE,
        "function_evaluations": np.int32(A.products),
        "converged": np.True_,
        "diverged": np.False_,
        "status": _CONVERGED,
        "singular": np.False_,
    }
    why = plan.reason + provider_note(M) if method.names_provider else plan.reason
    record = Record(arrays, is_one=True, solve_time=perf_counter() - begun)
    result = SolveResult(x[0], record, background, False, why, _SensitivityOnRequest(plan, request, b, x, residual))
    if log.isEnabledFor(DEBUG):
        log.debug("%s", result.message)
    return result


def _norm(plan: Plan, rows: np.ndarray) -> Any:
    """Norm, NaN where squares may overflow or underflow; 0 for zero."""
    real = rows.dtype.kind == "f"
    square = NUMBERS.square_norm(rows) if real else plan.A.bk.square_norm(rows)[0, 0]
    low, high = _SQUARES[square.dtype.char]
    return np.sqrt(square) if low < square < high else square if not rows.any() else square.dtype.type(np.nan)


def _needs_no_scale(b: np.ndarray, size: np.floating[Any]) -> bool:
    """Whether the largest entry is far from overflow and underflow, which the norm mostly shows."""
    return bool(_NEAR * len(b) ** 0.5 < size < _FAR or _NEAR < abs(b).max() < _FAR)


@dataclass(frozen=True, eq=False)
class _SensitivityOnRequest:
    """The `Sensitivity` of a solve, made when it is first used."""

    plan: Plan
    request: Request
    b: np.ndarray
    x: np.ndarray
    residual: np.ndarray

    @cached_property
    def _made(self) -> Sensitivity:
        plan, null = self.plan, KnownNull(None, self.request.nullspace is not None)
        with precision(None):
            system = read_system(replace(self.request, A=plan.A, b=self.b), plan.method, null)
        system = replace(system, source=plan.A if plan.source is None else plan.source)
        none = np.zeros((1, 1))
        return Sensitivity(plan.from_rung(0), system, self.x, self.residual, none > 0, none, judged_in_program)

    def vjp(self, cotangent: Any) -> Gradient:
        return self._made.vjp(cotangent)

    def jvp(self, b: Any, A: Any) -> Any:
        return self._made.jvp(b, A)


def _on_host(A: Any, b: Any) -> tuple[Backend | None, np.ndarray | None, np.ndarray | None]:
    """The library or None for NumPy, and A and b as NumPy arrays or views of small arrays; None if not available."""
    if type(A) is np.ndarray and type(b) is np.ndarray:
        return None, A, b
    name = backend_name(b)
    if name in (None, "numpy") or backend_name(A) != name:
        return None, None, None
    bk = get_backend(name)
    if not (bk.is_array(A) and bk.is_array(b) and bk.is_concrete(b)):
        return None, None, None
    small = len(b.shape) == 1 and 2 <= b.shape[0] <= MOST and tuple(A.shape) == (b.shape[0],) * 2
    return (bk, bk.host_view(A), bk.host_view(b)) if small else (None, None, None)
