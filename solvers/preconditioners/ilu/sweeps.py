"""Incomplete factors of traced values, by fixed-point sweeps (Chow and Patel)."""

from __future__ import annotations

from ....backends import Array
from .host import LEAST_PIVOT
from .pattern import UnitDiagonalMatrix


def factors_by_sweeps(A: UnitDiagonalMatrix, sweeps: int) -> tuple[Array, Array]:
    """Zero-fill factors in one array, and the pivots, by fixed-point sweeps over all entries at once.

    f_ij <- a_ij - sum of f_ik f_kj / f_kk over k < min(i, j), from F = A. Every sweep preserves the symmetry of A and
    commutes with transposition. With one sweep fewer than there are levels of rows the factors are exact. A pivot below
    1 % of the diagonal, or of the other sign, is replaced by the diagonal.

    Source: a symmetric form of Chow and Patel, Fine-grained parallel incomplete LU factorization, SISC 37 (2015).
    """
    if A.pattern.is_triangle_free:
        return A.values, _pivots_by_sweeps(A, sweeps)
    bk, pairs, count = A.host, A.pattern.pairs, len(A.pattern.rows)
    factors, pivots = A.values, usable(A, A.diagonal())
    for _ in range(sweeps if len(pairs.target) else 0):
        left = A.take(factors, pairs.first) / A.take(pivots, pairs.pivot)
        products = left * A.take(factors, pairs.second)
        factors = A.values - bk.sum_entries(products, pairs.target, count, sorted=True)
        pivots = usable(A, A.diagonal(factors))
    return factors, pivots


def _pivots_by_sweeps(A: UnitDiagonalMatrix, sweeps: int) -> Array:
    """d_i <- a_ii - sum of a_ik a_ki / d_k over k < i, as one sparse product per sweep."""
    bk, pattern = A.host, A.pattern
    lower, diagonal = pattern.lower, A.diagonal()
    pivots = usable(A, diagonal)
    if not len(lower):
        return pivots
    both = A.take(A.values, lower) * A.take(A.values, pattern.mirror[lower])
    C = A.part(bk, lower, both)
    for _ in range(sweeps):
        sums = C.apply(bk.reshape(1 / pivots, (-1, pattern.n)))
        pivots = usable(A, diagonal - bk.reshape(sums, tuple(diagonal.shape)))
    return pivots


def usable(A: UnitDiagonalMatrix, pivots: Array) -> Array:
    """The pivots, where too small ones and those of the wrong sign are replaced by the diagonal, 1."""
    bk, size = A.host, A.host.real(pivots)
    if A.hermitian:
        pivots = bk.astype(size, bk.dtype(pivots))
    missing = A.diagonal() == 0
    size = bk.where(missing, bk.abs(pivots), size)
    return bk.where((size >= LEAST_PIVOT) & bk.isfinite(size), pivots, bk.full_like(pivots, 1))
