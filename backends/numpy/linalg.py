"""Dense factorisations in NumPy: LAPACK by way of SciPy."""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack

from .. import lapack as host
from ..interface.arrays import Array
from ..interface.kernels import Linalg


class NumpyLinalg(Linalg):
    """One call of LAPACK for each matrix."""

    first_pivot = 0

    def lu_factor(self, matrix: Array) -> tuple[Array, ...]:
        return host.lu_factor(matrix)

    def _lu_columns(self, factors: tuple[Array, ...], columns: Array, transposed: bool) -> Array:
        lu, pivots = factors
        (solve,) = lapack.get_lapack_funcs(("getrs",), (lu,))
        if lu.ndim == 2:
            return solve(lu, pivots, columns, trans=int(transposed))[0]
        every = zip(lu, pivots, columns, strict=True)
        return np.array([solve(f, p, rhs, trans=int(transposed))[0] for f, p, rhs in every])

    def inverse(self, matrix: Array) -> Array:
        return host.batched_inverse(matrix)

    def _triangular_columns(self, matrix: Array, columns: Array, lower: bool) -> Array:
        (solve,) = lapack.get_lapack_funcs(("trtrs",), (matrix, columns))
        if matrix.ndim == 2:  # the transpose of a row-major matrix is what LAPACK reads without a copy
            return solve(matrix.T, columns, lower=not lower, trans=1)[0]
        found = [solve(m.T, rhs, lower=not lower, trans=1)[0] for m, rhs in zip(matrix, columns, strict=True)]
        return np.array(found, columns.dtype).reshape(columns.shape)

    def cholesky(self, matrix: Array) -> Array | None:
        return host.cholesky_or_none(matrix)

    def _cholesky_columns(self, factor: Array, columns: Array) -> Array:
        (solve,) = lapack.get_lapack_funcs(("potrs",), (factor, columns))
        # the transpose of a row-major matrix is what LAPACK reads without a copy
        upper = np.swapaxes(factor, -1, -2) if factor.dtype.kind == "f" else np.swapaxes(factor, -1, -2).conj()
        if factor.ndim == 2:
            return solve(upper, columns)[0]
        return np.array([solve(u, rhs)[0] for u, rhs in zip(upper, columns, strict=True)])

    def eigh(self, matrix: Array) -> tuple[Array, Array]:
        values, vectors = np.linalg.eigh(matrix)
        return values, vectors
