"""PyTorch's own sparse matrices, sparse tensors of every layout: reading and making them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..interface.arrays import check_count, check_range, check_rising
from ..interface.kernels import CooEntries, row_starts
from .kernels import as_index
from .tensors import NUMPY_DTYPE, is_transformed

_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)


class TorchSparse:
    """Sparse tensors with two axes, none of them dense, and batches of them in the layouts COO and CSR."""

    to_dense = "{}.to_dense()"  # how users call it

    def accepts(self, x: Any) -> bool:
        """Is `x` a sparse matrix of this library?"""
        return isinstance(x, torch.Tensor) and x.layout in _LAYOUTS

    def dtype(self, x: torch.Tensor) -> np.dtype:
        """NumPy dtype of the values."""
        return NUMPY_DTYPE[x.dtype]

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


# --- Values of PyTorch's sparse tensors with gradients that can be differentiated again, unlike PyTorch's own ---------

Indices = tuple[torch.Tensor, ...]


def values_of(x: torch.Tensor) -> torch.Tensor:
    """`x.values()` of a sparse tensor of any layout; of COO without duplicates.

    Raises, when a derivative with `create_graph` is taken:
        RuntimeError: PyTorch keeps no further derivatives by what x was made of.
    """
    if not x.requires_grad or is_transformed(x):
        return x.values()
    values: torch.Tensor = _Values.apply(x)
    return values


class _Values(torch.autograd.Function):
    """From a sparse tensor to its values."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        plain = x.detach()
        ctx.indices, ctx.shape, ctx.layout, ctx.made_by = _indices(plain), x.shape, x.layout, x.grad_fn
        return plain.values().clone()

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        gradient = _Made.apply(cotangents[0], ctx.indices, ctx.shape, ctx.layout)
        if torch.is_grad_enabled() and gradient.requires_grad and _is_lost(ctx.made_by, gradient):
            raise RuntimeError(
                "A second derivative goes through a sparse tensor that was made of values with derivatives, which "
                "PyTorch differentiates once only: it would be zero without a word, or an error of its own. Give "
                "krylix's matrix, krylix.as_operator(pattern).with_values(values); or take the derivative without "
                "create_graph."
            )
        return gradient


class _Made(torch.autograd.Function):
    """From values to the sparse tensor of known indices."""

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, indices: Indices, shape: torch.Size, layout: torch.layout
    ) -> torch.Tensor:  # fmt: skip
        ctx.indices, ctx.shape, ctx.layout = indices, shape, layout
        return _make(values.detach(), indices, shape, layout)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        given = cotangents[0]
        if given.layout == torch.strided:
            ones = torch.ones(ctx.indices[-1].shape[-1], dtype=given.dtype, device=given.device)
            given = given.sparse_mask(_make(ones, ctx.indices, ctx.shape, ctx.layout))
        return values_of(given.coalesce() if given.layout == torch.sparse_coo else given), None, None, None


def _indices(x: torch.Tensor) -> Indices:
    if x.layout == torch.sparse_coo:
        return (x.indices(),)
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return x.crow_indices(), x.col_indices()
    return x.ccol_indices(), x.row_indices()


def _make(values: torch.Tensor, indices: Indices, shape: torch.Size, layout: torch.layout) -> torch.Tensor:
    if layout == torch.sparse_coo:
        return torch.sparse_coo_tensor(*indices, values, shape, is_coalesced=True, check_invariants=False)
    return torch.sparse_compressed_tensor(*indices, values, shape, layout=layout, check_invariants=False)


def _is_lost(node: Any, gradient: torch.Tensor) -> bool:
    """Does a node of the graph lose second derivatives?"""
    if node is None or not node.next_functions:  # a leaf
        return False
    if node.name().startswith("SparseCompressedTensor"):  # whose own derivative fails
        return True
    found = node(gradient)
    for part, (following, _) in zip(found if isinstance(found, tuple) else (found,), node.next_functions):
        if part is None or following is None:
            continue
        if not part.requires_grad or (part.layout != torch.strided and _is_lost(following, part)):
            return True
    return False
