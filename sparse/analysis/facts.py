"""Properties that a few passes over the entries of a sparse matrix prove: dominance, definiteness, components.

Every function takes a SciPy sparse array or matrix and changes nothing. "Up to rounding" always means: some matrix
whose entries differ from the given ones by rounding errors of the dtype has the property exactly. A matrix with a NaN
or an infinity has none of the properties.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, connected_components

from ...backends.host_math import cores
from .canonical import canonical, row_maxima, row_range
from .symmetry import is_hermitian

_ROWS = 50_000  # that are looked at together, while they are in the cache


class Dominance(NamedTuple):
    """Diagonal dominance by row, `(n,)` each, in units of the largest |a_ij| of the row.

    Attributes:
        diagonal: |a_ii|.
        others: the sum of the other |a_ij|.
        rounding: the difference of these two that rounding errors can make.
    """

    diagonal: np.ndarray
    others: np.ndarray
    rounding: np.ndarray

    @property
    def weak(self) -> np.ndarray:
        """`(n,)` bool: |a_ii| >= sum of the others, up to rounding."""
        return self.diagonal - self.others >= -self.rounding

    @property
    def strict(self) -> np.ndarray:
        """`(n,)` bool: |a_ii| > sum of the others, by more than rounding."""
        return self.diagonal - self.others > self.rounding


def has_symmetric_pattern(A: Any) -> bool:
    """Is a_ij != 0 wherever a_ji != 0? Stored zeros do not count. Cost: one transposition."""
    A = canonical(A)
    if A.shape[0] != A.shape[1]:
        return False
    other = A.T.tocsr()
    other.sort_indices()
    return bool(np.array_equal(A.indptr, other.indptr) and np.array_equal(A.indices, other.indices))


def is_diagonally_dominant(A: Any) -> bool:
    """Is |a_ii| >= the sum of the other |a_ij| in every row, up to rounding? Rectangular matrices are not."""
    if A.shape[0] != A.shape[1]:
        return False
    A, ones = canonical(A), np.ones(A.shape[1])
    others: list[int] = []

    def look(first: int, last: int) -> None:
        if not others and not _dominance(row_range(A, first, last), first, ones).weak.all():
            others.append(first)

    cores.in_blocks(look, A.shape[0], _ROWS)
    return not others


def is_dominated(A: Any, factor: float) -> bool:
    """Is |a_ii| >= that factor times the sum of the other |a_ij| in every row of a `csr_array`?

    Mostly the first rows say no.
    """

    def holds(first: int) -> bool:
        rows = A[first : first + _ROWS]
        diagonal = np.abs(rows.diagonal(first))
        rest = np.asarray(abs(rows).sum(axis=1)).reshape(-1) - diagonal
        return bool(np.all(diagonal >= factor * rest))

    return all(map(holds, range(0, A.shape[0], _ROWS)))


def is_m_matrix(A: Any) -> bool:
    """Is A a real M-matrix, or -A, as far as its rows prove it?

    A diagonal of one sign, no other entries of that sign, and rows that are diagonally dominant up to rounding: so are
    diffusion with convection by upwind differences, Markov chains and Laplacians of directed graphs. May be singular.
    """
    A = canonical(A)
    if A.dtype.kind == "c" or A.shape[0] != A.shape[1] or not A.nnz:
        return False
    diagonal = A.diagonal()
    sign = np.sign(diagonal[0])
    alike = np.count_nonzero(sign * A.data > 0)  # those on the diagonal, if there are no others
    return bool(sign and np.all(sign * diagonal > 0) and alike == A.shape[0]) and is_diagonally_dominant(A)


def is_positive_definite(A: Any) -> bool | None:
    """True if that is proven, None if it is not known.

    Proof: A is Hermitian with a positive diagonal, weakly diagonally dominant, and strictly so in at least one row of
    each connected component, all up to rounding (Taussky, "A recurring theorem on determinants", 1949). Many definite
    matrices, those of elasticity for example, are not diagonally dominant: for these the answer is None.
    """
    A = canonical(A)
    if not is_hermitian(A) or not np.all(A.diagonal().real > 0):
        return None
    found = dominance(A)
    if not found.weak.all():
        return None
    count, labels = component_labels(A)
    return True if len(np.unique(labels[found.strict])) == count else None


def is_positive_semidefinite(A: Any) -> bool | None:
    """True if that is proven, None if it is not known.

    Proof: A is Hermitian with a diagonal >= 0, and diagonally dominant up to rounding.
    """
    A = canonical(A)
    return True if is_hermitian(A) and np.all(A.diagonal().real >= 0) and is_diagonally_dominant(A) else None


def has_diagonal_of_one_sign(A: Any) -> bool:
    """Is the real part of the diagonal positive everywhere, or negative, but for rows of zeros? Not of zeros alone."""
    A = canonical(A)
    diagonal = A.diagonal().real
    counted = diagonal if np.all(diagonal != 0) else diagonal[(diagonal != 0) | (row_maxima(A) > 0)]
    return len(counted) > 0 and bool(np.all(counted > 0) or np.all(counted < 0))


def dominance(A: Any) -> Dominance:
    """Diagonal dominance of each row of a square matrix.

    Raises:
        ValueError: A is not square.
    """
    _check_square(A, "diagonal dominance")
    return _dominance(canonical(A), 0, np.ones(A.shape[1]))


def _dominance(A: Any, first: int, ones: np.ndarray) -> Dominance:
    """`dominance` of the rows of a matrix from number `first` on."""
    largest = row_maxima(A)
    scaled = _magnitudes(A, np.where(largest > 0, largest, 1))  # row by row: sums of large entries would overflow
    with np.errstate(invalid="ignore"):
        diagonal, total = scaled.diagonal(first), scaled @ ones
        rounding = 4 * (np.diff(A.indptr) + 1) * np.finfo(A.dtype).eps * total
        return Dominance(diagonal, total - diagonal, rounding)


def component_labels(A: Any) -> tuple[int, np.ndarray]:
    """Number of connected components of the graph of a square matrix, and the component of each row, `(n,)`.

    Rows i and j are connected where a_ij != 0 or a_ji != 0: systems of different components are independent.

    Raises:
        ValueError: A is not square.
    """
    _check_square(A, "component_labels")
    A = canonical(A)
    if A.shape[0] == 0:
        return 0, np.zeros(0, np.int32)
    weights = A.data if A.dtype == np.float64 else np.ones(A.nnz)  # of which none is 0
    graph = sp.csr_array((weights, A.indices, A.indptr), A.shape)
    if len(breadth_first_order(graph, 0, return_predecessors=False)) == A.shape[0]:  # at half the cost
        return 1, np.zeros(A.shape[0], np.int32)
    count, labels = connected_components(graph, directed=False)
    return int(count), labels


def occupied_diagonals(A: Any) -> np.ndarray:
    """Sorted offsets, column minus row, of the diagonals that have a non-zero. Cost: one pass over the entries."""
    A = canonical(A)
    n, m = A.shape
    offsets = A.indices - np.repeat(np.arange(n, dtype=np.int64), np.diff(A.indptr))
    if A.nnz < n + m:
        return np.unique(offsets)
    return np.flatnonzero(np.bincount(offsets + (n - 1), minlength=1)) - (n - 1)


def _magnitudes(A: Any, rows: np.ndarray) -> Any:
    """|a_ij| / rows_i in double precision."""
    with np.errstate(all="ignore"):
        data = np.abs(A.data).astype(np.float64) / np.repeat(rows, np.diff(A.indptr))
    return sp.csr_array((data, A.indices, A.indptr), A.shape)


def _check_square(A: Any, what: str) -> None:
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"{what} of a matrix of shape {A.shape}: expected a square one; look at A.T @ A instead.")
