"""Identity functions with special derivatives in PyTorch: an error, or NaN for failed systems."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import forward_ad


class Refused(torch.autograd.Function):
    """Identity whose derivative by x, or by the stand-ins of its sources, raises."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, marker: torch.Tensor | None, error: Exception) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.error = inputs[2]

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        raise ctx.error

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise ctx.error


class WithoutDerivatives(torch.autograd.Function):
    """Identity on rows x; see `Transformations.without_derivatives`."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, failed: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.save_for_forward(inputs[1])

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> Any:
        return _spoiled(cotangent, *ctx.saved_tensors), None

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, _: Any) -> torch.Tensor:
        with forward_ad._set_fwd_grad_enabled(True):  # as for the solve itself, for forward mode in forward mode
            return _spoiled(tangent, *ctx.saved_tensors)


def _spoiled(rows: torch.Tensor, failed: torch.Tensor) -> torch.Tensor:
    changes = failed & (rows != 0).any(1, keepdim=True)
    return rows * torch.where(changes, torch.nan, 1.0).to(rows.dtype)
