"""SuperLU as a provider: its ordering of the columns is kept, so that other numbers are not ordered again."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..pivot_order import Exchanges, exchanges_needed, is_dominant, is_stable, superlu_factors
from .pattern import EntryPattern
from .protocol import Factors, FactorsRefused, Provider, SymbolicAnalysis

_PANEL, _PANEL_OF_SHORT = 20, 4  # the first is SuperLU's own; more than that write beyond its arrays
_SHORT = 100  # numbers in each column of the factors


class SuperLU(Provider):
    """LU with partial pivoting of any square matrix; always there. See `pivot_order`."""

    name = "SuperLU"
    package = "scipy"

    def is_installed(self) -> bool:
        return True

    def analyse(self, pattern: EntryPattern, A: Any) -> SymbolicAnalysis:
        return SuperLUAnalysis(pattern.n)


class SuperLUFactors(Factors):
    """Factors by SuperLU of a matrix whose columns, or rows and columns, were permuted beforehand."""

    provider = SuperLU.name

    def __init__(self, lu: Any, order: np.ndarray | None, rows_too: bool) -> None:
        self.lu, self.order, self.rows_too = lu, order, rows_too
        self.nnz = int(lu.nnz)

    def solve(self, b: np.ndarray, trans: str = "N") -> np.ndarray:
        if self.order is None:
            return np.asarray(self.lu.solve(b, trans))
        into, out_of = (self.rows_too, True) if trans == "N" else (True, self.rows_too)
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

    def _checked(self, A: Any, mode: Exchanges) -> SuperLUFactors:
        try:
            found = self._of(A, mode)
            if mode is Exchanges.SEEMS_NONE and not is_stable(A, found):
                mode, found = Exchanges.ALL, self._of(A, Exchanges.ALL)
        except RuntimeError as error:  # "Factor is exactly singular"
            raise FactorsRefused(str(error)) from error
        self._mode = mode
        return found

    def _of(self, A: Any, mode: Exchanges) -> SuperLUFactors:
        rows_too = mode is not Exchanges.ALL
        order = self._orders.get(rows_too)
        if order is None:
            lu = superlu_factors(A, mode)
            self.numbers = int(lu.nnz)
            self._orders[rows_too] = np.argsort(lu.perm_c).astype(np.int32)
            return SuperLUFactors(lu, None, rows_too)
        permuted = sp.csc_array(A[:, order][order] if rows_too else A[:, order])
        permuted.sort_indices()
        self.numbers = int((found := superlu_factors(permuted, mode, self._panel)).nnz)
        return SuperLUFactors(found, order, rows_too)

    @property
    def _panel(self) -> int:
        """Columns that are eliminated together: few where they are short, which takes a fifth less time."""
        return _PANEL if self.numbers > _SHORT * self.n else _PANEL_OF_SHORT
