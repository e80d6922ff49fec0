"""Kernels of PyTorch: entries, sparse products, dense factorisations, Fourier transforms.

Sparse products are its CSR product, and DIA products in place where autograd records nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch._C import _functorch

from ..interface.arrays import Array, Integers
from ..interface.kernels import Fourier, Kernels, Linalg, Place, clipped, diagonal_places, inside
from ..numpy.kernels import NumpyFourier
from .tensors import is_plain, is_tracked, is_transformed, may_have_derivatives

_MANY = 4096  # entries; with fewer it takes longer to call for each system than to gather for all at once
_PART = 2**17  # numbers of the image that are worked on at a time, which stay in the cache


class TorchKernels(Kernels):
    """Entries by index_select and index_add, each the derivative of the other; sparse products."""

    def dia_product(
        self, diagonals: Array, offsets: Sequence[int], x: Array, n: int, transposed: bool = False
    ) -> Array:  # fmt: skip
        if _is_recorded(diagonals, x):
            return super().dia_product(diagonals, offsets, x, n, transposed)
        return _by_parts(diagonals, list(diagonal_places(offsets, n, x.shape[1], transposed)), x, n)

    def dia_added(self, y: Array, diagonals: Array, where: Sequence[Place], x: Array) -> Array | None:
        if _is_recorded(diagonals, x, y):
            return None
        _add_parts(diagonals, where, x, y)
        return y

    def prefers_diagonals(self, like: Array | None) -> bool:
        return like is None or like.device.type == "cpu"

    def dia_sample(self, offsets: Sequence[int], y: Array, x: Array, each: bool = False) -> Array:
        if _is_recorded(y, x):
            return super().dia_sample(offsets, y, x, each)
        batch, n = y.shape
        found = x.new_zeros((batch if each else 1, len(offsets), n))
        for d, o, lo, hi in inside(offsets, n, x.shape[1]):
            for row in range(batch):
                found[row if each else 0, d, lo:hi].addcmul_(y[row, lo:hi], x[row, lo + o : hi + o])
        return found if each else found[0]

    def entries_product(
        self, values: Array, rows: Integers, cols: Integers, x: Array, n: int, starts: Integers | None = None
    ) -> Array:
        # torch's own has no derivatives of second order, and none in forward mode
        if starts is None or _is_recorded(values, x):
            product = super().entries_product
            if values.ndim == 2 and values.shape[1] >= _MANY and not _is_recorded(values, x):
                return torch.cat([product(v, rows, cols, row[None], n) for v, row in zip(values, x, strict=True)])
            return product(values, rows, cols, x, n, starts)
        index, shape = (as_index(starts, values), as_index(cols, values)), (n, int(x.shape[1]))
        if values.ndim == 1:
            matrix = _csr(*index, values, shape)
            return (matrix @ x[0])[None] if x.shape[0] == 1 else (matrix @ x.T).T.contiguous()
        if values.shape[1] < _MANY and len(values) * max(n, int(x.shape[1]), int(values.shape[1])) < 2**31:
            matrix = _on_diagonal(*index, values, shape)
            return (matrix @ x.reshape(-1)).reshape(-1, n)
        return torch.stack([_csr(*index, v, shape) @ row for v, row in zip(values, x, strict=True)])

    # --- moving entries -----------------------------------------------------------------------------------------------

    def take_in_bounds(self, x: Array, index: Integers, axis: int = 0) -> Array:
        index, axis = as_index(index, x), axis % x.ndim
        taken = x.index_select(axis, index.reshape(-1))
        return taken if index.ndim == 1 else taken.reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))

    def segment_sum(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        return values.new_zeros((count, *values.shape[1:])).index_add(0, as_index(ids, values), values)

    def _pad_with_zeros(self, x: Array, widths: Sequence[tuple[int, int]]) -> Array:
        flat = [width for pair in reversed(widths) for width in pair]
        return torch.nn.functional.pad(x, flat) if any(flat) else x  # a batched gradient lacks a rule for no padding


def _csr(starts: torch.Tensor, cols: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    return torch.sparse_csr_tensor(starts, cols, values, shape, check_invariants=False)


def _on_diagonal(
    starts: torch.Tensor, cols: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]
) -> torch.Tensor:  # fmt: skip
    """Block diagonal matrix of a batch."""
    (systems, count), (n, m) = values.shape, shape
    copies = torch.arange(systems, dtype=cols.dtype, device=cols.device)[:, None]
    first = (starts[:-1] + copies.to(starts.dtype) * count).reshape(-1)
    last = torch.full((1,), systems * count, dtype=starts.dtype, device=starts.device)
    places = torch.cat([first, last]), (cols + copies * m).reshape(-1)
    return _csr(*places, values.reshape(-1), (systems * n, systems * m))


def _is_recorded(*tensors: torch.Tensor) -> bool:
    if any(is_transformed(t) or _functorch.is_legacy_batchedtensor(t) for t in tensors):
        return True
    return may_have_derivatives() and any(is_tracked(t) for t in tensors)


def _by_parts(diagonals: torch.Tensor, where: Sequence[Place], x: torch.Tensor, n: int) -> torch.Tensor:
    """The image that `diagonal_places` describes."""
    image = x.new_zeros((x.shape[0], n))
    _add_parts(diagonals, where, x, image)
    return image


def _add_parts(diagonals: torch.Tensor, where: Sequence[Place], x: torch.Tensor, y: torch.Tensor) -> None:
    batch, n = y.shape
    size = max(_PART // max(batch, 1), 1024)
    for start in range(0, n, size):
        end = min(start + size, n)
        for d, lo, hi, shift, step in clipped(where, start, end):
            y[:, lo:hi].addcmul_(diagonals[..., d, lo + shift : hi + shift], x[:, lo + step : hi + step])


# --- Gather, scatter, pad, permute and flip in PyTorch ----------------------------------------------------------------


def as_index(index: Integers, like: torch.Tensor) -> torch.Tensor:
    """Integers as a tensor that torch indexes with, on `like`'s device."""
    if isinstance(index, torch.Tensor):
        return index if index.dtype in (torch.int32, torch.int64) else index.long()
    array = np.asarray(index)
    array = np.require(array, array.dtype if array.dtype.char in "ilq" else np.int64, ["C", "W"])
    if any(stride < 0 for stride in array.strides):  # also along an axis of one element, which NumPy does not mind
        array = array.copy()
    return torch.as_tensor(array, device=like.device)


# --- Dense factorisations and fast Fourier transforms in PyTorch ------------------------------------------------------


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
