"""Dense factorisation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....backends import Array, Backend
from ....sparse import DenseOperator, Operator
from ....sparse.symmetry import has_equal_triangles
from .factorisation import DenseFactors
from .refinement import Refinement

_SWEEPS = 20  # of the scales


@dataclass(frozen=True)
class Direct(Refinement):
    """LU with partial pivoting on the array library itself; Cholesky where the matrix proves to be definite.

    For any square matrix (a function's is found column by column). A singular matrix is shifted a little and the
    solution refined, which solves consistent systems; others are reported. Cost: n^2 numbers and 2/3 n^3 operations
    per matrix (half for Cholesky), then per iteration 1 product and 2 triangular solves; mostly 1 iteration.
    """

    @property
    def name(self) -> str:
        return "direct"

    def factorise(self, bk: Backend, A: Operator) -> DenseFactors:
        return factorise(bk, A)


def factorise(bk: Backend, A: Operator) -> DenseFactors:
    """Factors of `A`'s entries, shifted where they are singular to working precision."""
    matrix = bk.constant(A.dense())
    systems = int(matrix.shape[0]) if len(matrix.shape) == 3 else None
    dense = A if isinstance(A, DenseOperator) else DenseOperator(bk, matrix)
    if _may_be_definite(bk, dense):
        factor = bk.linalg.cholesky(matrix)
        diagonal = None if factor is None else bk.diagonal(factor)
        if diagonal is not None and not bool(bk.any(_singular(bk, diagonal * bk.conj(diagonal) / bk.diagonal(matrix)))):
            return DenseFactors(bk, (factor,), True, A.shape, A.dtype, systems)
    return DenseFactors(bk, _lu_factors(bk, matrix), False, A.shape, A.dtype, systems)


def _lu_factors(bk: Backend, matrix: Array) -> tuple[Array, ...]:
    """LU of the matrix; of R A C with powers of two R, C where it seems singular, and shifted where that does too.

    Rows of different size make pivots of different size, which say nothing: units play no role for what R A C is.

    Returns:
        The factors, and the diagonals of R and C as `(n or systems * n, 1)`.
    """
    factors = bk.linalg.lu_factor(matrix)
    singular = _singular(bk, bk.diagonal(factors[0]))
    one = bk.full_like(bk.max_abs(bk.reshape(matrix, (-1, int(matrix.shape[-1])))), 1)

    def again(*_: Array) -> tuple[Array, ...]:
        rows, columns = _scales(bk, matrix, singular)
        scaled = bk.matrix_transpose(_scaled(bk, bk.matrix_transpose(_scaled(bk, matrix, rows)), columns))
        better = bk.linalg.lu_factor(scaled)
        still = _singular(bk, bk.diagonal(better[0]))

        def shifted(*_: Array) -> tuple[Array, ...]:
            return tuple(bk.linalg.lu_factor(_shift(bk, scaled, still)))

        return *bk.cond(bk.any(still), shifted, lambda *same: same, *better), rows, columns

    return tuple(bk.cond(bk.any(singular), again, lambda *same: same, *factors, one, one))


def _scales(bk: Backend, matrix: Array, where: Array) -> tuple[Array, Array]:
    """`(systems * n, 1)` twice: powers of two that make sums over rows and over columns alike, for some systems.

    Args:
        where: `(systems, 1)`; the scales of the others are 1.

    As `sparse.equilibrate.scales`, which says more.
    """
    n = int(matrix.shape[-1])
    sizes = bk.abs(matrix)
    largest = bk.binary_scale(bk.reshape(sizes, (-1, n * n)))  # (systems, 1)
    sizes = bk.reshape(bk.times(1 / largest, bk.reshape(sizes, (-1, n * n))), tuple(matrix.shape))
    turned = bk.matrix_transpose(sizes)

    def sweep(state: tuple[Array, ...]) -> tuple[Array, ...]:
        rows, columns, count = state
        by_row, by_column = rows * bk.product(sizes, columns), columns * bk.product(turned, rows)
        return rows / _root(bk, by_row), columns / _root(bk, by_column), count + 1

    one = bk.full_like(bk.broadcast_to(largest, (int(largest.shape[0]), n)), 1)
    state = one, one, bk.asarray(np.int32(0), like=matrix)
    rows, columns, _ = bk.while_loop(lambda state: state[2] < _SWEEPS, sweep, state)
    rows = rows / largest
    rows, columns = bk.where(where, rows, one), bk.where(where, columns, one)
    return bk.binary_scale(bk.reshape(rows, (-1, 1))), bk.binary_scale(bk.reshape(columns, (-1, 1)))


def _root(bk: Backend, sums: Array) -> Array:
    return bk.sqrt(bk.where(sums > 0, sums, bk.full_like(sums, 1)))


def _scaled(bk: Backend, matrix: Array, scales: Array) -> Array:
    rows = bk.reshape(matrix, (-1, int(matrix.shape[-1])))
    return bk.reshape(bk.times(scales, rows), tuple(matrix.shape))


def _may_be_definite(bk: Backend, A: DenseOperator) -> bool:
    if bk.compiled(A.matrix):
        return False
    diagonal = bk.real(A.diagonals())
    return has_equal_triangles(A) and not bool(bk.any(~(diagonal > 0)))


def _singular(bk: Backend, pivots: Array) -> Array:
    """`(n,)` or `(systems, n)` -> `(1, 1)` or `(systems, 1)`: is a pivot zero to working precision?"""
    n = int(pivots.shape[-1])
    size = bk.reshape(bk.abs(pivots), (-1, n))
    negligible = size <= bk.max_abs(size) * float(n * np.finfo(bk.dtype(size)).eps)
    return bk.sum(bk.astype(negligible, bk.dtype(size)), 1, keepdims=True) > 0


def _shift(bk: Backend, matrix: Array, singular: Array) -> Array:
    """The singular matrices plus a small diagonal, in proportion to the size of each row."""
    n = int(matrix.shape[-1])
    rows = bk.max_abs(bk.reshape(matrix, (-1, n)))  # (systems * n, 1)
    rows = bk.reshape(rows, (-1, n))
    amount = np.sqrt(np.finfo(bk.dtype(rows)).eps) * bk.where(rows > 0, rows, bk.full_like(rows, 1))
    amount = bk.astype(bk.where(singular, amount, bk.zeros_like(amount)), bk.dtype(matrix))
    identity = bk.asarray(np.eye(n), bk.dtype(matrix), like=matrix)
    return matrix + bk.reshape(bk.reshape(amount, (-1, n, 1)) * identity, tuple(matrix.shape))
