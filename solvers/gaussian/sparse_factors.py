"""L and U of a sparse matrix on the host, as the algorithms of this folder take them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from ..factors.superlu import factors_of


class SparseFactors(NamedTuple):
    """`B = L U` with `B[rows[i], columns[j]] = A[i, j]`.

    Attributes:
        L: unit lower triangular, `csc_array` with sorted indices.
        U: upper triangular, likewise.
        rows: `(n,)`, the row of B that each row of A is.
        columns: `(n,)`, likewise of columns.
        solve: `(n, k)` columns b -> A^-1 b.
    """

    L: Any
    U: Any
    rows: np.ndarray
    columns: np.ndarray
    solve: Any

    @property
    def is_symmetric(self) -> bool:
        """Were rows and columns reordered alike, so that B is Hermitian where A is?"""
        return bool(np.array_equal(self.rows, self.columns))

    @property
    def is_definite(self) -> bool:
        """Of a Hermitian matrix: is `U = D Lᴴ` with D > 0?"""
        pivots = self.U.diagonal()
        return self.is_symmetric and bool(np.all(pivots.real > 0)) and not np.any(np.abs(pivots.imag) > pivots.real)


def sparse_factors(A: Any) -> SparseFactors | None:
    """Factors of a square `csc_array`, with exchanges of rows where these are needed; None where a pivot is zero.

    Cost: one factorisation by SuperLU, and a copy of its factors.
    """
    return _opened(lambda: factors_of(A))


def definite_factors(A: Any) -> SparseFactors | None:
    """`P A Pᵀ = L D Lᴴ` of a Hermitian `csc_array`, in the order of minimum degree; None unless D > 0.

    Then no exchanges are needed, as with Cholesky's factors, which these are but for the scale.

    Source: Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., section 10.1.
    """
    from scipy.sparse.linalg import splu

    found = _opened(lambda: splu(A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}))
    return found if found is not None and found.is_definite else None


def _opened(factorise: Any) -> SparseFactors | None:
    try:
        lu = factorise()
    except RuntimeError:  # "Factor is exactly singular"
        return None
    L, U = sp.csc_array(lu.L), sp.csc_array(lu.U)
    L.sort_indices()
    U.sort_indices()
    return SparseFactors(L, U, np.asarray(lu.perm_r), np.asarray(lu.perm_c), lu.solve)


def sign_and_log(factors: SparseFactors | None) -> tuple[Any, float]:
    """Sign (of modulus 1, or 0) and log of the modulus of the determinant."""
    pivots = np.zeros(1) if factors is None else factors.U.diagonal()
    size = np.abs(pivots)
    if factors is None or not size.all():
        return 0.0, -np.inf
    parity = _parity(factors.rows) * _parity(factors.columns)
    with np.errstate(invalid="ignore"):
        return parity * np.prod(pivots / size), float(np.sum(np.log(size)))


def _parity(order: np.ndarray) -> int:
    """The sign of a permutation: each cycle of even length is odd."""
    n = len(order)
    graph = sp.csr_array((np.ones(n, np.int8), order.astype(np.int32), np.arange(n + 1, dtype=np.int32)), (n, n))
    cycles, _ = connected_components(graph)
    return 1 if (n - cycles) % 2 == 0 else -1
