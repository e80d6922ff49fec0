"""Names of methods, preconditioners and arguments: as types that editors complete, and in other libraries.

Both kinds have more names than can be listed: "GMRES(50)", "mixed-GMRES", those of other libraries. So arguments take
any string besides the types; the registries decide. Names are compared `squeezed`: without upper case, hyphens,
underscores, spaces and dots.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import Literal, ParamSpec, TypeAlias, TypeVar

from ..backends.tracebacks import named_in_tracebacks, shorten

MethodName: TypeAlias = Literal[
    "auto",
    "CG",
    "CG-adaptive",
    "CG-single-reduction",
    "block-CG",
    "COCR",
    "biCG-stab",
    "biCG-stab(2)",
    "biCG-stab(4)",
    "GMRES",
    "FGMRES",
    "IDR(4)",
    "MINRES",
    "LSMR",
    "CGLS",
    "mixed-CG",
    "mixed-biCG-stab(2)",
    "direct",
    "scipy-direct",
    "sparse-direct",
    "fast-direct",
    "banded-direct",
    "scipy-CG",
    "scipy-GMres",
    "scipy-lGMres",
    "scipy-biCG",
    "scipy-biCG-stab",
    "scipy-CGS",
    "scipy-QMR",
    "scipy-TFQMR",
    "scipy-GCrotMK",
    "scipy-MINRES",
    "scipy-lsqr",
    "scipy-lsmr",
    "petsc",
]
"""Names in `krylix.solvers.METHODS`, "auto", and those of methods that need a further package."""

PreconditionerName: TypeAlias = Literal[
    "auto",
    "jacobi",
    "block-jacobi",
    "ssor",
    "chebyshev",
    "ilu",
    "ic",
    "amg",
    "multigrid",
    "fast",
    "cluster",
    "shifted-laplacian",
    "schwarz",
]
"""Names in `krylix.solvers.PRECONDITIONERS`, and "auto"."""


# --- other spellings, and names in other libraries

_BETWEEN = re.compile(r"[-_.\s]+")
_NUMBER = re.compile(r"\(?\w*\)?$")


def squeezed(name: str) -> str:
    """Normalise a name for look-up: "biCG-stab (2)" is "bicgstab(2)"."""
    return _BETWEEN.sub("", name.strip().lower())


def _table(*rows: tuple[str, str]) -> dict[str, str]:
    """Table of aliases, separated by spaces, to the name that they mean."""
    return {squeezed(word): meaning for words, meaning in rows for word in words.split()}


SAME_METHODS = _table(
    ("pcg preconditioned-cg conjugate-gradient conjugate-gradients", "CG"),
    ("cg-one-reduction chronopoulos-gear", "CG-single-reduction"),
    ("bcg-stab bcgs", "biCG-stab"),
    ("bicgstab2 bicgstab-l bicgstab(l) bcgsl", "biCG-stab(2)"),
    ("flexible-gmres", "FGMRES"),
    ("idrs idr(s)", "IDR"),
    ("cgnr", "CGLS"),
    ("lstsq least-squares", "LSMR"),
    ("bicg bi-conjugate-gradient bi-conjugate-gradients", "scipy-biCG"),
    ("cgs conjugate-gradient-squared conjugate-gradients-squared", "scipy-CGS"),
    ("qmr", "scipy-QMR"),
    ("tfqmr", "scipy-TFQMR"),
    ("lgmres", "scipy-lGMres"),
    ("gcrotmk gcrot gcrot(m,k)", "scipy-GCrotMK"),
    ("lsqr", "scipy-lsqr"),
    ("superlu splu spsolve sparse-lu factorized scipy-superlu scipy-splu scipy-spsolve scipy-lu",
     "scipy-direct"),
    ("dense-direct gesv getrf posv potrf", "direct"),
    ("banded solve-banded solveh-banded tridiagonal thomas tdma", "banded-direct"),
)  # fmt: skip
"""Other names, squeezed -> ours, for the same algorithm."""

FACTORS = frozenset(_table(("lu plu lup cholesky chol llt ldl ldlt solve exact gauss gaussian-elimination", "")))
"""Names of factorisations of a matrix of any kind: dense ones on the array library, others by SuperLU."""

METHOD_HINTS = _table(
    (
        "umfpack cholmod klu pardiso mkl-pardiso mumps strumpack superlu-dist",
        "'sparse-direct' (the best library that is installed)",
    ),
    ("symmlq minres-qlp minresqlp cr conjugate-residual conjugate-residuals", "'MINRES'"),
    ("gcr gcrodr orthomin dqgmres fom", "'GMRES'"),
    ("craig craigmr lnlq cgne cgne1 lslq", "'LSMR'"),
    ("qr svd pinv lapack gels gelsd", "'LSMR'"),
    ("usymlq usymqr cgr cgstab", "'biCG-stab(2)'"),
    ("fcg flexible-cg ipcg", "'CG', or 'FGMRES' where the preconditioner varies"),
    ("steepest-descent gradient-descent richardson landweber", "'CG', or 'GMRES' where A is not symmetric"),
    ("fft dct dst poisson fast-poisson fishpack", "'fast-direct'"),
    ("inv inverse", "'direct'"),
)
"""Words, squeezed, for methods that are not here -> replacements."""

PRECONDITIONER_HINTS = _table(
    ("diagonal diag diagonal-scaling scaling point-jacobi pointwise-jacobi", "jacobi"),
    ("bjacobi block-diagonal block-diag blockjac", "block-jacobi"),
    ("sor gauss-seidel gs sgs symmetric-gauss-seidel symmetric-sor", "ssor"),
    ("ilu0 iluk ilut ilutp ilup spilu incomplete-lu ilutdrop dilu", "ilu"),
    ("ichol ic0 icc ict incomplete-cholesky icholt iccg dic mic", "ic"),
    ("algebraic-multigrid pyamg boomeramg hypre gamg ml agmg amgcl sa sa-amg smoothed-aggregation rs rs-amg "
     "ruge-stuben ruge-stueben classical-amg", "amg"),
    ("mg gmg geometric-multigrid v-cycle vcycle boxmg", "multigrid"),
    ("cheb chebychev tschebyscheff polynomial poly", "chebyshev"),
    ("fft dct dst poisson laplace laplacian", "fast"),
    ("csl cslp helmholtz shifted-laplace complex-shifted-laplacian complex-shifted-laplace", "shifted-laplacian"),
    ("deflation coarse-space", "cluster"),
    ("additive-schwarz asm ras domain-decomposition bddc", "schwarz"),
)  # fmt: skip
"""Words, squeezed, for preconditioners -> the kind that is meant."""

NO_PRECONDITIONER = frozenset(_table(("none no identity eye false off", "")))

METHODS_BY_WORD = re.compile(
    r"(scipy|mixed).+|(cg|cgadaptive|cgsinglereduction|blockcg|cocr|cgls|lsmr|minres|direct|sparsedirect|fastdirect"
    r"|bandeddirect)|(bicgstab|f?gmres|idr)(\(\w+\))?"
)
"""Squeezed names of all methods: a preconditioner by such a name is a method in the wrong place."""


def is_method(name: str) -> bool:
    """Is it a known name of a method, in any library?"""
    key = squeezed(name)
    return bool(METHODS_BY_WORD.fullmatch(key)) or key in SAME_METHODS or key in FACTORS or key in METHOD_HINTS


def preconditioner_meant(name: str, kinds: dict[str, str]) -> str | None:
    """Our name of the preconditioner with this alias, or None.

    Args:
        name: any word.
        kinds: our names by themselves squeezed.
    """
    key = squeezed(name)
    for word in (key, _NUMBER.sub("", key) if "(" in key else key):
        if word in kinds or word in PRECONDITIONER_HINTS:
            return kinds.get(word) or PRECONDITIONER_HINTS[word]
    return None


# --- arguments

P = ParamSpec("P")
R = TypeVar("R")

_ARGUMENTS = {
    "tol": "rtol",
    "maxiter": "max_iter",
    "maxit": "max_iter",
    "max_steps": "max_iter",
    "m": "preconditioner",
    "precond": "preconditioner",
    "restart": "method='GMRES(m)' with the number of steps for m",
    "restrt": "method='GMRES(m)' with the number of steps for m",
    "timeout": "time_limit, in seconds",
    "solver": "method",
    "sym_pos": "method='CG', or 'direct', which finds out by itself",
    "assume_a": "method='CG', or 'direct', which finds out by itself",
}


def with_our_names(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator: unknown arguments are refused with the name that they have here, and tracebacks are short."""
    known = set(inspect.signature(function).parameters)

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            if not known.issuperset(kwargs):
                raise TypeError(_refusal(function.__name__, sorted(set(kwargs) - known), known))
            return function(*args, **kwargs)
        except Exception as error:
            __tracebackhide__ = True  # for pytest
            shorten(error)
            raise

    return named_in_tracebacks(checked, function.__name__)


def _refusal(function: str, unknown: list[str], known: set[str]) -> str:
    first = unknown[0]
    ours = _ARGUMENTS.get(first.lower())
    if ours is None:
        close = get_close_matches(first, sorted(known), 1)
        ours = close[0] if close else None
    hint = f"here that is {ours}" if ours else f"there are {', '.join(sorted(known))}"
    return f"{function} has no argument {first!r}; {hint}."
