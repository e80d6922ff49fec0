"""Small dense systems of NumPy, which LAPACK solves in a hundredth of the time that the general way takes to see how.

The same factors, the same look at their pivots and at what they make of a random vector, with stricter bounds: whatever
may be singular, ill-conditioned or nearly symmetric is left to the general way, and so is all that is no plain request.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack

from ..backends import get_backend, get_precision
from ..backends.lapack import cholesky_or_none
from ..sparse import DenseOperator
from .known_plan import KnownPlan, settings_are_plain
from .methods.direct.dense import Direct, may_be_definite
from .methods.direct.dense_singular import scattered
from .methods.direct.singular import suspicious
from .results.result import SolveResult
from .setup.request import Request

MOST = 64  # unknowns; of more, the general way takes no longer than a few times what LAPACK does
_DIRECT = Direct()
_LEAST_PIVOT = {"d": 1e-10, "D": 1e-10, "f": 1e-4, "F": 1e-4}  # of the largest
_ASYMMETRIC = 0.05  # of the largest entry, between an entry and the one opposite: Cholesky is out of the question
_GETRF = {"f": lapack.sgetrf, "d": lapack.dgetrf, "F": lapack.cgetrf, "D": lapack.zgetrf}
_GETRS = {"f": lapack.sgetrs, "d": lapack.dgetrs, "F": lapack.cgetrs, "D": lapack.zgetrs}
_POTRS = {"f": lapack.spotrs, "d": lapack.dpotrs, "F": lapack.cpotrs, "D": lapack.zpotrs}

Solve = Callable[[np.ndarray], np.ndarray]  # for one vector (n,)


def solve_small_dense(request: Request) -> SolveResult | None:
    """The result of a regular system, to the last digit that of the general way; None where that has to find it."""
    A, b = request.A, request.b
    if type(A) is not np.ndarray or type(b) is not np.ndarray or A.ndim != 2 or b.ndim != 1:
        return None
    n, dtype = len(b), A.dtype
    if not 2 <= n <= MOST or A.shape != (n, n) or dtype.char not in _GETRF or b.dtype != dtype or not dtype.isnative:
        return None
    named = type(request.method) is str and request.method in ("auto", "direct")
    if not named or request.preconditioner is not None or request.history is not False or request.progress is not False:
        return None
    if get_precision() is not None or not settings_are_plain(request):
        return None
    matrix = DenseOperator(get_backend("numpy"), A)
    with np.errstate(all="ignore"):
        solve = _regular_factors(matrix)
    return None if solve is None else KnownPlan(matrix, _DIRECT, lambda rows: solve(rows[0])[None], request).solve(b)


def _regular_factors(matrix: DenseOperator) -> Solve | None:
    """What solves with the factors that suit the matrix; None where it may be singular."""
    A: np.ndarray = matrix.matrix
    rows = abs(A).max(1)  # zero or not finite: then some pivot, or the image below, is too
    definite = not _is_asymmetric(A, _ASYMMETRIC * rows.max()) and _may_be_definite(matrix)
    found = _by_cholesky(A) if definite else _by_lu(A)
    if found is None:
        return None
    solve, pivots = found
    image = solve((rows * scattered(len(A), rows.dtype.char)[0]).astype(A.dtype, copy=False))
    allowed = suspicious(rows.dtype) / (float(np.finfo(rows.dtype).eps) * len(A) ** 0.5)
    regular = pivots.min() > _LEAST_PIVOT[A.dtype.char] * pivots.max() and abs(image).max() < allowed
    return solve if regular else None


def _is_asymmetric(A: np.ndarray, bound: np.floating) -> bool:
    """Clearly: by the first entries, or by all. Then no closer look is needed."""
    return bool(abs(A[0, 1] - A[1, 0].conj()) > bound or abs(A - A.T.conj()).max() > bound)


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
