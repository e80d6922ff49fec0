"""Fast path for one NumPy right-hand side with existing factors: apply them, take the residual.

It is what a solve does anyway where its first step ends it, operation by operation, so that every number is the same.
What is unusual is left to the general way: other arrays, zero or huge numbers, null vectors, a residual above the
tolerance.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, replace
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np

from ..backends import get_precision, precision
from ..backends.numpy.one_system import OneSystemBackend
from ..backends.on_failure import POLICIES
from ..sparse import Matrix, Operator
from .derivatives.sensitivity import Sensitivity
from .methods.direct.dense import Direct
from .methods.direct.factorisation import DenseFactors, InverseFactors
from .methods.direct.fast import FastDirect
from .methods.direct.sparse_direct import SparseDirect
from .methods.direct.superlu import HostFactors, ScipyDirect, provider_note
from .methods.method import Method
from .plan import AS_GIVEN, Plan, Rung
from .read.arguments import Request, default_rtol
from .read.system import KnownNull, read_system
from .results.numbers import Later
from .results.result import Gradient, SolveResult
from .results.words import MadeBy
from .run.outcome import Status

_NEAR, _FAR = 1e-5, 1e5  # sizes of b that need no scaling by powers of two
_SQUARES = {"f": (1e-20, 1e30), "d": (1e-200, 1e300)}  # as of `Backend.norm`
_NUMBERS = OneSystemBackend()  # which give the digits that arrays of them do
_FACTORISE = (Direct, FastDirect, ScipyDirect, SparseDirect)
_ONE, _CONVERGED = np.int32(1), np.int32(Status.CONVERGED)
_DEFAULTS = {field.name: field.default for field in fields(SolveResult) if field.default is not MISSING}


@dataclass(frozen=True, eq=False)
class KnownPlan:
    """Constants of all solves with one regular NumPy matrix.

    Attributes:
        A: the matrix, n x n.
        method: a direct one.
        inverse: what applies its factors to rows.
        request: settings of the solve; its A and b are not looked at.
        M: the factors, if derivatives may use them.
        source: what the user called A, if that is not A.
        why: this method, in words.
    """

    A: Matrix
    method: Method
    inverse: Callable[[np.ndarray], np.ndarray]
    request: Request
    M: Operator | None = None
    source: Any = None
    why: str = AS_GIVEN

    @classmethod
    def of(
        cls,
        A: Operator,
        method: Method,
        M: Operator | None,
        null: KnownNull,
        request: Request,
        source: Any = None,
        why: str = AS_GIVEN,
    ) -> KnownPlan | None:
        """Make a plan; None where solves take other steps."""
        if not A.bk.on_host or type(method) not in _FACTORISE or null.projection is not None:
            return None
        regular = isinstance(M, DenseFactors | InverseFactors) or (isinstance(M, HostFactors) and M.singularity is None)
        if M is None or not regular:
            return None
        if not isinstance(A, Matrix) or A.shape[0] != A.shape[1] or A.shape[0] < 2 or A.systems is not None:
            return None
        if M.bk is not A.bk or M.dtype != A.dtype or M.systems is not None or not settings_are_plain(request):
            return None
        return cls(A, method, M.apply, request, M, source, why + provider_note(M) if method.names_provider else why)

    def solve(self, b: Any) -> SolveResult | None:
        """Solve; None where the general path has to."""
        A = self.A
        if type(b) is not np.ndarray or b.shape != A.shape[:1] or b.dtype != A.dtype or get_precision() is not None:
            return None
        with np.errstate(all="ignore"):
            return self.solve_quietly(b)

    def solve_quietly(self, b: np.ndarray) -> SolveResult | None:
        """`solve` for a suitable right-hand side, without NumPy warnings."""
        begun, rows, request = perf_counter(), b[None], self.request
        size = self._norm(rows)
        real = type(size)
        rtol = default_rtol(b.dtype) if request.rtol is None else request.rtol
        bound = max(real(rtol) * size, real(request.atol))
        if not (bound < size and _needs_no_scale(b, size)):  # NaN neither
            return None
        x = self.inverse(rows)
        residual = rows - self.A.apply(x)
        norm = self._norm(residual)
        return self._result(b, x, residual, norm, bound, begun) if norm <= bound else None

    def _norm(self, rows: np.ndarray) -> Any:
        """Norm, NaN where squares may overflow or underflow; 0 for zero."""
        real = rows.dtype.kind == "f"
        square = _NUMBERS.square_norm(rows) if real else self.A.bk.square_norm(rows)[0, 0]
        low, high = _SQUARES[square.dtype.char]
        return np.sqrt(square) if low < square < high else square if not rows.any() else square.dtype.type(np.nan)

    def _result(
        self, b: np.ndarray, x: np.ndarray, residual: np.ndarray, norm: Any, bound: Any, begun: float
    ) -> SolveResult:
        zero = norm.dtype.type(0)
        numbers = {
            "residual_norm": norm,
            "tolerance": bound,
            "attainable": zero,
            "null_part": zero,
            "consistent": np.True_,
            "iterations": _ONE,
            "function_evaluations": np.int32(self.A.products),
            "converged": np.True_,
            "diverged": np.False_,
            "status": _CONVERGED,
            "singular": np.False_,
        }
        result = object.__new__(SolveResult)  # a frozen class sets its fields one by one, which takes as long as LAPACK
        result.__dict__.update(
            _DEFAULTS,
            x=x[0],
            residual=residual[0],
            history=None,
            _made_by=(tuple.__new__(MadeBy, (self.method.name, self.method, None)),),  # without a call of Python
            _why=self.why,
            solve_time=perf_counter() - begun,
            _sensitivity=_Solved(self, b, x, residual),
            _later=Later(self.A.bk, numbers),
        )
        return result


def _needs_no_scale(b: np.ndarray, size: np.floating[Any]) -> bool:
    """Is scaling unnecessary, as the largest entry is far from overflow and underflow? Mostly its norm shows it."""
    return bool(_NEAR * len(b) ** 0.5 < size < _FAR or _NEAR < abs(b).max() < _FAR)


def settings_are_plain(request: Request) -> bool:
    """Are the settings valid, for one system and one precision?"""
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
        and (request.matrix_offset is None)
        and not request.args
        and request.x0 is None
    )


@dataclass(frozen=True, eq=False)
class _Solved:
    """Lazy `Sensitivity` of a solve."""

    plan: KnownPlan
    b: np.ndarray
    x: np.ndarray
    residual: np.ndarray

    @cached_property
    def _made(self) -> Sensitivity:
        plan = self.plan
        with precision(None):
            request = replace(plan.request, A=plan.A, b=self.b)
            system = read_system(request, plan.method, KnownNull(None, request.nullspace is not None))
        source = plan.A if plan.source is None else plan.source
        made = Plan(plan.A, None, (Rung(plan.method, plan.M),))
        system, none = replace(system, source=source), np.zeros((1, 1))
        return Sensitivity(made, system, self.x, self.residual, none > 0, none)

    def vjp(self, cotangent: Any) -> Gradient:
        return self._made.vjp(cotangent)

    def jvp(self, b: Any, A: Any) -> Any:
        return self._made.jvp(b, A)
