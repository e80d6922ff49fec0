"""Dense direct solver: LU or Cholesky."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ....backends import Backend
from ....sparse import DenseOperator, Operator
from ....sparse.analysis.analysis import analysis_of
from ...null_space.projections import WithoutVectors
from .dense_singular import examined_factors, seems_singular
from .factorisation import DenseFactors
from .refinement import Refinement
from .singular import SingularFactors


@dataclass(frozen=True)
class Direct(Refinement):
    """LU with partial pivoting on the array library itself; Cholesky where the matrix proves to be definite.

    For any square matrix (a function's is found column by column). Of a singular matrix with a solution it finds the
    one of least norm, with factors that are shifted a little and null vectors that these show; others are reported.
    Cost: n^2 numbers and 2/3 n^3 operations per matrix (half for Cholesky), and 1 solve that shows whether it is
    singular; then per iteration 1 product and 2 triangular solves; mostly 1 iteration. A matrix that seems singular is
    factorised twice or three times.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import Direct
        >>> A = np.array([[4.0, 1.0, 0.0], [2.0, 4.0, 1.0], [0.0, 3.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=Direct())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    @property
    def name(self) -> str:
        return "direct"

    def factorise(self, bk: Backend, A: Operator) -> DenseFactors | SingularFactors:
        return factorise(bk, A)


def factorise(bk: Backend, A: Operator) -> DenseFactors | SingularFactors:
    """Factors of A; for a numerically singular A an operator like the pseudo-inverse."""
    matrix = bk.constant(A.dense())
    systems = int(matrix.shape[0]) if len(matrix.shape) == 3 else None
    dense = A if isinstance(A, DenseOperator) else DenseOperator(bk, matrix)
    if may_be_definite(bk, dense):
        factor = bk.linalg.cholesky(matrix)
        if factor is not None:
            diagonal = bk.diagonal(factor)
            pivots = diagonal * bk.conj(diagonal) / bk.diagonal(matrix)
            if not bool(bk.any(seems_singular(bk, matrix, lambda b: bk.linalg.cholesky_solve(factor, b), pivots)[0])):
                return DenseFactors(bk, (factor,), True, A.shape, A.dtype, systems)
    factors = bk.linalg.lu_factor(matrix)
    pivots = bk.diagonal(factors[0])
    suspect, _ = seems_singular(bk, matrix, lambda b: bk.linalg.lu_solve(factors, b), pivots)
    if not bk.compiled(matrix) and not bool(bk.any(suspect)):
        one = bk.full((A.shape[0], 1), 1, np.finfo(A.dtype).dtype, matrix)
        return DenseFactors(bk, (*factors, one, one), False, A.shape, A.dtype, systems)
    *found, right, left, singularity = examined_factors(bk, matrix, factors, suspect)
    inner = DenseFactors(bk, found, False, A.shape, A.dtype, systems)
    return SingularFactors(inner, WithoutVectors(bk, right), WithoutVectors(bk, left), singularity)


@dataclass(frozen=True)
class DirectOnce(Direct):
    """`Direct` as a program holds it: LU, applied once; `DirectOnHost` solves what that leaves over.

    Factors that look singular are NaN, and so is what they solve: only the host examines them.
    """

    applies_once = True

    def factorise(self, bk: Backend, A: Operator) -> DenseFactors | SingularFactors:
        matrix = bk.constant(A.dense())
        if not bk.compiled(matrix):
            return factorise(bk, A)
        lu, pivots = bk.linalg.lu_factor(matrix)
        diagonal = bk.reshape(lu, (-1, A.shape[0] ** 2))[:, :: A.shape[0] + 1]  # a slice, cheaper than a gather
        suspect, _ = seems_singular(bk, matrix, lambda b: bk.linalg.lu_solve((lu, pivots), b), diagonal)
        systems = int(matrix.shape[0]) if len(matrix.shape) == 3 else None
        one = bk.full((int(suspect.shape[0]), A.shape[0]), 1, np.finfo(A.dtype).dtype, matrix)
        rows = bk.reshape(bk.where(suspect, np.nan * one, one), (-1, 1))
        return DenseFactors(bk, (lu, pivots, rows), False, A.shape, A.dtype, systems)


@dataclass(frozen=True)
class DirectOnHost(Direct):
    """`Direct` by NumPy, whatever the library."""

    on_host = True


def may_be_definite(bk: Backend, A: DenseOperator) -> bool:
    """May A be positive definite, so that Cholesky is tried: Hermitian to working precision with positive diagonal?"""
    if bk.compiled(A.matrix):
        return False
    diagonal = bk.real(A.diagonals())
    return bool(analysis_of(A).has_equal_triangles) and not bool(bk.any(~(diagonal > 0)))
