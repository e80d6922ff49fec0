"""SuperLU, which is always installed: choice of column ordering and row exchanges, and reuse of the ordering."""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...sparse.analysis.canonical import row_maxima
from ...sparse.analysis.facts import is_diagonally_dominant
from ...sparse.analysis.graph import maximum_matching
from ...sparse.analysis.spectrum import is_seen_indefinite
from ..memory import SETUP_CACHE, Memory
from .protocol import EntryPattern, ExactlySingular, Factors, Provider, SymbolicAnalysis

LEAST = 500  # unknowns; for fewer the test takes as long as the factorisation
_DENSE = 10  # times sqrt(n): columns of more entries make minimum degree slow
_MORE = 1.1  # most entries of the pattern of A + Aᵀ, relative to those of A
_STABLE = 100  # largest componentwise backward error of a solve without exchanges, in rounding units


def factors_of(A: Any) -> Any:
    """SuperLU's factors of a square `csc_array`.

    In general, columns are ordered such that the factors stay sparse for any row exchanges. If no exchanges are needed,
    minimum degree on A + Aᵀ is used instead: its factors have half as many entries on a two-dimensional grid, and it
    takes a third of the time on a three-dimensional one and a fifth on a random graph. No exchanges are needed if the
    diagonal is dominant, or if the Hermitian part seems definite and a solve shows no large rounding errors.

    Cost: a few passes over the entries, and where the diagonal is not dominant at most 40 products and one solve.

    Raises:
        ExactlySingular: A is singular.

    Source: Demmel, Gilbert and Li, SIAM J. Matrix Anal. Appl. 20 (1999); Li, ACM TOMS 31 (2005); Liu, ACM TOMS 11
    (1985); without exchanges: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 9.5 and 10.4.
    """
    return SuperLUAnalysis(A.shape[0]).factor(A).lu


class Exchanges(Enum):
    """Which row exchanges a factorisation needs."""

    NONE = "none, as the diagonal is dominant"
    SEEMS_NONE = "none, as the Hermitian part seems definite"
    ALL = "partial pivoting"


def exchanges_needed(A: Any) -> Exchanges:
    """Row exchanges that the factors of a `csc_array` need. SEEMS_NONE has to be verified by a solve."""
    n = A.shape[0]
    if n < LEAST or np.diff(A.indptr).max() > _DENSE * np.sqrt(n):
        return Exchanges.ALL
    pattern = sp.csc_array((np.ones(A.nnz, np.int8), A.indices, A.indptr), A.shape)
    if (pattern + pattern.T).nnz > _MORE * A.nnz:
        return Exchanges.ALL
    if is_dominant(A):
        return Exchanges.NONE
    diagonal = A.diagonal().real
    sign = 1 if diagonal[0] > 0 else -1  # of (A + Aᴴ) / 2: where it is definite, no pivot is zero in any order
    definite = bool(np.all(sign * diagonal > 0)) and not is_seen_indefinite(sp.csr_array(sign * (A + A.conj().T)))
    return Exchanges.SEEMS_NONE if definite else Exchanges.ALL


def is_dominant(A: Any) -> bool:
    """Whether the diagonal is dominant in all rows or in all columns."""
    return is_diagonally_dominant(A.T) or is_diagonally_dominant(A)


def superlu_factors(A: Any, mode: Exchanges, panel: int | None = None) -> Any:
    """SuperLU's factors of a `csc_array`; `panel` is the panel size for a matrix that is ordered already."""
    refuse_structurally_singular(A)
    order = ("MMD_AT_PLUS_A", "COLAMD")[mode is Exchanges.ALL] if panel is None else "NATURAL"
    settings = {} if mode is Exchanges.ALL else {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    return splu_in_memory(A, permc_spec=order, panel_size=panel, **settings)


def splu_in_memory(A: Any, **settings: Any) -> Any:
    """SciPy's `splu` with `ExactlySingular`, and a MemoryError that says what to do."""
    from scipy.sparse.linalg import splu

    try:
        return splu(A, **settings)
    except RuntimeError as error:
        if "exactly singular" not in str(error):
            raise
        raise ExactlySingular(str(error)) from error
    except MemoryError as error:
        raise MemoryError(
            f"There is no memory for the LU factors of a matrix of {A.shape[0]} unknowns and {A.nnz} entries. Use an "
            "iterative method with a preconditioner."
        ) from error


def splu_of_triangle(L: Any) -> Any:
    """SuperLU of a triangular `csc_array` with a unit diagonal. Its factors are L itself and I: nothing is permuted."""
    return splu_in_memory(
        L, permc_spec="NATURAL", diag_pivot_thresh=0.0, relax=1, panel_size=1, options={"Equil": False}
    )


def refuse_structurally_singular(A: Any) -> None:
    """Raise `ExactlySingular` if no order of the rows fills the diagonal: SuperLU would write beyond its arrays."""
    n = A.shape[0]
    if np.count_nonzero(A.diagonal()) == n:
        return
    matched = rows_of_columns(A)
    if matched is not None and np.any(matched < 0):
        missing = np.count_nonzero(matched < 0)
        raise ExactlySingular(
            f"Factor is exactly singular: no order of the rows fills the diagonal, {missing} of {n} entries stay zero."
        )


_MATCHINGS: Memory[np.ndarray] = Memory(8, 1 << 26)


def rows_of_columns(A: Any) -> np.ndarray | None:
    """The row that a maximum matching of the nonzero entries of a `csc_array` assigns to each column.

    Matchings are cached by pattern, because one can take several times as long as the factors.
    """
    if not A.data.all():
        A = sp.csc_array(A, copy=True)
        A.eliminate_zeros()
    digest = blake2b(str((A.shape, A.indices.dtype)).encode(), digest_size=16)
    for part in (A.indptr, A.indices):
        digest.update(np.ascontiguousarray(part).data)
    key = digest.digest()
    matched = _MATCHINGS.get(key) if SETUP_CACHE.get() else None
    if matched is None:
        matched = maximum_matching(A.indptr, A.indices, A.shape[0])
        if matched is not None and SETUP_CACHE.get():
            _MATCHINGS.keep(key, matched, matched.nbytes)
    return matched


def is_stable(A: Any, lu: Any) -> bool:
    """Is the componentwise backward error of a solve at rounding level?

    Source: Oettli and Prager, Numer. Math. 6 (1964).
    """
    size = abs(A)
    v = np.random.default_rng(3).choice([-1.0, 1.0], A.shape[0]) * row_maxima(A)
    v = v.astype(A.dtype)
    with np.errstate(all="ignore"):
        x = lu.solve(v)
        return bool(np.all(np.abs(A @ x - v) <= _STABLE * np.finfo(A.dtype).eps * (size @ np.abs(x) + np.abs(v))))


# --- the library

_PANEL, _PANEL_OF_SHORT = 20, 4  # the first is SuperLU's default; with more it writes beyond its arrays
_SHORT = 100  # entries in each column of the factors, for which small panels take a fifth less time


class SuperLU(Provider):
    """LU with partial pivoting of any square matrix."""

    name = "SuperLU"
    package = module = "scipy"

    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        return SuperLUAnalysis(pattern.n)


class SuperLUFactors(Factors):
    """SuperLU's factors of a matrix whose columns, or rows and columns, were permuted beforehand."""

    library = "SuperLU"

    def __init__(self, lu: Any, dtype: np.dtype, order: np.ndarray | None = None, rows_too: bool = False) -> None:
        self.lu, self.dtype, self.order, self.rows_too = lu, dtype, order, rows_too
        self.nnz = int(lu.nnz)

    def solve(self, b: np.ndarray, transposed: bool = False) -> np.ndarray:
        trans, order = "T" if transposed else "N", self.order
        if order is None:
            return np.asarray(self.lu.solve(b, trans))
        rows_are, columns_are = self.rows_too, True  # in another order than those of the matrix
        b_is, x_is = (columns_are, rows_are) if transposed else (rows_are, columns_are)
        found = np.asarray(self.lu.solve(np.ascontiguousarray(b[order]) if b_is else b, trans))
        if not x_is:
            return found
        x = np.empty_like(found)
        x[order] = found
        return x


class SuperLUAnalysis(SymbolicAnalysis):
    """Column orderings of the first factors with and without row exchanges.

    SuperLU orders within its factorisation. `splu` returns the ordering, and accepts a matrix that is ordered already.
    """

    def __init__(self, n: int) -> None:
        self._orders: dict[bool, np.ndarray] = {}  # with row exchanges, without
        self._mode = Exchanges.ALL
        self.n, self.numbers = n, 0

    @property
    def nbytes(self) -> int:
        return sum(order.nbytes for order in list(self._orders.values()))

    def factor(self, A: Any) -> SuperLUFactors:
        return self._checked(A, exchanges_needed(A))

    def refactor(self, A: Any) -> SuperLUFactors:
        """Like `factor`, but a solve alone verifies that no exchanges are needed."""
        known = self._mode is not Exchanges.ALL
        return self._checked(A, Exchanges.SEEMS_NONE) if known and not is_dominant(A) else self.factor(A)

    def _checked(self, A: Any, mode: Exchanges) -> SuperLUFactors:
        """Factorise, with row exchanges after all if a solve has more than rounding errors."""
        factors, self._mode = self._of(A, mode), mode
        if mode is Exchanges.SEEMS_NONE and not is_stable(A, factors):
            factors, self._mode = self._of(A, Exchanges.ALL), Exchanges.ALL
        return factors

    def _of(self, A: Any, mode: Exchanges) -> SuperLUFactors:
        rows_too = mode is not Exchanges.ALL
        order = self._orders.get(rows_too)
        if order is None:
            lu = superlu_factors(A, mode)
            self.numbers = int(lu.nnz)
            self._orders[rows_too] = np.argsort(lu.perm_c).astype(np.int32)
            return SuperLUFactors(lu, A.dtype)
        permuted = sp.csc_array(A[:, order][order] if rows_too else A[:, order])
        permuted.sort_indices()
        lu = superlu_factors(permuted, mode, _PANEL if self.numbers > _SHORT * self.n else _PANEL_OF_SHORT)
        self.numbers = int(lu.nnz)
        return SuperLUFactors(lu, A.dtype, order, rows_too)
