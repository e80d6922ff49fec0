"""rslab as a provider: L D Lᵀ factors of symmetric matrices, and KLU factors of circuit-like ones."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp

from .pattern import EntryPattern, Kind, values_at
from .protocol import Factors, FactorsRefused, PatternRefused, Provider, SymbolicAnalysis, library

_SPARSE, _FILL = 4, 25  # most entries per unknown of a matrix for KLU, which has no dense blocks, and of its factors
_MOST_THREADS = 4  # of one factorisation, to leave cores to others
_REFINED = 1  # refinement steps, because pivots are chosen only within supernodes


class Rslab(Provider):
    """Supernodal L D Lᵀ with pivots of Bunch and Kaufman, real or complex symmetric; and LU of diagonal blocks.

    Its LU of other matrices is not used, because it is wrong for most that are not diagonally dominant. It cannot
    factorise complex Hermitian matrices.

    Source: Bunch, Kaufman, Math. Comp. 31 (1977); Davis, Palamadai Natarajan, ACM TOMS 37 (2010) for KLU.
    """

    name = package = module = "rslab"

    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        rslab = _in_this_process()
        kind, complex_ = pattern.kind(A), A.dtype.kind == "c"
        symmetric = kind is Kind.SYMMETRIC or (kind is Kind.HERMITIAN and not complex_)
        if not symmetric and len(pattern.indices) > _SPARSE * pattern.n:  # the analysis alone may take long
            raise FactorsRefused("its LU of matrices that are not symmetric is not to be trusted")
        indptr, indices, places = pattern.upper if symmetric else pattern.rows
        numbers = values_at(places, A.data, A.dtype)
        matrix = sp.csc_array((numbers, indices, indptr), A.shape)
        matrix.has_canonical_format = True
        try:
            if symmetric:
                symbolic = rslab.analyze(matrix, path="ldlt", threads=thread_limit())
                return RslabAnalysis(symbolic, pattern, kind, symmetric)
            symbolic = rslab.analyze(matrix, path="klu")
        except (RuntimeError, ValueError) as error:
            raise FactorsRefused(str(error)) from error
        if symbolic.factor_nnz > _FILL * pattern.n:
            raise PatternRefused("its factors fill in, and its LU of such matrices is not to be trusted")
        return RslabAnalysis(symbolic, pattern, kind, symmetric)


_users: list[int] = []  # the process that called rslab first


def _in_this_process() -> Any:
    """Return the library, unless this process was forked after its parent had used it.

    The thread pool does not survive a fork, so a factorisation in the child would wait for ever.
    """
    found = library("rslab")
    _users[:] = _users or [os.getpid()]
    if _users[0] != os.getpid():
        raise FactorsRefused("this process was forked from one that had used it, and its threads stayed there")
    return found


class RslabAnalysis(SymbolicAnalysis):
    """Symbolic factorisation by rslab."""

    def __init__(self, symbolic: Any, pattern: EntryPattern, kind: Kind, symmetric: bool) -> None:
        """`symbolic` is that of the lower triangle of a symmetric matrix, or of the transpose of another."""
        self.symbolic, self.pattern, self.kind, self.in_rows = symbolic, pattern, kind, not symmetric

    @property
    def places(self) -> np.ndarray:
        """Positions in the data of A that rslab reads."""
        return (self.pattern.rows if self.in_rows else self.pattern.upper)[2]

    @property
    def nbytes(self) -> int:
        return 16 * len(self.places)

    def factor(self, A: Any) -> Factors:
        _in_this_process()
        try:
            found = self.symbolic.factor(values_at(self.places, A.data, A.dtype))
        except (RuntimeError, ValueError) as error:
            raise FactorsRefused(str(error)) from error
        if found.n_perturbed > 0:
            raise FactorsRefused(f"{found.n_perturbed} pivots were too small, and replaced")
        return RslabFactors(found, is_transpose=self.in_rows, dtype=A.dtype)


class RslabFactors(Factors):
    """Factors of A, or of its transpose if `is_transpose`."""

    def __init__(self, factors: Any, is_transpose: bool, dtype: np.dtype) -> None:
        self.factors, self.is_transpose, self.dtype = factors, is_transpose, dtype
        self.nnz = int(factors.factor_nnz)

    def solve(self, b: np.ndarray) -> np.ndarray:
        return self._by_columns(self._back if self.is_transpose else self._forth, b)

    def solve_transposed(self, b: np.ndarray) -> np.ndarray:
        return self._by_columns(self._forth if self.is_transpose else self._back, b)

    def _forth(self, column: np.ndarray) -> Any:
        return self.factors.solve(column, refine=_REFINED)

    def _back(self, column: np.ndarray) -> Any:
        return self.factors.solve_transpose(column)

    def _by_columns(self, solve: Callable[[np.ndarray], np.ndarray], b: np.ndarray) -> np.ndarray:
        columns = (b[:, None] if b.ndim == 1 else b).astype(self.dtype, copy=False)
        found = np.empty(columns.shape, self.dtype)
        for i, column in enumerate(columns.T):
            found[:, i] = solve(np.ascontiguousarray(column))
        return found.reshape(b.shape)


def thread_limit() -> int:
    """Number of threads from the environment, else the available cores, at most four."""
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        given = os.environ.get(name, "").split(",")[0].strip()
        if given.isdigit() and int(given) > 0:
            return int(given)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST_THREADS, cores)
