"""Dense factorisations in PyTorch."""

from __future__ import annotations

import torch

from ..interface.arrays import Array
from ..interface.kernels import Linalg


class TorchLinalg(Linalg):
    """`torch.linalg`, in variants that do not raise."""

    first_pivot = 1

    def lu_factor(self, matrix: Array) -> tuple[Array, ...]:
        lu, pivots, _ = torch.linalg.lu_factor_ex(matrix)
        return lu, pivots

    def _lu_columns(self, factors: tuple[Array, ...], columns: Array, transposed: bool) -> Array:
        if transposed:  # torch has the conjugate transpose
            return torch.linalg.lu_solve(*factors, columns.conj_physical(), adjoint=True).conj_physical()
        return torch.linalg.lu_solve(*factors, columns)

    def inverse(self, matrix: Array) -> Array:
        return torch.linalg.inv_ex(matrix)[0]

    def _triangular_columns(self, matrix: Array, columns: Array, lower: bool) -> Array:
        return torch.linalg.solve_triangular(matrix, columns, upper=not lower)

    def cholesky(self, matrix: Array) -> Array | None:
        factor, info = torch.linalg.cholesky_ex(matrix)
        return factor if not bool(info.any()) and bool(torch.isfinite(factor).all()) else None

    def _cholesky_columns(self, factor: Array, columns: Array) -> Array:
        return torch.cholesky_solve(columns, factor)

    def eigh(self, matrix: Array) -> tuple[Array, Array]:
        values, vectors = torch.linalg.eigh(matrix)
        return values, vectors
