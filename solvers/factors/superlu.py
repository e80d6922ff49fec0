"""SuperLU, which is always there: its column ordering, whether it may interchange rows, and its ordering kept."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...sparse.analysis.canonical import row_maxima
from ...sparse.analysis.definite import is_seen_indefinite
from ...sparse.analysis.facts import is_diagonally_dominant
from ...sparse.analysis.matching import maximum_matching
from .pattern import EntryPattern
from .protocol import ExactlySingular, Factors, Provider, SymbolicAnalysis

LEAST = 500  # unknowns; for fewer the look takes as long as the factors
_DENSE = 10  # times sqrt(n) entries make a column for which this order takes long to find
_MORE = 1.1  # of the entries may be in the union with the transposed pattern
_STABLE = 100  # times the rounding unit of what is added up: what a solve may leave without exchanges


def factors_of(A: Any) -> Any:
    """SuperLU's factors of a square `csc_array`.

    Columns are ordered such that the factors stay sparse whatever rows are exchanged, which all matrices can need.
    Where none are needed, the minimum degree of A + Aᵀ leaves half as many numbers on a grid of two axes, takes a third
    of the time on one of three, and a fifth on a random graph: where the diagonal is dominant, or the Hermitian part
    seen to be definite and a solve then finds no large rounding errors.

    Cost: a few passes over the entries, and where the diagonal is not dominant at most 40 products and one solve.

    Raises:
        ExactlySingular: a pivot is zero whatever row is taken.

    Source: Demmel, Gilbert and Li, SIAM J. Matrix Anal. Appl. 20 (1999); Li, ACM TOMS 31 (2005); Liu, ACM TOMS 11
    (1985); without exchanges: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., sections 9.5 and 10.4.
    """
    return _stable(A, exchanges_needed(A), lambda mode: superlu_factors(A, mode))[0]


def _stable(A: Any, mode: Exchanges, factorise: Callable[[Exchanges], Any]) -> tuple[Any, Exchanges]:
    """Factors, and whether rows were exchanged for them after all, because a solve left more than rounding errors."""
    lu = factorise(mode)
    if mode is Exchanges.SEEMS_NONE and not is_stable(A, lu):
        return factorise(Exchanges.ALL), Exchanges.ALL
    return lu, mode


class Exchanges(Enum):
    """Which row exchanges a factorisation needs."""

    NONE = "none, as the diagonal is dominant"
    SEEMS_NONE = "none, as the Hermitian part seems definite"
    ALL = "partial pivoting"


def exchanges_needed(A: Any) -> Exchanges:
    """Which row exchanges the factors of a `csc_array` need; where they seem to need none, a solve has to show it."""
    if not _is_alike(A):
        return Exchanges.ALL
    if is_dominant(A):
        return Exchanges.NONE
    return Exchanges.SEEMS_NONE if _has_definite_part(A) else Exchanges.ALL


def is_dominant(A: Any) -> bool:
    """Is the diagonal dominant in all rows, or in all columns?"""
    return is_diagonally_dominant(A.T) or is_diagonally_dominant(A)


def superlu_factors(A: Any, mode: Exchanges, panel: int | None = None) -> Any:
    """SuperLU's factors of a `csc_array`; of one that is ordered already, with panels of so many columns.

    Raises:
        ExactlySingular: a pivot is zero whatever row is taken.
        MemoryError: there is no room for the factors.
    """
    refuse_structurally_singular(A)
    order = ("MMD_AT_PLUS_A", "COLAMD")[mode is Exchanges.ALL] if panel is None else "NATURAL"
    settings = {} if mode is Exchanges.ALL else {"diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    return splu_in_memory(A, permc_spec=order, panel_size=panel, **settings)


def splu_in_memory(A: Any, **settings: Any) -> Any:
    """SciPy's `splu`, whose MemoryError says what did not fit.

    Raises:
        ExactlySingular: a pivot is zero whatever row is taken.
        MemoryError: there is no room for the factors.
    """
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


def refuse_structurally_singular(A: Any) -> None:
    """Raise where no order of rows fills the diagonal of a `csc_array`: SuperLU then writes beyond its arrays.

    Raises:
        ExactlySingular: the matrix is singular whatever its numbers.
    """
    n = A.shape[0]
    if np.count_nonzero(A.diagonal()) == n:
        return
    if not A.data.all():
        A = sp.csc_array(A, copy=True)
        A.eliminate_zeros()
    matched = maximum_matching(A.indptr, A.indices, n)
    if matched is not None and np.any(matched < 0):
        missing = np.count_nonzero(matched < 0)
        raise ExactlySingular(
            f"Factor is exactly singular: no order of the rows fills the diagonal, {missing} of {n} entries stay zero."
        )


def _is_alike(A: Any) -> bool:
    """Is the pattern nearly symmetric, without a column that takes long to order?"""
    n = A.shape[0]
    if n < LEAST or np.diff(A.indptr).max() > _DENSE * np.sqrt(n):
        return False
    pattern = sp.csc_array((np.ones(A.nnz, np.int8), A.indices, A.indptr), A.shape)
    return (pattern + pattern.T).nnz <= _MORE * A.nnz


def _has_definite_part(A: Any) -> bool:
    """Does (A + Aᴴ) / 2 seem definite? Then no pivot is zero, in any order."""
    diagonal = A.diagonal().real
    sign = 1 if diagonal[0] > 0 else -1
    return bool(np.all(sign * diagonal > 0)) and not is_seen_indefinite(sp.csr_array(sign * (A + A.conj().T)))


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

_PANEL, _PANEL_OF_SHORT = 20, 4  # the first is SuperLU's own; more than that write beyond its arrays
_SHORT = 100  # numbers in each column of the factors


class SuperLU(Provider):
    """LU with partial pivoting of any square matrix; always there."""

    name = "SuperLU"
    package = module = "scipy"

    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        return SuperLUAnalysis(pattern.n)


class SuperLUFactors(Factors):
    """Factors by SuperLU of a matrix whose columns, or rows and columns, were permuted beforehand."""

    library = "SuperLU"

    def __init__(self, lu: Any, dtype: np.dtype, order: np.ndarray | None = None, rows_too: bool = False) -> None:
        self.lu, self.dtype, self.order, self.rows_too = lu, dtype, order, rows_too
        self.nnz = int(lu.nnz)

    def solve(self, b: np.ndarray) -> np.ndarray:
        return self._solved(b, "N", self.rows_too, True)

    def solve_transposed(self, b: np.ndarray) -> np.ndarray:
        return self._solved(b, "T", True, self.rows_too)

    def _solved(self, b: np.ndarray, trans: str, into: bool, out_of: bool) -> np.ndarray:
        """Solve in the order of the factors; do b and x have the other one?"""
        if self.order is None:
            return np.asarray(self.lu.solve(b, trans))
        found = np.asarray(self.lu.solve(np.ascontiguousarray(b[self.order]) if into else b, trans))
        if not out_of:
            return found
        x = np.empty_like(found)
        x[self.order] = found
        return x


class SuperLUAnalysis(SymbolicAnalysis):
    """Column orderings, with and without row exchanges, of the first factors that needed them.

    SuperLU orders within its factorisation; `splu` hands the ordering out, and takes a matrix that has it already.
    """

    def __init__(self, n: int) -> None:
        self._orders: dict[bool, np.ndarray] = {}  # with row exchanges, without
        self._mode = Exchanges.ALL
        self.n, self.numbers = n, 0

    @property
    def nbytes(self) -> int:
        return sum(order.nbytes for order in list(self._orders.values()))

    def factor(self, A: Any) -> Factors:
        return self._checked(A, exchanges_needed(A))

    def refactor(self, A: Any) -> Factors:
        """As `factor`; whether no exchanges are needed is not looked for again, but seen in a solve."""
        known = self._mode is not Exchanges.ALL
        return self._checked(A, Exchanges.SEEMS_NONE) if known and not is_dominant(A) else self.factor(A)

    def _checked(self, A: Any, mode: Exchanges) -> Factors:
        factors, self._mode = _stable(A, mode, lambda mode: self._of(A, mode))
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
        self.numbers = int((found := superlu_factors(permuted, mode, self._panel)).nnz)
        return SuperLUFactors(found, A.dtype, order, rows_too)

    @property
    def _panel(self) -> int:
        """Columns that are eliminated together: few where they are short, which takes a fifth less time."""
        return _PANEL if self.numbers > _SHORT * self.n else _PANEL_OF_SHORT
