"""SciPy's iterative solvers with our methods underneath: CG, biCG-stab, GMRES, MINRES."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from ..solvers import CG, GMRES, MINRES, BiCGStab, Method
from .checked import for_scipy
from .iterate import by_scipy, iterate
from .systems import is_of_another_library

ArrayT = TypeVar("ArrayT")

_CG, _BICGSTAB, _MINRES = CG(), BiCGStab(1), MINRES()
_gmres = lru_cache(maxsize=64)(GMRES)
_RESTART = 20  # of SciPy
_BREAKDOWN = -10  # info of SciPy's biCG-stab where a scalar product is zero


def _minres_of_scipy(A: Any, b: Any, x0: Any, *, atol: float, **kwargs: Any) -> tuple[Any, int]:
    if np.iscomplexobj(b) or np.dtype(getattr(A, "dtype", None)).kind == "c":
        raise ValueError("SciPy's minres takes real numbers only: of complex ones it drops the imaginary parts.")
    return spl.minres(A, b, x0, **kwargs)


def cg(
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
    """Solve `A x = b` for a Hermitian definite A by conjugate gradients, called as `scipy.sparse.linalg.cg`.

    Args:
        A: sparse or dense matrix `(n, n)` or LinearOperator; also what else `linear_solve` takes as A.
        b: right-hand side `(n,)` or `(n, 1)`, real or complex; also an array of JAX, PyTorch or TensorFlow.
        x0: initial guess `(n,)` or `(n, 1)`, or "Mb" for the product of M and b; zero if None.
        rtol: relative tolerance.
        atol: absolute tolerance.
        maxiter: limit of iterations, 10 n if None.
        M: preconditioner, an approximation of the inverse of A: matrix, LinearOperator, or what else `linear_solve`
            takes, as the name "amg".
        callback: called as `callback(xk)` after each iteration.
        method: another method of krylix, by name or as an object.

    Returns:
        `(x, info)`: x of shape `(n,)`; info is 0 where `|b - A x| <= max(rtol |b|, atol)` for the residual of this x,
        and the number of iterations (`maxiter`, if that was reached) where that was not to be had.

    Raises:
        ValueError, TypeError: as SciPy does, of shapes, and of an atol that is no number.

    Cost: that of `linear_solve` with this method. A matrix that is not Hermitian is left to SciPy's function, which may
    or may not converge; its x is checked by 1 product.

    Source: Hestenes and Stiefel, J. Res. Nat. Bur. Standards 49 (1952).

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix import scipy_like as sla
        >>> A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(5, 5), format="csr")
        >>> x, info = sla.cg(A, np.ones(5))
        >>> info, np.allclose(A @ x, 1, atol=1e-5)
        (0, True)
    """
    return iterate(spl.cg, _CG, A, b, x0, rtol, atol, maxiter, M, method, callback=callback)


def bicgstab(
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
    """Solve `A x = b` for any square A by stabilised biconjugate gradients, called as `scipy.sparse.linalg.bicgstab`.

    Results and errors are those of `cg`; info is negative after a breakdown.

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

    Cost: that of `linear_solve` with "biCG-stab": 2 products with A and with M per iteration.

    Source: van der Vorst, SIAM J. Sci. Stat. Comput. 13 (1992).

    Examples:
        >>> import numpy as np
        >>> from krylix import scipy_like as sla
        >>> x, info = sla.bicgstab(np.array([[4.0, 1.0], [-2.0, 3.0]]), np.array([5.0, 1.0]), rtol=1e-10)
        >>> info, np.allclose(x, 1)
        (0, True)
    """
    return iterate(spl.bicgstab, _BICGSTAB, A, b, x0, rtol, atol, maxiter, M, method, 1, 0, _BREAKDOWN, callback)


def gmres(
    A: Any,
    b: ArrayT,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    atol: float = 0.0,
    restart: int | None = None,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    callback_type: str | None = None,
    method: str | Method | None = None,
) -> tuple[ArrayT, int]:
    """Solve `A x = b` for any square A by restarted GMRES, called as `scipy.sparse.linalg.gmres`.

    Results and errors are those of `cg`. M preconditions from the right, not from the left as in
    SciPy, so that the residual that is minimised is the true one.

    Args:
        A: matrix `(n, n)` or LinearOperator, see `cg`.
        b: right-hand side `(n,)` or `(n, 1)`.
        x0: initial guess, or "Mb"; zero if None.
        rtol: relative tolerance.
        atol: absolute tolerance.
        restart: steps between restarts, `min(20, n)` if None.
        maxiter: limit of cycles of `restart` steps, 10 n if None; with a callback that has no `callback_type`, of
            steps, as in SciPy.
        M: preconditioner, an approximation of the inverse of A, see `cg`.
        callback: called as `callback_type` says; SciPy's own function then iterates.
        callback_type: "x": with the iterate after each cycle; "pr_norm" and "legacy": with the relative norm of the
            residual of `M A x = M b` after each step.
        method: another method of krylix, by name or as an object.

    Cost: that of `linear_solve` with "GMRES(m)": m + 5 vectors, 1 product with A and with M per step.

    Source: Saad and Schultz, SIAM J. Sci. Stat. Comput. 7 (1986).

    Examples:
        >>> import numpy as np
        >>> from krylix import scipy_like as sla
        >>> x, info = sla.gmres(np.array([[4.0, 1.0], [-2.0, 3.0]]), np.array([5.0, 1.0]), rtol=1e-10)
        >>> info, np.allclose(x, 1)
        (0, True)
    """
    if callback_type not in (None, "x", "pr_norm", "legacy"):
        raise ValueError(f"Unknown callback_type: {callback_type!r}")
    if callback is not None:  # SciPy's function looks at the true residual, too
        _refuse_method("gmres with a callback", method)
        if is_of_another_library(b):
            raise TypeError(
                f"gmres with a callback runs SciPy's own function, which takes arrays of NumPy; got {type(b).__name__} "
                "for b. Use linear_solve(..., method='GMRES', callback=...)."
            )
        if callback_type is None:
            warnings.warn(_CALLBACK_TYPE, DeprecationWarning, stacklevel=2)
            callback_type = "legacy"
        return spl.gmres(A, b, x0, rtol=rtol, atol=atol, restart=restart, maxiter=maxiter, M=for_scipy(M, A),
                         callback=callback, callback_type=callback_type)  # fmt: skip
    steps = _RESTART if restart is None else restart
    if shape := getattr(b, "shape", (steps,)):
        steps = min(steps, shape[0])
    return iterate(spl.gmres, _gmres(max(steps, 1)), A, b, x0, rtol, atol, maxiter, M, method, steps)


def minres(
    A: Any,
    b: ArrayT,
    x0: Any = None,
    *,
    rtol: float = 1e-5,
    shift: float = 0.0,
    maxiter: int | None = None,
    M: Any = None,
    callback: Callable[[Any], object] | None = None,
    show: bool = False,
    check: bool = False,
    method: str | Method | None = None,
) -> tuple[ArrayT, int]:
    """Solve `(A - shift I) x = b` for a symmetric A, also an indefinite one, called as `scipy.sparse.linalg.minres`.

    Results and errors are those of `cg`. SciPy's MINRES stops where the residual is small beside
    `|A| |x|`; here info is 0 only where it is small beside `|b|`.

    Args:
        A: matrix `(n, n)` or LinearOperator, see `cg`.
        b: right-hand side `(n,)` or `(n, 1)`.
        x0: initial guess, or "Mb"; zero if None.
        rtol: relative tolerance.
        shift: is subtracted from the diagonal of A.
        maxiter: limit of iterations, 5 n if None.
        M: preconditioner, an approximation of the inverse of A, see `cg`.
        callback: called as `callback(xk)` after each iteration.
        show: print the iteration; SciPy's own function then iterates.
        check: raise a ValueError where A or M is seen to be no symmetric matrix; by SciPy's own function.
        method: another method of krylix, by name or as an object.

    Cost: that of `linear_solve` with "MINRES": 1 product with A and M per step.

    Source: Paige and Saunders, SIAM J. Numer. Anal. 12 (1975).

    Examples:
        >>> import numpy as np
        >>> from krylix import scipy_like as sla
        >>> x, info = sla.minres(np.diag([1.0, -2.0, 3.0]), np.array([1.0, -2.0, 3.0]), rtol=1e-10)
        >>> info, np.allclose(x, 1)
        (0, True)
    """
    if show or check:
        _refuse_method("minres with show or check", method)
        settings = {"shift": shift, "callback": callback, "show": show, "check": check}
        return by_scipy(_minres_of_scipy, A, b, x0, rtol, 0.0, maxiter, M, settings)
    if shift:
        A = np.asarray(A) if isinstance(A, list | tuple) else A
        if np.iscomplexobj(shift):
            raise TypeError(f"minres got shift={shift!r}; expected a real number, as A - shift I has to be Hermitian.")
        if not hasattr(A, "shape"):
            raise TypeError(
                f"minres with a shift got A of type {type(A).__name__}; expected a matrix or LinearOperator. Of a "
                "function subtract shift * x in it."
            )
        identity = sp.eye_array(A.shape[0], dtype=getattr(A, "dtype", None) or float, format="csr")
        if sp.issparse(A) or isinstance(A, np.ndarray):
            A = A - shift * (identity if sp.issparse(A) else identity.toarray())
        else:
            A = spl.aslinearoperator(A) - shift * spl.aslinearoperator(identity)
    limit = 5 * b.shape[0] if hasattr(b, "shape") and b.shape else 0
    return iterate(_minres_of_scipy, _MINRES, A, b, x0, rtol, 0.0, maxiter, M, method, 1, limit, 0, callback)


def _refuse_method(call: str, method: Any) -> None:
    """
    Raises:
        ValueError: a method is given for what SciPy's own function does.
    """
    if method is not None:
        raise ValueError(
            f"{call} runs SciPy's own function, and method={method!r} is given; expected none of the two together. Use "
            "linear_solve(..., callback=...), whose callback gets the iterate and the residual norm of every method."
        )


_CALLBACK_TYPE = (
    "scipy.sparse.linalg.gmres called without specifying `callback_type`. The default value will be changed in a "
    "future release. For compatibility, specify a value for `callback_type` explicitly, e.g., "
    "``gmres(..., callback_type='pr_norm')``, or to retain the old behavior ``gmres(..., callback_type='legacy')``"
)
