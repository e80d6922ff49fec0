"""CHOLMOD as a provider, through the package scikit-sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .pattern import EntryPattern, Kind
from .protocol import Factors, FactorsRefused, Provider, SymbolicAnalysis, library


class Cholmod(Provider):
    """Supernodal Cholesky factors of definite matrices, real or complex, in double precision.

    Source: Chen, Davis, Hager, Rajamanickam, ACM TOMS 35 (2008).
    """

    name = "CHOLMOD"
    package = "scikit-sparse"
    module = "sksparse"

    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        cholmod = library("sksparse.cholmod")
        _check(pattern, A)
        if not hasattr(cholmod, "analyze"):
            raise FactorsRefused("this version of scikit-sparse has other functions than 0.4")
        return CholmodAnalysis(pattern, cholmod.analyze(_given(A)))


class CholmodAnalysis(SymbolicAnalysis):
    """Symbolic factorisation by CHOLMOD."""

    def __init__(self, pattern: EntryPattern, symbolic: Any) -> None:
        self.pattern, self.symbolic = pattern, symbolic

    def factor(self, A: Any) -> Factors:
        cholmod = library("sksparse.cholmod")
        _check(self.pattern, A)
        try:
            return CholmodFactors(self.symbolic.cholesky(_given(A)), A)
        except cholmod.CholmodError as error:
            raise FactorsRefused(str(error) or "it is not definite") from error


class CholmodFactors(Factors):
    """Cholesky factors; the transpose of a Hermitian matrix is its conjugate."""

    def __init__(self, factor: Any, A: Any) -> None:
        self.factor, self.dtype = factor, np.result_type(A.dtype, np.float64)
        self.nnz = int(factor.L().nnz)

    def solve(self, b: np.ndarray) -> np.ndarray:
        return np.asarray(self.factor(b.astype(self.dtype, copy=False)))

    def solve_transposed(self, b: np.ndarray) -> np.ndarray:
        return self.solve(b.conj()).conj()


def _check(pattern: EntryPattern, A: Any) -> None:
    if pattern.kind(A) is not Kind.HERMITIAN or not np.all(A.diagonal().real > 0):
        raise FactorsRefused("it takes definite matrices only")


def _given(A: Any) -> Any:
    """Convert to the format and precision of CHOLMOD, which reads one triangle."""
    return sp.csc_matrix(A.astype(np.result_type(A.dtype, np.float64), copy=False))
