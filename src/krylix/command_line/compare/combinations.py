"""Which methods and preconditioners `krylix compare` tries, by what is seen in the matrix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...solvers import PRECONDITIONERS, find_method
from ...solvers.methods.registry import is_auto
from ...sparse.analysis.facts import is_hermitian
from ...sparse.analysis.symmetry import is_symmetric
from .comparison import AUTO, NONE

Combination = tuple[str, str]  # method, preconditioner
_GENERAL = ("GMRES", "biCG-stab(2)", "IDR(4)")
_USUAL = (NONE, "jacobi", "ilu", "amg")


def combinations(A: Any, methods: Sequence[str] = (), kinds: Sequence[str] = ()) -> list[Combination]:
    """Those that suit the matrix, or all of the methods and kinds that are named.

    | matrix | methods | preconditioners |
    |---|---|---|
    | Hermitian with a positive diagonal | CG | all there are |
    | | MINRES | none, jacobi |
    | Hermitian | MINRES | none, jacobi |
    | complex symmetric | COCR | none, jacobi, ilu |
    | all but the first | GMRES, biCG-stab(2), IDR(4) | none, jacobi, ilu, amg |
    | any square one | auto, and LU factors | |
    | rectangular | LSMR, CGLS | |
    """
    if not methods and not kinds:
        return _usual(A)
    usual = _usual(A)
    methods = methods or list(dict.fromkeys(method for method, _ in usual if _takes_one(method)))
    kinds = kinds or list(dict.fromkeys(kind for method, kind in usual if kind != AUTO))
    pairs = [(method, kind) for method in methods for kind in _kinds_of(method, kinds)]
    return list(dict.fromkeys(pairs))


def _usual(A: Any) -> list[Combination]:
    if A.shape[0] != A.shape[1]:
        return [("LSMR", NONE), ("CGLS", NONE)]
    direct = [(AUTO, AUTO), ("scipy-direct" if sp.issparse(A) else "direct", NONE)]
    if is_hermitian(A):
        if np.all(A.diagonal().real > 0):
            everything = [("CG", kind) for kind in (NONE, *PRECONDITIONERS)]
            return [*direct, *everything, ("MINRES", NONE), ("MINRES", "jacobi")]
        special = [("MINRES", NONE), ("MINRES", "jacobi")]
    elif A.dtype.kind == "c" and is_symmetric(A):
        special = [("COCR", kind) for kind in _USUAL[:3]]
    else:
        special = []
    return [*direct, *special, *((method, kind) for method in _GENERAL for kind in _USUAL)]


def _takes_one(method: str) -> bool:
    return not is_auto(method) and find_method(method).takes_preconditioner


def _kinds_of(method: str, kinds: Sequence[str]) -> Sequence[str]:
    if is_auto(method):
        return [AUTO]
    return kinds if _takes_one(method) else [NONE]
