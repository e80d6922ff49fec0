"""PyTorch's own sparse matrices, sparse tensors of every layout: reading and making them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..interface.arrays import check_count, check_range, check_rising
from ..interface.kernels import CooEntries, row_starts
from .derivatives.sparse_values import values_of
from .dtypes import numpy_dtype
from .indexing import as_index

_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class TorchSparse:
    """Sparse tensors with two axes, none of them dense, and batches of them in the layouts COO and CSR."""

    to_dense = "{}.to_dense()"  # how users call it

    def accepts(self, x: Any) -> bool:
        """Is `x` a sparse matrix of this library?"""
        return isinstance(x, torch.Tensor) and x.layout in _LAYOUTS

    def dtype(self, x: torch.Tensor) -> np.dtype:
        """NumPy dtype of the values."""
        return numpy_dtype(x.dtype)

    def check(self, x: torch.Tensor, name: str) -> None:
        """Refuse indices out of range, which PyTorch accepts without its (optional) check.

        Raises:
            ValueError: there are such.
        """
        if x.ndim == 3 and x.layout == torch.sparse_csr and not x.dense_dim():
            for i in range(len(x)):
                self.check(_of_batch(x, i), f"{name}[{i}]")
            return
        if x.ndim not in (2, 3 if x.layout == torch.sparse_coo else 2) or x.dense_dim():
            return
        if x.layout == torch.sparse_coo:
            indices = x._indices()  # of those that are not coalesced too
            check_count(len(x._values()), indices.shape[1], f"indices of {name}")
            for word, places, limit in zip(("system", "row", "column")[-x.ndim :], indices, x.shape):
                check_range(_on_host(places), int(limit), f"The {word} indices of {name}")
            return
        by_row = x.layout in (torch.sparse_csr, torch.sparse_bsr)
        starts, places = (x.crow_indices(), x.col_indices()) if by_row else (x.ccol_indices(), x.row_indices())
        block = x.values().shape[1:] if x.layout in (torch.sparse_bsr, torch.sparse_bsc) else (1, 1)
        n, m = (int(size) // int(part) for size, part in zip(x.shape, block, strict=True))
        lines, limit, word = (n, m, "column") if by_row else (m, n, "row")
        check_count(len(x.values()), len(places), f"{word} indices of {name}")
        check_rising(_on_host(starts), lines, len(places), f"The starts of {name}")
        check_range(_on_host(places), limit, f"The {word} indices of {name}")

    def entries(self, x: torch.Tensor) -> CooEntries:
        """The entries of a sparse tensor of any layout, without duplicates; they may have derivatives.

        Raises:
            ValueError: it has dense axes, or is no matrix and no batch of them in COO or CSR.
        """
        if x.ndim == 3 and not x.dense_dim() and x.layout in (torch.sparse_coo, torch.sparse_csr):
            return _batch(x)
        if x.ndim != 2 or x.dense_dim():
            raise ValueError(
                f"A sparse tensor of shape {tuple(x.shape)} with {x.dense_dim()} dense axes was given; expected a "
                "sparse matrix (n, m), or a batch of them (batch, n, m) in the layout COO or CSR."
            )
        shape = (int(x.shape[0]), int(x.shape[1]))
        if x.layout == torch.sparse_csr:
            return CooEntries(values_of(x), _expanded(x.crow_indices()), x.col_indices(), shape)
        if x.layout == torch.sparse_csc:
            return CooEntries(values_of(x), x.row_indices(), _expanded(x.ccol_indices()), shape)
        if x.layout != torch.sparse_coo:
            return _of_blocks(x)
        coo = x.coalesce()
        rows, cols = coo.indices()
        return CooEntries(values_of(coo), rows, cols, shape)

    def native(self, values: torch.Tensor, rows: Any, cols: Any, shape: tuple[int, int]) -> torch.Tensor:
        """A CSR tensor of entries in the order of rows, then columns, without duplicates.

        A batch, with repeated indices, for values `(systems, nnz)`.
        """
        starts = torch.as_tensor(row_starts(np.asarray(rows), shape[0]), device=values.device)
        columns = as_index(cols, values).to(starts.dtype)
        lead = tuple(values.shape[:-1])
        if lead:
            starts, columns = starts.repeat(*lead, 1), columns.repeat(*lead, 1)
        return torch.sparse_csr_tensor(starts, columns, values, (*lead, *shape), check_invariants=False)

    def native_by_columns(
        self, values: torch.Tensor, rows: np.ndarray, starts: np.ndarray, shape: tuple[int, int]
    ) -> torch.Tensor:
        """A CSC tensor of entries in the order of columns, then rows, without duplicates."""
        first = torch.as_tensor(starts.astype(np.int64), device=values.device)
        return torch.sparse_csc_tensor(
            first, as_index(rows, values).to(first.dtype), values, shape, check_invariants=False
        )


def _of_batch(x: torch.Tensor, i: int) -> torch.Tensor:
    """Matrix i of a batch in the layout CSR."""
    parts = (x.crow_indices()[i], x.col_indices()[i], x.values()[i])
    return torch.sparse_csr_tensor(*parts, tuple(x.shape[1:]), check_invariants=False)


def _batch(x: torch.Tensor) -> CooEntries:
    """The entries of all matrices of a batch."""
    shape = tuple(int(n) for n in x.shape)
    if x.layout == torch.sparse_coo:
        coo = x.coalesce()
        systems, rows, cols = coo.indices()
        return CooEntries(values_of(coo), rows, cols, shape, _on_host(systems))
    count = x.col_indices().shape[1]
    rows = torch.cat([_expanded(starts) for starts in x.crow_indices()]) if len(x) else x.col_indices().reshape(-1)
    systems = np.repeat(np.arange(len(x), dtype=np.int32), count)
    return CooEntries(values_of(x).reshape(-1), rows, x.col_indices().reshape(-1), shape, systems)


def _on_host(indices: torch.Tensor) -> np.ndarray:
    return indices.cpu().numpy()


def _expanded(starts: torch.Tensor) -> torch.Tensor:
    """Row indices from row pointers."""
    return torch.repeat_interleave(torch.arange(len(starts) - 1, device=starts.device), starts.diff())


def _of_blocks(x: torch.Tensor) -> CooEntries:
    """The entries of the block layouts, which have no direct conversion."""
    by_row = x.layout == torch.sparse_bsr
    compressed, plain = (x.crow_indices(), x.col_indices()) if by_row else (x.ccol_indices(), x.row_indices())
    along = torch.repeat_interleave(torch.arange(len(compressed) - 1, device=x.device), compressed.diff())
    block_rows, block_cols = (along, plain) if by_row else (plain, along)
    _, height, width = x.values().shape
    rows = block_rows[:, None, None] * height + torch.arange(height, device=x.device)[:, None]
    cols = block_cols[:, None, None] * width + torch.arange(width, device=x.device)
    rows, cols = (places.reshape(-1) for places in torch.broadcast_tensors(rows, cols))
    shape, given = (int(x.shape[0]), int(x.shape[1])), (rows, cols, tuple(x.values().shape))
    return CooEntries(values_of(x).reshape(-1), rows, cols, shape, given=given)
