"""Tensors with a derivative rule that is a function of the user."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..transformed import is_tracked, may_have_derivatives, with_signature

Rule = Callable[..., Sequence[torch.Tensor | None]]


def with_rule(
    rule: Rule, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], linear: bool = False
) -> Sequence[torch.Tensor]:
    """See `Transformations._with_rule`."""
    if not outputs or not may_have_derivatives() or not any(map(is_tracked, inputs)):
        return outputs
    found: Sequence[torch.Tensor] = _WithRule.apply(rule, len(inputs), *inputs, *outputs)
    return found


@with_signature
class _WithRule(torch.autograd.Function):
    """Identity on the last tensors, whose derivatives by the first ones are those of a rule."""

    generate_vmap_rule = True

    @staticmethod
    def forward(rule: Rule, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(x.clone() for x in tensors[count:])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.rule, ctx.count, *tensors = inputs
        # the outputs with their rule: second derivatives go through them
        ctx.save_for_backward(*tensors[: ctx.count], *output)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor) -> Any:
        saved = ctx.saved_tensors
        outputs = saved[ctx.count :]
        known = [c if _is_inexact(x) else None for c, x in zip(cotangents, outputs, strict=True)]
        return None, None, *ctx.rule(saved[: ctx.count], outputs, known), *known


def _is_inexact(x: torch.Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()
