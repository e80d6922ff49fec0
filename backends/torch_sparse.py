"""Products with PyTorch sparse tensors, as CSR with int32 indices where they fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from .base import Array
from .entries import Entries
from .shared import row_starts
from .torch_closures import is_tracked, is_transformed, may_have_derivatives
from .torch_dtypes import TORCH_DTYPE, numpy_dtype
from .torch_indexing import as_index

_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


@dataclass(frozen=True, eq=False)
class CsrTensor:
    """A sparse matrix by rows, with its values as an ordinary tensor that may have derivatives."""

    starts: torch.Tensor
    cols: torch.Tensor
    values: torch.Tensor
    shape: tuple[int, int]

    @cached_property
    def native(self) -> torch.Tensor:
        """As a CSR tensor of torch, without derivatives."""
        return torch.sparse_csr_tensor(self.starts, self.cols, self.values.detach(), self.shape, check_invariants=False)

    @cached_property
    def rows(self) -> torch.Tensor:
        """Row of each entry."""
        return torch.repeat_interleave(
            torch.arange(self.shape[0], device=self.cols.device), self.starts.diff(), output_size=len(self.cols)
        )


class TorchSparse:
    """A matrix here is a `CsrTensor`."""

    def accepts(self, x: Any) -> bool:
        """Is `x` a sparse matrix of this library?"""
        return isinstance(x, torch.Tensor) and x.layout in _LAYOUTS

    def entries(self, x: torch.Tensor) -> Entries:
        """The entries of a sparse tensor of any layout, which may have derivatives.

        Raises:
            ValueError: it has dense axes, or is no matrix.
        """
        matrix = self.read(x)
        return Entries(matrix.values, matrix.rows, matrix.cols, matrix.shape)

    def native(self, values: torch.Tensor, rows: Any, cols: Any, shape: tuple[int, int]) -> torch.Tensor:
        """A CSR tensor of entries in the order of rows, then columns, without duplicates."""
        starts = torch.as_tensor(row_starts(np.asarray(rows), shape[0]), device=values.device)
        columns = as_index(cols, values).to(starts.dtype)
        return torch.sparse_csr_tensor(starts, columns, values, tuple(shape), check_invariants=False)

    def read(self, x: torch.Tensor, dtype: np.dtype | None = None, like: Array | None = None) -> CsrTensor:
        """A sparse tensor of any layout (two axes, no dense ones) as CSR."""
        if x.ndim != 2 or x.dense_dim():
            raise ValueError(
                f"A sparse tensor of shape {tuple(x.shape)} with {x.dense_dim()} dense axes was given; expected a "
                "plain sparse matrix. For a batch of matrices use a dense (batch, n, n) tensor or a function."
            )
        if x.layout == torch.sparse_csr:
            matrix = CsrTensor(x.crow_indices(), x.col_indices(), x.values(), tuple(x.shape))
        elif x.layout == torch.sparse_csc:
            matrix = self.transpose(CsrTensor(x.ccol_indices(), x.row_indices(), x.values(), tuple(x.shape[::-1])))
        else:
            coo = _to_coo(x)
            rows, cols = coo.indices()
            matrix = _csr(rows, cols, coo.values(), tuple(x.shape))
        return matrix if dtype is None else self.recast(matrix, dtype)

    def from_scipy(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> CsrTensor:
        """A SciPy sparse matrix as CSR on `like`'s device."""
        csr = sp.csr_array(x, copy=True)
        csr.sum_duplicates()
        coo = csr.tocoo()
        device = like.device if like is not None else None
        rows, cols = (torch.as_tensor(i.astype(np.int64), device=device) for i in (coo.row, coo.col))
        values = torch.as_tensor(np.asarray(coo.data, dtype), device=device)
        return _csr(rows, cols, values, tuple(x.shape))

    def dtype(self, matrix: CsrTensor | torch.Tensor) -> np.dtype:
        """NumPy dtype of the values."""
        return numpy_dtype((matrix.values if isinstance(matrix, CsrTensor) else matrix).dtype)

    def recast(self, matrix: CsrTensor, dtype: np.dtype) -> CsrTensor:
        """The same matrix with values of another dtype."""
        return replace(matrix, values=matrix.values.to(TORCH_DTYPE[np.dtype(dtype)]))

    def product(self, matrix: CsrTensor, x: Array) -> Array:
        """`(n, m)` times each row of `(batch, m)` -> `(batch, n)`."""
        if _needs_rules(matrix.values) or _needs_rules(x):
            # torch's own product has no derivatives of second order, and none in forward mode
            image = x.new_zeros((x.shape[0], matrix.shape[0]))
            return image.index_add(1, matrix.rows, x[:, matrix.cols] * matrix.values)
        native = matrix.native
        return (native @ x[0])[None] if x.shape[0] == 1 else (native @ x.T).T

    def transpose(self, matrix: CsrTensor) -> CsrTensor:
        """The transposed matrix (not conjugated), stored anew: torch's own transposed product is far slower."""
        order = torch.argsort(matrix.cols, stable=True)
        return _csr(matrix.cols[order].long(), matrix.rows[order], matrix.values[order], matrix.shape[::-1])

    def conj(self, matrix: CsrTensor) -> CsrTensor:
        """The complex conjugate."""
        return replace(matrix, values=matrix.values.conj_physical())

    def diagonal(self, matrix: CsrTensor) -> Array:
        """`(min(n, m),)`."""
        on = matrix.rows == matrix.cols
        zeros = matrix.values.new_zeros(min(matrix.shape))
        return zeros.index_add(0, matrix.rows[on], matrix.values[on])

    def to_dense(self, matrix: CsrTensor) -> Array:
        """`(n, m)`."""
        return matrix.values.new_zeros(matrix.shape).index_put((matrix.rows, matrix.cols.long()), matrix.values)

    def arrays(self, matrix: CsrTensor) -> tuple[Array, ...]:
        """The arrays that `to_scipy` needs."""
        return matrix.values, matrix.cols, matrix.starts

    def with_arrays(self, shape: tuple[int, int], arrays: Sequence[Array]) -> CsrTensor:
        """A matrix made of such arrays."""
        values, cols, starts = arrays
        return CsrTensor(starts, cols, values, shape)

    def to_scipy(self, matrix: CsrTensor, arrays: Sequence[np.ndarray]) -> Any:
        """The SciPy matrix, given the values of `arrays(matrix)` as NumPy arrays."""
        return sp.csr_array(tuple(arrays), tuple(matrix.shape))


def _needs_rules(x: torch.Tensor) -> bool:
    return is_transformed(x) or (may_have_derivatives() and is_tracked(x))


def _to_coo(x: torch.Tensor) -> torch.Tensor:
    """Coalesced COO; the block layouts have no direct conversion."""
    return (x if x.layout == torch.sparse_coo else _blocks_to_coo(x)).coalesce()


def _blocks_to_coo(x: torch.Tensor) -> torch.Tensor:
    by_row = x.layout == torch.sparse_bsr
    compressed, plain = (x.crow_indices(), x.col_indices()) if by_row else (x.ccol_indices(), x.row_indices())
    along = torch.repeat_interleave(torch.arange(len(compressed) - 1, device=x.device), compressed.diff())
    block_rows, block_cols = (along, plain) if by_row else (plain, along)
    _, height, width = x.values().shape
    rows = block_rows[:, None, None] * height + torch.arange(height, device=x.device)[:, None]
    cols = block_cols[:, None, None] * width + torch.arange(width, device=x.device)
    rows, cols = torch.broadcast_tensors(rows, cols)
    indices = torch.stack([rows.reshape(-1), cols.reshape(-1)])
    return torch.sparse_coo_tensor(indices, x.values().reshape(-1), x.shape, check_invariants=True).coalesce()


def _csr(rows: torch.Tensor, cols: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]) -> CsrTensor:
    """From entries in row order without duplicates."""
    counts = torch.bincount(rows, minlength=shape[0])
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    index = torch.int32 if max(*shape, len(values)) < 2**31 else torch.int64
    return CsrTensor(starts.to(index), cols.to(index), values, (int(shape[0]), int(shape[1])))
