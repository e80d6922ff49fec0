"""All methods by name; tests and the command line run over this table."""

from __future__ import annotations

import re
from collections.abc import Callable
from difflib import get_close_matches

from ..iteration.method import Method
from .bicgstab import BiCGStab
from .block_cg import BlockCG
from .cg import CG
from .cg_adaptive import CGAdaptive
from .direct.banded import BandedDirect
from .direct.dense import Direct
from .direct.fast import FastDirect
from .direct.superlu import ScipyDirect
from .gmres import GMRES
from .idr import IDR
from .least_squares.cgls import CGLS
from .least_squares.lsmr import LSMR
from .minres import MINRES
from .mixed_precision import MixedPrecision
from .scipy_methods import SCIPY_NAMES, ScipyMethod

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        CG(),
        CGAdaptive(),
        BlockCG(),
        BiCGStab(1),
        BiCGStab(2),
        BiCGStab(4),
        GMRES(),
        IDR(4),
        MINRES(),
        LSMR(),
        CGLS(),
        MixedPrecision(CG()),
        MixedPrecision(BiCGStab(2)),
        Direct(),
        ScipyDirect(),
        *(ScipyMethod(name) for name in SCIPY_NAMES),
    )
}
"""Name -> method with its default settings. biCG-stab(l), GMRES(m), FGMRES(m) and IDR(s) exist for every number >= 1.

mixed-... exists for every method that iterates on each system by itself.
"""

FOR_SPECIAL_MATRICES: tuple[Method, ...] = (FastDirect(), BandedDirect())
"""Methods that refuse all other matrices, and are therefore not in the table."""

_BY_LOWER_CASE = {name.lower(): method for name, method in METHODS.items()}
_BY_LOWER_CASE |= {"fgmres": GMRES(flexible=True), "idr": IDR()}
_BY_LOWER_CASE |= {method.name: method for method in FOR_SPECIAL_MATRICES}
_WITH_A_NUMBER: dict[str, Callable[[int], Method]] = {
    "bicg-stab": BiCGStab,
    "gmres": GMRES,
    "fgmres": lambda m: GMRES(m, flexible=True),
    "idr": IDR,
}
_FACTORS = "'direct' (a dense matrix) or 'scipy-direct' (a sparse one)"
_CALLED_ELSEWHERE = {
    **dict.fromkeys(("lu", "solve", "splu", "spsolve", "superlu", "umfpack", "dense"), _FACTORS),
    **dict.fromkeys(("cholesky", "cholmod", "ldl", "ldlt"), f"{_FACTORS}, which find out by themselves"),
    **dict.fromkeys(("pcg", "preconditioned-cg"), "'CG' with preconditioner=..."),
    **dict.fromkeys(("bicg", "cgs", "qmr", "tfqmr"), "'biCG-stab(2)', or SciPy's method of that name, 'scipy-...'"),
    **dict.fromkeys(("bicgstab", "bi-cgstab", "bicgstab2"), "'biCG-stab' or 'biCG-stab(2)'"),
    **dict.fromkeys(("lsqr", "lstsq", "least-squares"), "'LSMR'"),
}
_MIXED = "mixed-"
_NUMBER = re.compile(r"(.+)\((\d+)\)")


def is_auto(method: str | Method) -> bool:
    """Is the choice of a method left to the library?"""
    return isinstance(method, str) and method.strip().lower() == "auto"


def find_method(method: str | Method) -> Method:
    """The method of this name (upper and lower case alike), or the given method object itself.

    Raises:
        ValueError: no method has this name.
        TypeError: neither a name nor a method.
    """
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        raise TypeError(f"method must be a name or a method such as krylix.solvers.CG(); got {type(method).__name__}.")
    key = method.strip().lower()
    if key in _BY_LOWER_CASE:
        return _BY_LOWER_CASE[key]
    number = _NUMBER.fullmatch(key)
    if number and number[1] in _WITH_A_NUMBER:
        return _WITH_A_NUMBER[number[1]](int(number[2]))
    if key.startswith(_MIXED):
        return MixedPrecision(find_method(key.removeprefix(_MIXED)))
    close = get_close_matches(key, _BY_LOWER_CASE, 1)
    meant = _CALLED_ELSEWHERE.get(key) or (repr(_BY_LOWER_CASE[close[0]].name) if close else None)
    hint = f" Did you mean {meant}?" if meant else ""
    raise ValueError(f"No method is called {method!r}.{hint} There are auto, {', '.join(METHODS)}.")
