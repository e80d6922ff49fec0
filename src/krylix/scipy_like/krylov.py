"""SciPy's iterative solvers: CG, biCG-stab, GMRES and MINRES by our methods, the others by SciPy's, checked.

SciPy's functions take no arrays of other libraries, no Python functions and no operators of krylix. These go to
`linear_solve` with the methods "scipy-...".
"""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from ..solvers import CG, GMRES, METHODS, MINRES, BiCGStab, Method
from .wrap import ScipySolver, for_scipy, is_for_krylix, is_of_another_library, solve, solve_by_scipy

ArrayT = TypeVar("ArrayT")
FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


def _minres_of_scipy(A: Any, b: Any, x0: Any, *, atol: float, **kwargs: Any) -> tuple[Any, int]:
    if np.iscomplexobj(b) or np.dtype(getattr(A, "dtype", None)).kind == "c":
        raise ValueError("SciPy's minres takes real numbers only: of complex ones it drops the imaginary parts.")
    return spl.minres(A, b, x0, **kwargs)


_CG = ScipySolver(spl.cg, CG())
_BICGSTAB = ScipySolver(spl.bicgstab, BiCGStab(1), breakdown=-10)  # where a scalar product is zero
_GMRES = lru_cache(maxsize=64)(lambda steps: ScipySolver(spl.gmres, GMRES(steps)))
_MINRES = ScipySolver(_minres_of_scipy, MINRES())
_BICG = ScipySolver(spl.bicg, METHODS["scipy-biCG"], is_scipys=True)
_CGS = ScipySolver(spl.cgs, METHODS["scipy-CGS"], is_scipys=True)
_QMR = ScipySolver(spl.qmr, METHODS["scipy-QMR"], is_scipys=True)
_TFQMR = ScipySolver(spl.tfqmr, METHODS["scipy-TFQMR"], is_scipys=True)
_LGMRES = ScipySolver(spl.lgmres, METHODS["scipy-lGMres"], is_scipys=True, tests_residual=True)
_GCROTMK = ScipySolver(spl.gcrotmk, METHODS["scipy-GCrotMK"], is_scipys=True, tests_residual=True)
_RESTART = 20  # of SciPy's GMRES


# --- docstrings: shared arguments and sections; a function describes only its differences

_ARGUMENTS = {
    "A": "sparse or dense matrix `(n, n)` or LinearOperator; also anything else that `linear_solve` accepts as A.",
    "b": "right-hand side `(n,)` or `(n, 1)`, real or complex; also an array of JAX, PyTorch or TensorFlow.",
    "x0": 'initial guess `(n,)` or `(n, 1)`, or "Mb" for the product of M and b; zero if None.',
    "rtol": "relative tolerance.",
    "atol": "absolute tolerance.",
    "maxiter": "limit of iterations, 10 n if None.",
    "M": "preconditioner, an approximation of the inverse of A: matrix, LinearOperator, or anything that\n"
    '        `linear_solve` accepts, such as the name "amg".',
    "callback": "called as `callback(xk)` after each iteration.",
    "method": "another method of krylix, by name or as an object.",
}
_SECTIONS = {
    "Args": "",
    "Returns": """Returns:
    `(x, info)`: x of shape `(n,)`; info is 0 where `|b - A x| <= max(rtol |b|, atol)` for the residual of this x,
    otherwise the number of iterations (`maxiter` if that was reached).""",
    "Raises": """Raises:
    ValueError, TypeError: as in SciPy, for shapes that do not fit and an atol that is not a number.""",
    "Cost": "",
    "Source": "",
    "Examples": """Examples:
    >>> import numpy as np
    >>> from krylix import scipy_like as sla
    >>> x, info = sla.{name}(np.array([[4.0, 1.0], [-2.0, 3.0]]), np.array([5.0, 1.0]), rtol=1e-10)
    >>> info, np.allclose(x, 1)
    (0, True)""",
}


_LEAST_SQUARES_ARGUMENTS = {
    "A": "matrix `(m, n)` or LinearOperator.",
    "b": "right-hand side `(m,)` or `(m, 1)`.",
    "damp": "damping.",
    "atol": "tolerance relative to |A|.",
    "btol": "tolerance relative to |b|.",
    "conlim": "limit of the condition number.",
    "show": "print the iteration.",
    "x0": "initial guess `(n,)`.",
}
_LEAST_SQUARES_SECTIONS = {
    "Args": "",
    "Returns": "",
    "Cost": "Cost: SciPy's, and 1 product with A and 1 with its adjoint.",
    "Source": "",
    "Examples": """Examples:
    >>> import numpy as np
    >>> from krylix import scipy_like as sla
    >>> x, istop, *_ = sla.{name}(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), np.array([1.0, 0.0, -1.0]))
    >>> istop, x.round(6).tolist()
    (1, [1.0, -1.0])""",
}


def _documented(arguments: dict[str, str], shared: dict[str, str]) -> Callable[[FunctionT], FunctionT]:
    """Decorator that adds to a docstring the arguments and sections that it does not describe itself."""

    def complete(function: FunctionT) -> FunctionT:
        if function.__doc__ is None:
            return function
        text, sections = [], dict(shared)
        for paragraph in re.split(r"\n\n(?=\S)", inspect.cleandoc(function.__doc__)):
            title = paragraph.partition(":")[0]
            if title in shared:
                sections[title] = paragraph
            else:
                text.append(paragraph)
        described = dict(re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", sections["Args"], re.MULTILINE))
        entries = {name: described.get(name) or arguments[name] for name in inspect.signature(function).parameters}
        sections["Args"] = "\n".join(["Args:", *(f"    {name}: {entry}" for name, entry in entries.items())])
        completed = "\n\n".join(filter(None, [*text, *sections.values()])) + "\n"
        function.__doc__ = completed.replace("{name}", function.__name__)
        return function

    return complete


_solver = _documented(_ARGUMENTS, _SECTIONS)
_least_squares = _documented(_LEAST_SQUARES_ARGUMENTS, _LEAST_SQUARES_SECTIONS)


@_solver
def cg(
    A: Any, b: ArrayT, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
    M: Any = None, callback: Callable[[Any], object] | None = None, method: str | Method | None = None,
) -> tuple[ArrayT, int]:  # fmt: skip
    """Solve `A x = b` for a Hermitian definite A by conjugate gradients, called as `scipy.sparse.linalg.cg`.

    Cost: that of `linear_solve` with this method. A matrix that is not Hermitian is left to SciPy's function, which may
    or may not converge; its x is checked with 1 product.

    Source: Hestenes and Stiefel, J. Res. Nat. Bur. Standards 49 (1952).

    Examples:
        >>> import numpy as np, scipy.sparse as sp
        >>> from krylix import scipy_like as sla
        >>> A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(5, 5), format="csr")
        >>> x, info = sla.cg(A, np.ones(5))
        >>> info, np.allclose(A @ x, 1, atol=1e-5)
        (0, True)
    """
    return solve(_CG, A, b, x0, rtol, atol, maxiter, M, method, callback)


@_solver
def bicgstab(
    A: Any, b: ArrayT, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
    M: Any = None, callback: Callable[[Any], object] | None = None, method: str | Method | None = None,
) -> tuple[ArrayT, int]:  # fmt: skip
    """Solve `A x = b` for any square A by stabilised biconjugate gradients, called as `scipy.sparse.linalg.bicgstab`.

    Info is negative after a breakdown.

    Cost: that of `linear_solve` with "biCG-stab": 2 products with A and with M per iteration.

    Source: van der Vorst, SIAM J. Sci. Stat. Comput. 13 (1992).
    """
    return solve(_BICGSTAB, A, b, x0, rtol, atol, maxiter, M, method, callback)


@_solver
def gmres(
    A: Any, b: ArrayT, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, restart: int | None = None,
    maxiter: int | None = None, M: Any = None, callback: Callable[[Any], object] | None = None,
    callback_type: str | None = None, method: str | Method | None = None,
) -> tuple[ArrayT, int]:  # fmt: skip
    """Solve `A x = b` for any square A by restarted GMRES, called as `scipy.sparse.linalg.gmres`.

    M preconditions from the right, not from the left as in SciPy, so that the residual that is minimised is the true
    one.

    Args:
        restart: steps between restarts, `min(20, n)` if None.
        maxiter: limit of cycles of `restart` steps, 10 n if None; with a callback that has no `callback_type`, of
            steps, as in SciPy.
        callback: called as `callback_type` says; SciPy's own function then iterates.
        callback_type: "x": with the iterate after each cycle; "pr_norm" and "legacy": with the relative norm of the
            residual of `M A x = M b` after each step.

    Cost: that of `linear_solve` with "GMRES(m)": m + 5 vectors, 1 product with A and with M per step.

    Source: Saad and Schultz, SIAM J. Sci. Stat. Comput. 7 (1986).
    """
    if callback_type not in (None, "x", "pr_norm", "legacy"):
        raise ValueError(f"Unknown callback_type: {callback_type!r}")
    if callback is not None:  # SciPy's function also tests the true residual
        _refuse_method("gmres with a callback", method)
        if is_of_another_library(b):
            raise TypeError(
                f"gmres with a callback runs SciPy's own function, which takes arrays of NumPy; got {type(b).__name__} "
                "for b. Use linear_solve(..., method='GMRES', callback=...)."
            )
        if callback_type is None:
            warnings.warn(
                "scipy.sparse.linalg.gmres called without specifying `callback_type`. The default value will be "
                "changed in a future release. For compatibility, specify a value for `callback_type` explicitly, e.g., "
                "``gmres(..., callback_type='pr_norm')``, or to retain the old behavior ``gmres(..., "
                "callback_type='legacy')``",
                DeprecationWarning,
                stacklevel=2,
            )
            callback_type = "legacy"
        return spl.gmres(A, b, x0, rtol=rtol, atol=atol, restart=restart, maxiter=maxiter, M=for_scipy(M, A),
                         callback=callback, callback_type=callback_type)  # fmt: skip
    steps = _RESTART if restart is None else restart
    if shape := getattr(b, "shape", (steps,)):
        steps = min(steps, shape[0])
    return solve(_GMRES(max(steps, 1)), A, b, x0, rtol, atol, maxiter, M, method, None, per_iteration=steps)


@_solver
def minres(
    A: Any, b: ArrayT, x0: Any = None, *, rtol: float = 1e-5, shift: float = 0.0, maxiter: int | None = None,
    M: Any = None, callback: Callable[[Any], object] | None = None, show: bool = False, check: bool = False,
    method: str | Method | None = None,
) -> tuple[ArrayT, int]:  # fmt: skip
    """Solve `(A - shift I) x = b` for a symmetric A, also an indefinite one, called as `scipy.sparse.linalg.minres`.

    SciPy's MINRES stops where the residual is small relative to `|A| |x|`; here info is 0 only where it is small
    relative to `|b|`.

    Args:
        shift: is subtracted from the diagonal of A.
        maxiter: limit of iterations, 5 n if None.
        show: print the iteration; SciPy's own function then iterates.
        check: raise a ValueError if A or M is found not to be symmetric; SciPy's own function then iterates.

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
        return solve_by_scipy(_MINRES, A, b, x0, rtol, 0.0, maxiter, M, settings)
    if shift:
        A = np.asarray(A) if isinstance(A, list | tuple) else A
        if np.iscomplexobj(shift):
            raise TypeError(f"minres got shift={shift!r}; expected a real number: A - shift I has to be Hermitian.")
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
    return solve(_MINRES, A, b, x0, rtol, 0.0, maxiter, M, method, callback, limit=limit)


def _refuse_method(call: str, method: Any) -> None:
    if method is not None:
        raise ValueError(
            f"{call} runs SciPy's own function, and method={method!r} is given; expected none of the two together. Use "
            "linear_solve(..., callback=...), whose callback gets the iterate and the residual norm of every method."
        )


# --- SciPy's algorithms


@_solver
def bicg(
    A: Any, b: ArrayT, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
    M: Any = None, callback: Callable[[Any], object] | None = None, method: str | Method | None = None,
) -> tuple[ArrayT, int]:  # fmt: skip
    """Solve `A x = b` by SciPy's biconjugate gradients, called as `scipy.sparse.linalg.bicg`.

    A and M need an adjoint product.

    Cost: per iteration 1 product with A, its adjoint, M and its adjoint; 1 product for the true residual.
    """
    return solve(_BICG, A, b, x0, rtol, atol, maxiter, M, method, callback)


@_solver
def cgs(
    A: Any, b: ArrayT, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
    M: Any = None, callback: Callable[[Any], object] | None = None, method: str | Method | None = None,
) -> tuple[ArrayT, int]:  # fmt: skip
    """Solve `A x = b` by SciPy's conjugate gradients squared, called as `scipy.sparse.linalg.cgs`.

    Cost: per iteration 2 products with A and with M; 1 product for the true residual.
    """
    return solve(_CGS, A, b, x0, rtol, atol, maxiter, M, method, callback)


@_solver
def qmr(
    A: Any, b: ArrayT, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
    M1: Any = None, M2: Any = None, callback: Callable[[Any], object] | None = None, method: str | Method | None = None,
) -> tuple[ArrayT, int]:  # fmt: skip
    """Solve `A x = b` by SciPy's quasi-minimal residuals, called as `scipy.sparse.linalg.qmr`.

    Args:
        M1: left preconditioner.
        M2: right preconditioner.

    Cost: per iteration 1 product with A and its adjoint; 1 product for the true residual.
    """
    M, settings = M1 if M2 is None else M2, None
    if method is None and not is_for_krylix(A, b):
        M, settings = None, {"M1": for_scipy(M1, A), "M2": for_scipy(M2, A)}
    elif M1 is not None and M2 is not None:
        M = spl.aslinearoperator(for_scipy(M2, A)) @ spl.aslinearoperator(for_scipy(M1, A))
    return solve(_QMR, A, b, x0, rtol, atol, maxiter, M, method, callback, settings)


@_solver
def tfqmr(
    A: Any, b: ArrayT, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None,
    M: Any = None, callback: Callable[[Any], object] | None = None, show: bool = False,
    method: str | Method | None = None,
) -> tuple[ArrayT, int]:  # fmt: skip
    """Solve `A x = b` by SciPy's transpose-free QMR, called as `scipy.sparse.linalg.tfqmr`.

    SciPy's own function stops by an estimate of the residual, relative to the residual of x0 instead of b.

    Args:
        show: print how it ended.

    Cost: per iteration 1 product with A and M, two iterations being a step of CGS; 1 product for the true residual.
    """
    return solve(_TFQMR, A, b, x0, rtol, atol, maxiter, M, method, callback, {"show": show})


@_solver
def lgmres(
    A: Any, b: ArrayT, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int = 1000, M: Any = None,
    callback: Callable[[Any], object] | None = None, inner_m: int = 30, outer_k: int = 3,
    outer_v: list[Any] | None = None, store_outer_Av: bool = True, prepend_outer_v: bool = False,
    method: str | Method | None = None,
) -> tuple[ArrayT, int]:  # fmt: skip
    """Solve `A x = b` by SciPy's LGMRES, called as `scipy.sparse.linalg.lgmres`.

    SciPy's function is called itself; the residual by which it stops is the true one.

    Args:
        maxiter: limit of outer iterations.
        callback: called as `callback(xk)` before each outer iteration.
        inner_m: steps of an outer iteration.
        outer_k: vectors that are kept between outer iterations.
        outer_v: pairs `(v, A v)` to begin with, which are replaced by those at the end.
        store_outer_Av: keep A v.
        prepend_outer_v: put kept vectors before the Krylov basis.
    """
    settings = {"inner_m": inner_m, "outer_k": outer_k, "outer_v": outer_v, "store_outer_Av": store_outer_Av}
    settings["prepend_outer_v"] = prepend_outer_v
    return solve(_LGMRES, A, b, x0, rtol, atol, maxiter, M, method, callback, settings)


@_solver
def gcrotmk(
    A: Any, b: ArrayT, x0: Any = None, *, rtol: float = 1e-5, atol: float = 0.0, maxiter: int = 1000, M: Any = None,
    callback: Callable[[Any], object] | None = None, m: int = 20, k: int | None = None, CU: list[Any] | None = None,
    discard_C: bool = False, truncate: str = "oldest", method: str | Method | None = None,
) -> tuple[ArrayT, int]:  # fmt: skip
    """Solve `A x = b` by SciPy's flexible GCROT(m, k), called as `scipy.sparse.linalg.gcrotmk`.

    SciPy's function is called itself; the residual by which it stops is the true one.

    Args:
        maxiter: limit of outer iterations.
        callback: called as `callback(xk)` before each outer iteration.
        m: steps of an outer iteration.
        k: vectors that are kept between outer iterations; m if None.
        CU: pairs `(c, u)` to begin with, which are replaced by those at the end.
        discard_C: leave the vectors c out of these at the end.
        truncate: "oldest" or "smallest": which vectors to drop.
    """
    settings = {"m": m, "k": k, "CU": CU, "discard_C": discard_C, "truncate": truncate}
    return solve(_GCROTMK, A, b, x0, rtol, atol, maxiter, M, method, callback, settings)


# --- least squares: SciPy's functions, with the norms of the true residual in place of their recurrences

_LIMIT = 7  # istop where the limit of iterations came first
_SOLVED, _MINIMISED = (1, 4), (2, 5)  # istop; 4 and 5 mean 1 and 2 to working precision
_SLACK = 10  # times the tolerance, for the estimate of |A| and rounding


@_least_squares
def lsqr(
    A: Any, b: Any, damp: float = 0.0, atol: float = 1e-6, btol: float = 1e-6, conlim: float = 1e8,
    iter_lim: int | None = None, show: bool = False, calc_var: bool = False, x0: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Least squares `min |b - A x|^2 + damp^2 |x - x0|^2` by SciPy's LSQR, called as `scipy.sparse.linalg.lsqr`.

    `r1norm`, `r2norm` and `arnorm` are those of the x that is returned, not of the recurrences, and istop is 7 where
    they contradict it. Sparse and large, or with derivatives: `linear_solve(method="LSMR")`.

    Args:
        iter_lim: limit of iterations, 2 n if None.
        calc_var: estimate the diagonal of the inverse of `A^H A + damp^2 I`.

    Returns:
        `(x, istop, itn, r1norm, r2norm, anorm, acond, arnorm, xnorm, var)` as in SciPy.

    Source: Paige and Saunders, ACM TOMS 8 (1982).
    """
    result = spl.lsqr(A, b, damp, atol, btol, conlim, iter_lim, show, calc_var, x0)
    x, istop, itn, _, _, anorm, acond, _, xnorm, var = result
    istop, r1norm, r2norm, arnorm = _verified(istop, A, b, damp, x, x0, anorm, xnorm, atol, btol)
    return x, istop, itn, r1norm, r2norm, anorm, acond, arnorm, xnorm, var


@_least_squares
def lsmr(
    A: Any, b: Any, damp: float = 0.0, atol: float = 1e-6, btol: float = 1e-6, conlim: float = 1e8,
    maxiter: int | None = None, show: bool = False, x0: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """Least squares `min |b - A x|^2 + damp^2 |x - x0|^2` by SciPy's LSMR, called as `scipy.sparse.linalg.lsmr`.

    `normr` and `normar` are those of the x that is returned, and istop is 7 where they contradict it.

    Args:
        maxiter: limit of iterations, min(m, n) if None.

    Returns:
        `(x, istop, itn, normr, normar, norma, conda, normx)` as in SciPy.

    Source: Fong and Saunders, SIAM J. Sci. Comput. 33 (2011).
    """
    x, istop, itn, _, _, norma, conda, normx = spl.lsmr(A, b, damp, atol, btol, conlim, maxiter, show, x0)
    istop, _, normr, normar = _verified(istop, A, b, damp, x, x0, norma, normx, atol, btol)
    return x, istop, itn, normr, normar, norma, conda, normx


def _verified(
    istop: int, A: Any, b: Any, damp: float, x: np.ndarray, x0: Any, anorm: Any, xnorm: Any, atol: float, btol: float,
) -> tuple[int, Any, Any, Any]:  # fmt: skip
    """istop, or 7 where the true norms contradict it; |r|, that of the damped residual, |A^H r - damp^2 (x - x0)|."""
    A = spl.aslinearoperator(A)
    r = np.atleast_1d(np.asarray(b).squeeze()) - A.matvec(x)
    step = x if x0 is None else x - np.asarray(x0).ravel()
    r1norm = np.linalg.norm(r)
    r2norm, arnorm = np.hypot(r1norm, damp * np.linalg.norm(step)), np.linalg.norm(A.rmatvec(r) - damp * damp * step)
    eps = np.finfo(float).eps
    atol, btol = max(atol, eps), max(btol, eps)
    unsolved = istop in _SOLVED and not r2norm <= _SLACK * (btol * np.linalg.norm(b) + atol * anorm * xnorm)
    if unsolved or (istop in _MINIMISED and not arnorm <= _SLACK * atol * anorm * r2norm):
        istop = _LIMIT
    return istop, r1norm, r2norm, arnorm
