"""Vector-Jacobian products: by plain autograd outside transformations, which starts in a third of the time."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..transformed import may_have_derivatives

Pullback = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]


def pullback(function: Callable[..., torch.Tensor], *at: torch.Tensor) -> Pullback:
    """The map from the cotangent of `function(*at)` to those of `at`, reusable; in torch the conjugate transpose.

    It is differentiable where derivatives may be asked for. The arrays count as independent.
    """
    if _is_watched():
        return _by_transformation(function, *at)
    with torch.enable_grad():
        leaves = [a.detach().requires_grad_() for a in at]
        image = function(*leaves)
    if not image.requires_grad:  # zeros, or the error of a function that goes through NumPy
        return _by_transformation(function, *at)

    def pulled(cotangent: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if _is_watched():  # as of a product that outlives what it was made in
            return pullback(function, *at)(cotangent)
        return torch.autograd.grad(
            image, leaves, cotangent, retain_graph=True, allow_unused=True, materialize_grads=True
        )

    return pulled


def _by_transformation(function: Callable[..., torch.Tensor], *at: torch.Tensor) -> Pullback:
    with torch.enable_grad():
        found: Pullback = torch.func.vjp(function, *at)[1]
        return found


def _is_watched() -> bool:
    """Do transformations, autograd or inference mode (in which autograd records nothing) apply?"""
    return may_have_derivatives() or torch.is_inference_mode_enabled()
