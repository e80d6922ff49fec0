"""Linear algebra: functions of `torch.linalg` by the standard's words; those that are missing here are its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...standard.library import check_lengths
from .manipulation import matrix_transpose

__all__ = ["matrix_transpose"]

outer = torch.outer
matmul = torch.matmul


def tensordot(x1: torch.Tensor, x2: torch.Tensor, /, *, axes: Any = 2) -> torch.Tensor:
    """Products summed over pairs of axes."""
    return torch.tensordot(x1, x2, dims=axes)


def vecdot(x1: torch.Tensor, x2: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    """The sum of conj(x1) x2 over an axis."""
    check_lengths("vecdot", x1, x2, axis)
    return torch.sum(torch.conj(x1) * x2, dim=axis, dtype=x1.dtype)


def cross(x1: torch.Tensor, x2: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    """The vector product."""
    check_lengths("linalg.cross", x1, x2, axis, 3)
    x1, x2 = torch.broadcast_tensors(x1, x2) if x1.ndim != x2.ndim else (x1, x2)
    return torch.linalg.cross(x1, x2, dim=axis)


def matrix_norm(x: torch.Tensor, /, *, keepdims: bool = False, ord: Any = "fro") -> torch.Tensor:
    """Norms of matrices."""
    return torch.linalg.matrix_norm(x, ord, keepdim=keepdims)


def vector_norm(
    x: torch.Tensor, /, *, axis: int | Sequence[int] | None = None, keepdims: bool = False, ord: Any = 2
) -> torch.Tensor:
    """Norms of vectors, over one axis, several or all."""
    if axis == ():
        return torch.abs(x) if ord != 0 else (x != 0).to(torch.abs(x).dtype)
    return torch.linalg.vector_norm(x, ord, axis, keepdims)


def solve(x1: torch.Tensor, x2: torch.Tensor, /) -> torch.Tensor:
    """Solutions; `x2` is a vector only where it has one axis. PyTorch reads some stacks of matrices as vectors."""
    if x2.ndim == 1:
        return torch.linalg.solve(x1, x2[:, None])[..., 0]
    batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2])
    return torch.linalg.solve(x1.expand(*batch, *x1.shape[-2:]), x2.expand(*batch, *x2.shape[-2:]))


def trace(x: torch.Tensor, /, *, offset: int = 0, dtype: Any = None) -> torch.Tensor:
    """The sum of a diagonal."""
    return torch.sum(torch.linalg.diagonal(x, offset=offset), dim=-1, dtype=dtype)
