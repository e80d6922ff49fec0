"""Fast path for small dense systems on the host: LAPACK solves a hundred while the general path starts one.

The same factors, the same look at their pivots and at what they make of a random vector, with stricter bounds: whatever
may be singular, ill-conditioned or nearly symmetric is left to the general way, and so is all that is no plain request.
So are arrays of other libraries that somebody watches, as derivatives and transformations do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.linalg import lapack

from ..backends import Backend, get_backend, get_precision
from ..backends.lapack import cholesky_or_none
from ..backends.registry import backend_name
from ..sparse import DenseOperator
from .choose import why_auto
from .known_plan import KnownPlan, settings_are_plain
from .methods.direct.dense import Direct, may_be_definite
from .methods.direct.dense_singular import probe_vector
from .methods.direct.singular import suspicious
from .plan import AS_GIVEN
from .read.arguments import Request
from .results.form import in_library
from .results.result import SolveResult

MOST = 64  # unknowns; of more, the general way takes no longer than a few times what LAPACK does
_DIRECT = Direct()
_WHY = why_auto(0)
_LEAST_PIVOT = {"d": 1e-10, "D": 1e-10, "f": 1e-4, "F": 1e-4}  # of the largest
_ALLOWED = {code: suspicious(np.dtype(code)) / float(np.finfo(code).eps) for code in "fdFD"}  # see `suspicious`
_ASYMMETRIC = 0.05  # of the largest entry, between an entry and the one opposite: Cholesky is out of the question
_GETRF = {"f": lapack.sgetrf, "d": lapack.dgetrf, "F": lapack.cgetrf, "D": lapack.zgetrf}
_GETRS = {"f": lapack.sgetrs, "d": lapack.dgetrs, "F": lapack.cgetrs, "D": lapack.zgetrs}
_POTRS = {"f": lapack.spotrs, "d": lapack.dpotrs, "F": lapack.cpotrs, "D": lapack.zpotrs}

_HOST = get_backend("numpy")
_largest = np.maximum.reduce  # a method of arrays that asks Python first takes twice as long

Solve = Callable[[np.ndarray], np.ndarray]  # for one vector (n,)


def solve_small_dense(request: Request) -> SolveResult | None:
    """Solve a regular system; None where the general path has to.

    Of NumPy's arrays it is that of the general way to the last digit; other libraries may round otherwise.
    """
    bk, A, b = _on_host(request.A, request.b)
    if A is None or b is None or A.ndim != 2 or b.ndim != 1:
        return None
    n, dtype = len(b), A.dtype
    if not 2 <= n <= MOST or A.shape != (n, n) or dtype.char not in _GETRF or b.dtype != dtype or not dtype.isnative:
        return None
    named = type(request.method) is str and request.method in ("auto", "direct")
    if not named or request.preconditioner is not None or request.history is not False or request.monitor is not None:
        return None
    if get_precision() is not None or not settings_are_plain(request):
        return None
    matrix = DenseOperator(_HOST, A)
    with np.errstate(all="ignore"):
        solve = _regular_factors(matrix)
        if solve is None:
            return None
        why = AS_GIVEN if request.method == "direct" else _WHY
        plan = KnownPlan(matrix, _DIRECT, lambda rows: solve(rows[0])[None], request, why=why)
        found = plan.solve_quietly(b)
    return found if bk is None or found is None else in_library(bk, found, request.b)


def _on_host(A: Any, b: Any) -> tuple[Backend | None, np.ndarray | None, np.ndarray | None]:
    """NumPy's arrays, or its views of small ones of one library, and that; None of what cannot be seen now."""
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


def _regular_factors(matrix: DenseOperator) -> Solve | None:
    """Solve function by Cholesky or LU factors; None where the matrix may be singular."""
    A: np.ndarray = matrix.matrix
    rows = _largest(abs(A), 1)  # zero or not finite: then some pivot, or the image below, is too
    definite = not _is_asymmetric(A, _ASYMMETRIC * _largest(rows)) and _may_be_definite(matrix)
    found = _by_cholesky(A) if definite else _by_lu(A)
    if found is None:
        return None
    solve, pivots = found
    code = A.dtype.char
    image = solve((rows * probe_vector(len(A), rows.dtype.char)[0]).astype(A.dtype, copy=False))
    regular = np.minimum.reduce(pivots) > _LEAST_PIVOT[code] * _largest(pivots)
    return solve if regular and _largest(abs(image)) < _ALLOWED[code] / len(A) ** 0.5 else None


def _is_asymmetric(A: np.ndarray, bound: np.floating) -> bool:
    """Clearly: by the first entries, or by all. Then no closer look is needed."""
    return bool(abs(A[0, 1] - A[1, 0].conj()) > bound or _largest(abs(A - A.T.conj()), None) > bound)


def _may_be_definite(matrix: DenseOperator) -> bool:
    """As `may_be_definite`; most are symmetric to the last digit, which takes a fraction of its time to see."""
    A = matrix.matrix
    if not (A.T.conj() == A).all():
        return may_be_definite(matrix.bk, matrix)
    return bool((A.diagonal().real > 0).all())


def _by_lu(A: np.ndarray) -> tuple[Solve, np.ndarray]:
    lu, interchanges, _ = _GETRF[A.dtype.char](A)  # a zero pivot is seen by the caller
    getrs = _GETRS[A.dtype.char]
    return lambda v: getrs(lu, interchanges, v)[0], abs(lu.diagonal())


def _by_cholesky(A: np.ndarray) -> tuple[Solve, np.ndarray] | None:
    factor = cholesky_or_none(A)
    if factor is None:
        return None
    upper, potrs = factor.T.conj(), _POTRS[A.dtype.char]
    diagonal = factor.diagonal().real
    return lambda v: potrs(upper, v)[0], diagonal * diagonal / A.diagonal().real
