"""Iterative solvers whose algorithm is SciPy's: its functions, with the true residual checked.

Arrays of other libraries, Python functions and operators of krylix, which SciPy's functions do not take, go to
`linear_solve` with the methods "scipy-...".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import scipy.sparse.linalg as spl

from ..solvers import METHODS, Method
from ..sparse import Operator
from .checked import for_scipy
from .iterate import by_scipy, iterate
from .systems import is_function, is_of_another_library

ArrayT = TypeVar("ArrayT")


def bicg(
    A: Any,
    b: ArrayT,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    method: str | Method | None = None,
) -> tuple[ArrayT, int]:
    """Solve `A x = b` by biconjugate gradients of SciPy, called as `scipy.sparse.linalg.bicg`.

    Results and errors are those of `krylix.scipy_like.cg`. A and M need an adjoint product.

    Args:
        A: matrix `(n, n)` or LinearOperator, see `cg`.
        b: right-hand side `(n,)` or `(n, 1)`.
        x0: initial guess, or "Mb"; zero if None.
        rtol: relative tolerance.
        atol: absolute tolerance.
        maxiter: limit of iterations, 10 n if None.
        M: preconditioner, an approximation of the inverse of A, see `cg`.
        callback: called as `callback(xk)` after each iteration.
        method: another method of krylix, by name or as an object.

    Cost: per iteration 1 product with A, its adjoint, M and its adjoint; 1 product for the true residual.

    Examples:
        >>> import numpy as np
        >>> from krylix import scipy_like as sla
        >>> x, info = sla.bicg(np.array([[4.0, 1.0], [-2.0, 3.0]]), np.array([5.0, 1.0]), rtol=1e-10)
        >>> info, np.allclose(x, 1)
        (0, True)
    """
    if method is None and not _only_krylix_can(A, b):
        return by_scipy(spl.bicg, A, b, x0, rtol, atol, maxiter, M, {"callback": callback})
    return iterate(spl.bicg, METHODS["scipy-biCG"], A, b, x0, rtol, atol, maxiter, M, method, callback=callback)


def cgs(
    A: Any,
    b: ArrayT,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    method: str | Method | None = None,
) -> tuple[ArrayT, int]:
    """Solve `A x = b` by conjugate gradients squared of SciPy, called as `scipy.sparse.linalg.cgs`.

    Results and errors are those of `krylix.scipy_like.cg`.

    Args:
        A: matrix `(n, n)` or LinearOperator, see `cg`.
        b: right-hand side `(n,)` or `(n, 1)`.
        x0: initial guess, or "Mb"; zero if None.
        rtol: relative tolerance.
        atol: absolute tolerance.
        maxiter: limit of iterations, 10 n if None.
        M: preconditioner, an approximation of the inverse of A, see `cg`.
        callback: called as `callback(xk)` after each iteration.
        method: another method of krylix, by name or as an object.

    Cost: per iteration 2 products with A and with M; 1 product for the true residual.

    Examples:
        >>> import numpy as np
        >>> from krylix import scipy_like as sla
        >>> x, info = sla.cgs(np.array([[4.0, 1.0], [-2.0, 3.0]]), np.array([5.0, 1.0]), rtol=1e-10)
        >>> info, np.allclose(x, 1)
        (0, True)
    """
    if method is None and not _only_krylix_can(A, b):
        return by_scipy(spl.cgs, A, b, x0, rtol, atol, maxiter, M, {"callback": callback})
    return iterate(spl.cgs, METHODS["scipy-CGS"], A, b, x0, rtol, atol, maxiter, M, method, callback=callback)


def qmr(
    A: Any,
    b: ArrayT,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M1: Any = None,
    M2: Any = None,
    callback: Callable[[Any], object] | None = None,
    method: str | Method | None = None,
) -> tuple[ArrayT, int]:
    """Solve `A x = b` by quasi-minimal residuals of SciPy, called as `scipy.sparse.linalg.qmr`.

    Results and errors are those of `krylix.scipy_like.cg`.

    Args:
        A: matrix `(n, n)` or LinearOperator, see `cg`.
        b: right-hand side `(n,)` or `(n, 1)`.
        x0: initial guess, or "Mb"; zero if None.
        rtol: relative tolerance.
        atol: absolute tolerance.
        maxiter: limit of iterations, 10 n if None.
        M1: left preconditioner.
        M2: right preconditioner.
        callback: called as `callback(xk)` after each iteration.
        method: another method of krylix, by name or as an object.

    Cost: per iteration 1 product with A and its adjoint; 1 product for the true residual.

    Examples:
        >>> import numpy as np
        >>> from krylix import scipy_like as sla
        >>> x, info = sla.qmr(np.array([[4.0, 1.0], [-2.0, 3.0]]), np.array([5.0, 1.0]), rtol=1e-10)
        >>> info, np.allclose(x, 1)
        (0, True)
    """
    if method is None and not _only_krylix_can(A, b):
        settings = {"M1": for_scipy(M1, A), "M2": for_scipy(M2, A), "callback": callback}
        return by_scipy(spl.qmr, A, b, x0, rtol, atol, maxiter, None, settings)
    M = M1 if M2 is None else M2 if M1 is None else _product(for_scipy(M2, A), for_scipy(M1, A))
    return iterate(spl.qmr, METHODS["scipy-QMR"], A, b, x0, rtol, atol, maxiter, M, method, callback=callback)


def _product(left: Any, right: Any) -> Any:
    return spl.aslinearoperator(left) @ spl.aslinearoperator(right)


def tfqmr(
    A: Any,
    b: ArrayT,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    show: bool = False,
    method: str | Method | None = None,
) -> tuple[ArrayT, int]:
    """Solve `A x = b` by transpose-free QMR of SciPy, called as `scipy.sparse.linalg.tfqmr`.

    Results and errors are those of `krylix.scipy_like.cg`. SciPy's own function takes the residual of x0
    for b in the tolerance, and its estimate for the residual.

    Args:
        A: matrix `(n, n)` or LinearOperator, see `cg`.
        b: right-hand side `(n,)` or `(n, 1)`.
        x0: initial guess, or "Mb"; zero if None.
        rtol: relative tolerance.
        atol: absolute tolerance.
        maxiter: limit of iterations, 10 n if None.
        M: preconditioner, an approximation of the inverse of A, see `cg`.
        callback: called as `callback(xk)` after each iteration.
        show: print how it ended.
        method: another method of krylix, by name or as an object.

    Cost: per iteration 1 product with A and M, two iterations being a step of CGS; 1 product for the true residual.

    Examples:
        >>> import numpy as np
        >>> from krylix import scipy_like as sla
        >>> x, info = sla.tfqmr(np.array([[4.0, 1.0], [-2.0, 3.0]]), np.array([5.0, 1.0]), rtol=1e-10)
        >>> info, np.allclose(x, 1)
        (0, True)
    """
    if method is None and not _only_krylix_can(A, b):
        return by_scipy(spl.tfqmr, A, b, x0, rtol, atol, maxiter, M, {"callback": callback, "show": show})
    return iterate(spl.tfqmr, METHODS["scipy-TFQMR"], A, b, x0, rtol, atol, maxiter, M, method, callback=callback)


def lgmres(
    A: Any,
    b: ArrayT,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int = 1000,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    inner_m: int = 30,
    outer_k: int = 3,
    outer_v: list[Any] | None = None,
    store_outer_Av: bool = True,
    prepend_outer_v: bool = False,
    method: str | Method | None = None,
) -> tuple[ArrayT, int]:
    """Solve `A x = b` by LGMRES of SciPy, called as `scipy.sparse.linalg.lgmres`.

    Results and errors are those of `krylix.scipy_like.cg`. SciPy's function is
    called itself; the residual by which it stops is the true one.

    Args:
        A: matrix `(n, n)` or LinearOperator, see `cg`.
        b: right-hand side `(n,)` or `(n, 1)`.
        x0: initial guess, or "Mb"; zero if None.
        rtol: relative tolerance.
        atol: absolute tolerance.
        maxiter: limit of outer iterations.
        M: preconditioner, an approximation of the inverse of A, see `cg`.
        callback: called as `callback(xk)` before each outer iteration.
        inner_m: steps of an outer iteration.
        outer_k: vectors that are kept between outer iterations.
        outer_v: pairs `(v, A v)` to begin with, which are replaced by those at the end.
        store_outer_Av: keep A v.
        prepend_outer_v: put kept vectors before the Krylov basis.
        method: another method of krylix, by name or as an object.

    Examples:
        >>> import numpy as np
        >>> from krylix import scipy_like as sla
        >>> x, info = sla.lgmres(np.array([[4.0, 1.0], [-2.0, 3.0]]), np.array([5.0, 1.0]), rtol=1e-10)
        >>> info, np.allclose(x, 1)
        (0, True)
    """
    if method is None and not _only_krylix_can(A, b):
        return spl.lgmres(A, b, x0, rtol=rtol, atol=atol, maxiter=_positive(maxiter), M=for_scipy(M, A),
                          callback=callback, inner_m=inner_m, outer_k=outer_k, outer_v=outer_v,
                          store_outer_Av=store_outer_Av, prepend_outer_v=prepend_outer_v)  # fmt: skip
    return iterate(spl.lgmres, METHODS["scipy-lGMres"], A, b, x0, rtol, atol, maxiter, M, method, callback=callback)


def gcrotmk(
    A: Any,
    b: ArrayT,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    maxiter: int = 1000,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    m: int = 20,
    k: int | None = None,
    CU: list[Any] | None = None,
    discard_C: bool = False,
    truncate: str = "oldest",
    method: str | Method | None = None,
) -> tuple[ArrayT, int]:
    """Solve `A x = b` by flexible GCROT(m, k) of SciPy, called as `scipy.sparse.linalg.gcrotmk`.

    Results and errors are those of `krylix.scipy_like.cg`. SciPy's function is
    called itself; the residual by which it stops is the true one.

    Args:
        A: matrix `(n, n)` or LinearOperator, see `cg`.
        b: right-hand side `(n,)` or `(n, 1)`.
        x0: initial guess, or "Mb"; zero if None.
        rtol: relative tolerance.
        atol: absolute tolerance.
        maxiter: limit of outer iterations.
        M: preconditioner, an approximation of the inverse of A, see `cg`.
        callback: called as `callback(xk)` before each outer iteration.
        m: steps of an outer iteration.
        k: vectors that are kept between outer iterations; m if None.
        CU: pairs `(c, u)` to begin with, which are replaced by those at the end.
        discard_C: leave the vectors c out of these at the end.
        truncate: "oldest" or "smallest": which vectors to drop.
        method: another method of krylix, by name or as an object.

    Examples:
        >>> import numpy as np
        >>> from krylix import scipy_like as sla
        >>> x, info = sla.gcrotmk(np.array([[4.0, 1.0], [-2.0, 3.0]]), np.array([5.0, 1.0]), rtol=1e-10)
        >>> info, np.allclose(x, 1)
        (0, True)
    """
    if method is None and not _only_krylix_can(A, b):
        return spl.gcrotmk(A, b, x0, rtol=rtol, atol=atol, maxiter=_positive(maxiter), M=for_scipy(M, A),
                           callback=callback, m=m, k=k, CU=CU, discard_C=discard_C, truncate=truncate)  # fmt: skip
    return iterate(spl.gcrotmk, METHODS["scipy-GCrotMK"], A, b, x0, rtol, atol, maxiter, M, method, callback=callback)


def _only_krylix_can(A: Any, b: Any) -> bool:
    return is_of_another_library(b) or is_function(A) or isinstance(A, Operator)


def _positive(maxiter: int) -> int:
    """
    Raises:
        ValueError: SciPy would return an x that it did not look at, and call it a success.
    """
    if maxiter < 1:
        raise ValueError(f"maxiter must be at least 1; got {maxiter}.")
    return maxiter
