"""Levels of a known matrix on the host, rounding on coarse diagonals, and an order of the unknowns."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ....backends import Array, Backend, get_backend
from ....sparse import Matrix, Operator, SparseMatrix
from ....sparse.analysis.spectrum import bounded_eigenvalue
from ....sparse.formats.entries.integers import csr_array, evenly_spread, starts_of
from ....sparse.formats.making.build import from_csr, from_entries
from ..jacobi import reciprocal
from ..multigrid.coarsest import residue_of, scales_of, times_diagonals
from .interpolation import ClassicalRule, Injection
from .rows import inverse_permutation, on_diagonal, permuted, row_sums

Tentative: TypeAlias = sp.csr_array | ClassicalRule
"""Source of a prolongation in updates: that of aggregates before smoothing, or a rule of interpolation."""


class HostLevel(NamedTuple):
    """SciPy matrices of a level.

    Attributes:
        terms: sizes of the terms whose sum is the diagonal of A; for the finest matrix |a_ii|. The rounding of a coarse
            matrix is relative to them, because its small entries can be rounding from finer levels.
        P, R: None on the coarsest level.
        tentative: source of P in updates.
        rho: a bound of the eigenvalues of D⁻¹ A, if computed.
        splitting: of classical coarsening, mask of the coarse unknowns.
        exact: fine unknowns are eliminated, so that P and R make no error.
    """

    A: sp.csr_array
    terms: np.ndarray
    P: sp.csr_array | None = None
    R: sp.csr_array | None = None
    tentative: Tentative | None = None
    rho: float | None = None
    splitting: np.ndarray | None = None
    exact: bool = False

    @classmethod
    def finest(cls, A: sp.csr_array) -> HostLevel:
        return cls(A, np.abs(A.diagonal()))

    def below(self, coarse: sp.csr_array) -> HostLevel:
        """The next coarser level, with `coarse` = R A P without rows of mere rounding."""
        to_coarse = _squared(self.P).T
        squares, terms = to_coarse @ self.A.diagonal(), np.asarray(to_coarse @ self.terms)
        alone = np.flatnonzero(is_rounding(get_backend("numpy"), coarse.diagonal(), squares, terms))
        if len(alone):
            coarse = sp.csr_array(coarse + sp.csr_array((squares[alone], (alone, alone)), coarse.shape))
        return HostLevel(coarse, terms)


def _squared(P: sp.csr_array) -> sp.csr_array:
    return sp.csr_array((np.abs(P.data) ** 2, P.indices, P.indptr), P.shape)


def kept_for_updates(tentative: Tentative | Operator, bk: Backend, dtype: np.dtype, like: Array | None) -> Operator:
    """The operator that a level of a cycle keeps for updates; one of an earlier cycle is returned unchanged."""
    if isinstance(tentative, Operator):
        return tentative
    if isinstance(tentative, ClassicalRule):
        ones = tentative.injection.to_scipy((np.ones(tentative.shape[1], dtype),))
        return Injection(from_csr(bk, ones, prune=False, format="csr", like=like), tentative)
    return from_csr(bk, tentative.astype(dtype), prune=False, format="csr", like=like)


def levels_of_pyamg(solver: Any) -> list[HostLevel]:
    """Levels of a `MultilevelSolver`, without empty ones."""
    levels = [HostLevel.finest(without_duplicates(solver.levels[0].A))]
    for level, coarser in zip(solver.levels, solver.levels[1:]):
        if coarser.A.shape[0] == 0:
            break
        P = without_duplicates(level.P)
        levels[-1] = levels[-1]._replace(P=P, R=without_duplicates(level.R), tentative=P)
        terms = np.asarray(_squared(P).T @ levels[-1].terms)
        levels.append(HostLevel(without_duplicates(coarser.A), terms))
    return levels


def adjoint(A: sp.csr_array) -> sp.csr_array:
    """Conjugate transpose."""
    return sp.csr_array(A.conj().T)


def relative(A: sp.csr_array) -> sp.csr_array:
    """D⁻¹ A, with 1 for zeros of the diagonal D."""
    return times_diagonals(reciprocal(get_backend("numpy"), A.diagonal()), A)


def eigenvalue_bound(A: sp.csr_array) -> float:
    """Upper bound of the eigenvalues of D⁻¹ A; 1 for a zero matrix."""
    host, sums = get_backend("numpy"), row_sums(np.abs(relative(A).data), A)
    left, right = scales_of(A, False)
    matrix = from_csr(host, times_diagonals(left, A, right), prune=False, format="csr")
    rho = float(bounded_eigenvalue(host, matrix, sums.max(initial=0, keepdims=True))[0])
    return rho if rho > 0 else 1.0


def is_diagonal(A: sp.csr_array) -> bool:
    """Is the matrix diagonal?"""
    return A.nnz <= A.shape[0] and bool(np.all(on_diagonal(A)))


def without_duplicates(A: Any) -> sp.csr_array:
    """A in CSR format, with duplicates added up."""
    rows = sp.csr_array(A)
    rows.sum_duplicates()
    return rows


# --- rounding on the diagonal of coarse matrices, from regions where A maps constants to zero ---

_ROUNDING = 64.0  # times the rounding unit and the terms of the finest level, likewise


def is_rounding(bk: Backend, diagonal: Array, squares: Array, terms: Array) -> Array:
    """Mask of the diagonal entries of a coarse matrix that are mere rounding, whose inverse would be huge, of any sign.

    A closed region that has shrunk to a point leaves such a row. It gets the diagonal `squares` that the point would
    have without neighbours.
    """
    eps, size = float(np.finfo(bk.dtype(diagonal)).eps), bk.abs(diagonal)
    return (size <= residue_of(bk.dtype(diagonal)) * bk.abs(squares)) | (size <= _ROUNDING * eps * terms)


# --- reverse Cuthill-McKee order of the unknowns ---
#
# Aggregation visits the unknowns in their order. In a random one, as on many meshes, aggregates have odd shapes, which
# costs a third of the iterations, and products take half as long again for lack of locality.

_LEAST = 2000  # unknowns: fewer fit into the cache anyway
_FAR = 0.1  # relative mean distance of coupled unknowns: a third in a random order
_NEARER = 0.25  # required reduction of that distance
_SAMPLE = 1000  # rows


def nearer_order(matrix: Matrix, block_size: int = 1) -> np.ndarray | None:
    """Reverse Cuthill-McKee order (unknown `order[k]` becomes number k, int32) if it is much better, else None.

    Cost: a sample of 1000 rows; where these are spread, some passes over the entries.
    """
    n = matrix.shape[0]
    if not isinstance(matrix, SparseMatrix) or matrix.systems is not None or n < _LEAST or n % block_size:
        return None
    rows, cols = matrix.structure.in_rows(evenly_spread(n, _SAMPLE))
    distance = float(np.mean(np.abs(rows - cols))) if len(rows) else 0.0
    if distance < _FAR * n:
        return None
    every, to, _ = matrix.structure.entries()
    graph = csr_array(np.ones(len(every), np.int8), to, starts_of(every, n), matrix.shape)
    if block_size > 1:
        pairs = (every // block_size, to // block_size)
        # Duplicates are added up: 256 ones of 8 bits would give 0.
        graph = sp.csr_array((np.ones(len(every), bool), pairs), (n // block_size, n // block_size))
    points = reverse_cuthill_mckee(graph, symmetric_mode=False).astype(np.int32)
    order = (points[:, None] * block_size + np.arange(block_size, dtype=np.int32)).reshape(-1)
    places = inverse_permutation(order)
    return order if float(np.mean(np.abs(places[rows] - places[cols]))) <= _NEARER * distance else None


def permuted_rows(matrix: sp.csr_array, order: np.ndarray | None) -> sp.csr_array:
    """The matrix, symmetrically permuted by `order`, with sorted rows."""
    if order is None:
        return matrix
    image = permuted(matrix, order, order)
    image.sort_indices()
    return image


def permuted_matrix(matrix: SparseMatrix, order: np.ndarray | None) -> SparseMatrix:
    """Likewise in its library; values may be traced. Cost: a sort."""
    if order is None:
        return matrix
    rows, cols, _ = matrix.structure.entries()
    places, values = inverse_permutation(order), matrix.entry_values()
    like = matrix.anchor()
    return from_entries(matrix.bk, places[rows], places[cols], values, matrix.shape, prune=False, like=like)
