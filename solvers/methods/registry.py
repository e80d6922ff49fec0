"""Registry of methods by name; tests and the command line run over it."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import scipy.sparse as sp

from ...backends import choose_backend
from ...sparse import Dense, Operator, is_function
from ..names import FACTORS, METHOD_HINTS, SAME_METHODS, preconditioner_meant, squeezed
from ..preconditioners import PRECONDITIONERS, Preconditioner
from .bicgstab import BiCGStab
from .block_cg import BlockCG
from .cg import CG, CGAdaptive, CGSingleReduction
from .cocr import COCR
from .direct import BandedDirect, Direct, FastDirect, ScipyDirect, SparseDirect
from .gmres import GMRES
from .idr import IDR
from .least_squares import CGLS, LSMR
from .method import Method
from .minres import MINRES
from .mixed_precision import MixedPrecision
from .petsc.method import Petsc
from .scipy_methods import SCIPY_NAMES, ScipyMethod

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        CG(),
        CGAdaptive(),
        CGSingleReduction(),
        BlockCG(),
        COCR(),
        BiCGStab(1),
        BiCGStab(2),
        BiCGStab(4),
        GMRES(),
        GMRES(flexible=True),
        IDR(4),
        MINRES(),
        LSMR(),
        CGLS(),
        MixedPrecision(CG()),
        MixedPrecision(BiCGStab(2)),
        Direct(),
        ScipyDirect(),
        SparseDirect(),
        FastDirect(),
        BandedDirect(),
        *(ScipyMethod(name) for name in SCIPY_NAMES),
    )
}
"""Name -> method with its default settings. biCG-stab(l), GMRES(m), FGMRES(m) and IDR(s) exist for every integer >= 1.

mixed-... exists for every method that iterates on each system separately. Pass your own methods as objects.
"""

OPTIONAL_METHODS: dict[str, Method] = {method.name: method for method in (Petsc(),)}
"""Name -> method, for those that need a package which krylix does not install. They are never chosen automatically."""

_BY_WORD: dict[str, Method] = {squeezed(name): method for name, method in (METHODS | OPTIONAL_METHODS).items()}
_BY_WORD["idr"] = IDR()
_WITH_A_NUMBER: dict[str, Callable[[int], Method]] = {
    "bicgstab": BiCGStab,
    "gmres": GMRES,
    "fgmres": lambda m: GMRES(m, flexible=True),
    "idr": IDR,
}
_MIXED = "mixed"
_NUMBER = re.compile(r"(.+)\((\d+)\)")


def is_auto(method: str | Method) -> bool:
    """Whether the method is "auto"."""
    return isinstance(method, str) and method.strip().lower() == "auto"


def find_method(method: str | Method, A: Any = None) -> Method:
    """Return the method of this name, or the given method object itself.

    Case, hyphens, underscores and spaces do not matter. Names of other libraries are also accepted: "bicgstab", "pcg",
    "bicg" (SciPy's), "spsolve". "lu" and "cholesky" are "direct" for a dense A and "scipy-direct" otherwise.

    Args:
        method: a name, or a method object.
        A: the matrix or function, if known.

    Raises:
        ValueError: no method has this name.
        TypeError: neither a name nor a method.

    Examples:
        >>> from krylix.solvers import find_method
        >>> find_method("bicgstab(2)").name
        'biCG-stab(2)'
    """
    if type(method) is str and method in METHODS:
        return METHODS[method]
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        raise TypeError(_no_name(method))
    key = squeezed(method)
    if key in FACTORS:
        return METHODS["direct" if _is_dense(A) else "scipy-direct"]
    key = squeezed(SAME_METHODS.get(key, key))
    if key in _BY_WORD:
        return _BY_WORD[key]
    number = _NUMBER.fullmatch(key)
    if number and number[1] in _WITH_A_NUMBER:
        return _WITH_A_NUMBER[number[1]](int(number[2]))
    if key.startswith(_MIXED):
        return MixedPrecision(find_method(key.removeprefix(_MIXED), A))
    names = ", ".join([*METHODS, *OPTIONAL_METHODS])
    raise ValueError(f"No method is called {method!r}{_hint(method)} There are auto, {names}.")


def _is_dense(A: Any) -> bool:
    """Is A dense, or unknown?"""
    if A is None or isinstance(A, Dense):
        return True
    if isinstance(A, list | tuple) and A:
        return all(map(_is_dense, A))
    if isinstance(A, Operator) or is_function(A) or sp.issparse(A) or hasattr(A, "matvec"):
        return False
    return not choose_backend(A).sparse.accepts(A)


def _hint(method: str) -> str:
    """Suggest a name, as the end of a sentence."""
    key = squeezed(method)
    if key in METHOD_HINTS:
        return f". Did you mean {METHOD_HINTS[key]}?"
    kind = preconditioner_meant(method, {squeezed(name): name for name in PRECONDITIONERS})
    if kind is not None:
        return f", which is a preconditioner: give preconditioner={kind!r}, with method='auto', 'CG' or 'GMRES'."
    close = get_close_matches(key, [*_BY_WORD, *SAME_METHODS], 1)
    return f". Did you mean {find_method(close[0]).name!r}?" if close else "."


def _no_name(method: Any) -> str:
    expected = "method must be a name or a method such as krylix.solvers.CG()"
    if isinstance(method, type) and issubclass(method, Method):
        return f"{expected}; got the class {method.__name__} itself. Give {method.__name__}()."
    if isinstance(method, Preconditioner):
        return f"{expected}; got {method!r}. Give it as preconditioner=..."
    return f"{expected}; got {type(method).__name__}."
