"""Products with PyTorch sparse tensors, as CSR with int32 indices where they fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from .base import Array
from .torch_dtypes import TORCH_DTYPE, numpy_dtype

_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class TorchSparse:
    """A matrix here is a CSR tensor."""

    def accepts(self, x: Any) -> bool:
        """Is `x` a sparse matrix of this library?"""
        return isinstance(x, torch.Tensor) and x.layout in _LAYOUTS

    def read(self, x: torch.Tensor, dtype: np.dtype | None = None, like: Array | None = None) -> torch.Tensor:
        """A sparse tensor of any layout (two axes, no dense ones) as CSR."""
        if x.ndim != 2 or x.dense_dim():
            raise ValueError(
                f"A sparse tensor of shape {tuple(x.shape)} with {x.dense_dim()} dense axes was given; expected a "
                "plain sparse matrix. For a batch of matrices use a dense (batch, n, n) tensor or a function."
            )
        coo = _to_coo(x)
        (rows, cols), values = coo.indices(), coo.values()
        return _csr(rows, cols, values if dtype is None else values.to(TORCH_DTYPE[dtype]), tuple(x.shape))

    def from_scipy(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> torch.Tensor:
        """A SciPy sparse matrix as CSR on `like`'s device."""
        csr = sp.csr_array(x, copy=True)
        csr.sum_duplicates()
        coo = csr.tocoo()
        device = like.device if like is not None else None
        rows, cols = (torch.as_tensor(i.astype(np.int64), device=device) for i in (coo.row, coo.col))
        values = torch.as_tensor(np.asarray(coo.data, dtype), device=device)
        return _csr(rows, cols, values, tuple(x.shape))

    def dtype(self, matrix: torch.Tensor) -> np.dtype:
        """NumPy dtype of the values."""
        return numpy_dtype(matrix.dtype)

    def recast(self, matrix: torch.Tensor, dtype: np.dtype) -> torch.Tensor:
        """The same matrix with values of another dtype."""
        return matrix.to(TORCH_DTYPE[np.dtype(dtype)])

    def product(self, matrix: torch.Tensor, x: Array) -> Array:
        """`(n, m)` times each row of `(batch, m)` -> `(batch, n)`."""
        return (matrix @ x[0])[None] if x.shape[0] == 1 else (matrix @ x.T).T

    def transpose(self, matrix: torch.Tensor) -> torch.Tensor:
        """The transposed matrix (not conjugated), stored anew: torch's own transposed product is far slower."""
        coo = _to_coo(matrix)
        order = torch.argsort(coo.indices()[1], stable=True)
        cols, rows = coo.indices()[:, order]
        return _csr(rows, cols, coo.values()[order], tuple(matrix.shape[::-1]))

    def conj(self, matrix: torch.Tensor) -> torch.Tensor:
        """The complex conjugate."""
        return _from_parts(
            matrix.crow_indices(), matrix.col_indices(), matrix.values().conj_physical(), tuple(matrix.shape)
        )

    def diagonal(self, matrix: torch.Tensor) -> Array:
        """`(min(n, m),)`."""
        coo = _to_coo(matrix)
        rows, cols = coo.indices()
        on = rows == cols
        return torch.zeros(min(matrix.shape), dtype=matrix.dtype, device=matrix.device).index_add(
            0, rows[on], coo.values()[on]
        )

    def to_dense(self, matrix: torch.Tensor) -> Array:
        """`(n, m)`."""
        return matrix.to_dense()

    def arrays(self, matrix: torch.Tensor) -> tuple[Array, ...]:
        """The arrays that `to_scipy` needs."""
        return matrix.values(), matrix.col_indices(), matrix.crow_indices()

    def to_scipy(self, matrix: torch.Tensor, arrays: Sequence[np.ndarray]) -> Any:
        """The SciPy matrix, given the values of `arrays(matrix)` as NumPy arrays."""
        return sp.csr_array(tuple(arrays), tuple(matrix.shape))


def _to_coo(x: torch.Tensor) -> torch.Tensor:
    """Coalesced COO; the block layouts have no direct conversion."""
    if x.layout in (torch.sparse_bsr, torch.sparse_bsc):
        return _blocks_to_coo(x)
    return (x if x.layout == torch.sparse_coo else x.to_sparse_coo()).coalesce()


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


def _csr(rows: torch.Tensor, cols: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    """CSR from entries in row order without duplicates."""
    counts = torch.bincount(rows, minlength=shape[0])
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    index = torch.int32 if max(*shape, len(values)) < 2**31 else torch.int64
    return _from_parts(starts.to(index), cols.to(index), values, shape)


def _from_parts(starts: torch.Tensor, cols: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    return torch.sparse_csr_tensor(starts, cols, values, shape, check_invariants=False)
