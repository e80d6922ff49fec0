"""Dense factorisations and fast Fourier transforms in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..interface.arrays import Array
from ..interface.kernels import Fourier, Linalg
from ..numpy.backend import NumpyFourier
from .tensors import is_plain


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


# --- Fast Fourier transforms in PyTorch -------------------------------------------------------------------------------


class _OnHost(NumpyFourier):
    """SciPy transforms on as many threads as torch uses."""

    def threads(self, x: Array) -> int:
        return min(super().threads(x), torch.get_num_threads())


class TorchFourier(Fourier):
    """`torch.fft`; and SciPy for the sines and cosines of plain tensors, in half of the time or less."""

    cost = 3.0
    _host = _OnHost()

    def forward(self, x: Array, axes: Sequence[int]) -> Array:
        return (torch.fft.fftn if x.is_complex() else torch.fft.rfftn)(x, dim=tuple(axes))

    def backward(self, x: Array, axes: Sequence[int], length: int | None) -> Array:
        if length is None:
            return torch.fft.ifftn(x, dim=tuple(axes))
        return torch.fft.irfftn(x, (*(x.shape[axis] for axis in axes[:-1]), length), tuple(axes))

    def parts(self, x: Array) -> tuple[Array, Array]:
        return x.real, x.imag

    def complex(self, real: Array, imaginary: Array) -> Array:
        return torch.complex(real, imaginary)

    def trigonometric(self, kind: str, x: Array, axes: Sequence[int]) -> Array | None:
        if not is_plain(x):
            return None
        found = self._host.trigonometric(kind, x.resolve_conj().resolve_neg().detach().numpy(), axes)
        return None if found is None else torch.from_numpy(found)
