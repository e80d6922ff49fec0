"""Values of PyTorch's sparse tensors with gradients that can be differentiated again, unlike PyTorch's own."""

from __future__ import annotations

from typing import Any

import torch

from ..transformed import is_transformed

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
