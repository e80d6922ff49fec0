"""`lsqr` and `lsmr`: SciPy's, with the norms of the true residual in place of its recurrences."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse.linalg as spl

_LIMIT = 7  # istop where the limit of iterations came first
_SOLVED, _LEAST_SQUARES = (1, 4), (2, 5)  # istop; 4 and 5 are as 1 and 2, to working precision
_SLACK = 10  # times the tolerance: what the estimate of |A| and rounding may change


def lsqr(
    A: Any,
    b: Any,
    damp: float = 0.0,
    atol: float = 1e-6,
    btol: float = 1e-6,
    conlim: float = 1e8,
    iter_lim: int | None = None,
    show: bool = False,
    calc_var: bool = False,
    x0: Any = None,
) -> tuple[Any, ...]:
    """Least squares `min |b - A x|^2 + damp^2 |x - x0|^2` by LSQR of SciPy, called as `scipy.sparse.linalg.lsqr`.

    `r1norm`, `r2norm` and `arnorm` are those of the x that is returned, not of the recurrences, and istop is 7 where
    these show that what it claims does not hold. Sparse and large, or with derivatives: `linear_solve(method="LSMR")`.

    Args:
        A: matrix `(m, n)` or LinearOperator.
        b: right-hand side `(m,)` or `(m, 1)`.
        damp: damping.
        atol: tolerance relative to |A|.
        btol: tolerance relative to |b|.
        conlim: limit of the condition number.
        iter_lim: limit of iterations, 2 n if None.
        show: print the iteration.
        calc_var: estimate the diagonal of the inverse of `A^H A + damp^2 I`.
        x0: initial guess `(n,)`.

    Returns:
        `(x, istop, itn, r1norm, r2norm, anorm, acond, arnorm, xnorm, var)` as of SciPy.

    Cost: SciPy's, and 1 product with A and 1 with its adjoint.

    Source: Paige and Saunders, ACM TOMS 8 (1982).

    Examples:
        >>> import numpy as np
        >>> from krylix import scipy_like as sla
        >>> x, istop, *_ = sla.lsqr(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), np.array([1.0, 0.0, -1.0]))
        >>> istop, x.round(6).tolist()
        (1, [1.0, -1.0])
    """
    found = spl.lsqr(A, b, damp, atol, btol, conlim, iter_lim, show, calc_var, x0)
    x, istop, itn, _, _, anorm, acond, _, xnorm, var = found
    r1norm, r2norm, arnorm = _norms(A, b, damp, x, x0)
    istop = _honest(istop, (r1norm, r2norm, arnorm), np.linalg.norm(b), anorm, xnorm, atol, btol)
    return x, istop, itn, r1norm, r2norm, anorm, acond, arnorm, xnorm, var


def lsmr(
    A: Any,
    b: Any,
    damp: float = 0.0,
    atol: float = 1e-6,
    btol: float = 1e-6,
    conlim: float = 1e8,
    maxiter: int | None = None,
    show: bool = False,
    x0: Any = None,
) -> tuple[Any, ...]:
    """Least squares `min |b - A x|^2 + damp^2 |x - x0|^2` by LSMR of SciPy, called as `scipy.sparse.linalg.lsmr`.

    `normr` and `normar` are those of the x that is returned, and istop
    is 7 where these show that what it claims does not hold.

    Args:
        A: matrix `(m, n)` or LinearOperator.
        b: right-hand side `(m,)` or `(m, 1)`.
        damp: damping.
        atol: tolerance relative to |A|.
        btol: tolerance relative to |b|.
        conlim: limit of the condition number.
        maxiter: limit of iterations, min(m, n) if None.
        show: print the iteration.
        x0: initial guess `(n,)`.

    Returns:
        `(x, istop, itn, normr, normar, norma, conda, normx)` as of SciPy.

    Cost: SciPy's, and 1 product with A and 1 with its adjoint.

    Source: Fong and Saunders, SIAM J. Sci. Comput. 33 (2011).

    Examples:
        >>> import numpy as np
        >>> from krylix import scipy_like as sla
        >>> x, istop, *_ = sla.lsmr(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), np.array([1.0, 0.0, -1.0]))
        >>> istop, x.round(6).tolist()
        (1, [1.0, -1.0])
    """
    x, istop, itn, _, _, norma, conda, normx = spl.lsmr(A, b, damp, atol, btol, conlim, maxiter, show, x0)
    norms = _norms(A, b, damp, x, x0)
    istop = _honest(istop, norms, np.linalg.norm(b), norma, normx, atol, btol)
    return x, istop, itn, norms[1], norms[2], norma, conda, normx


def _norms(A: Any, b: Any, damp: float, x: np.ndarray, x0: Any) -> tuple[Any, Any, Any]:
    """|r|, that of the damped system, and |A^H r - damp^2 x|."""
    A = spl.aslinearoperator(A)
    r = np.atleast_1d(np.asarray(b).squeeze()) - A.matvec(x)
    apart = x if x0 is None else x - np.asarray(x0).ravel()
    first, damped = np.linalg.norm(r), damp * np.linalg.norm(apart)
    return first, np.hypot(first, damped), np.linalg.norm(A.rmatvec(r) - damp * damp * apart)


def _honest(
    istop: int,
    norms: tuple[Any, Any, Any],
    bnorm: Any,
    anorm: float,
    xnorm: float,
    atol: float,
    btol: float,
) -> int:
    """istop, or 7 where the true norms are far from what it says."""
    _, r, ar = norms
    eps = np.finfo(float).eps
    atol, btol = max(atol, eps), max(btol, eps)
    if istop in _SOLVED and not r <= _SLACK * (btol * bnorm + atol * anorm * xnorm):
        return _LIMIT
    if istop in _LEAST_SQUARES and not ar <= _SLACK * atol * anorm * r:
        return _LIMIT
    return istop
