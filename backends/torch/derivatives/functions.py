"""Derivatives of functions in PyTorch: pullbacks, rules of the user's, refusals, NaN for failed systems, of a loss."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from ...interface.functions import Differentiated
from ..tensors import is_tracked, may_have_derivatives, transforming, with_signature

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


# --- Tensors with a derivative rule that is a function of the user ----------------------------------------------------

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


# --- Identity functions with special derivatives in PyTorch: an error, or NaN for failed systems ----------------------


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


# --- The derivatives of a loss: by plain autograd, which starts in a third of the time, or by `torch.func` ------------
# The first derivative by `torch.func` also imports torch's compiler, which takes seconds.


def differentiated(function: Callable[..., tuple[torch.Tensor, Any]], arrays: Sequence[torch.Tensor]) -> Differentiated:
    """See `Transformations._differentiated`.

    What the function closes over keeps its derivatives, and the arrays theirs outside of it.
    """
    if transforming() or forward_ad._current_level >= 0 or torch.is_inference_mode_enabled():
        loss, pull, outputs = torch.func.vjp(function, *arrays, has_aux=True)
        return Differentiated(loss, outputs, pull, torch.func.vmap(pull))
    return _Recorded(function, arrays).differentiated()


class _Recorded:
    """A function's record by autograd. What does not depend on anything recorded outside leaves without its record."""

    def __init__(self, function: Callable[..., Any], arrays: Sequence[torch.Tensor]) -> None:
        self.recording = torch.is_grad_enabled()
        self.at = [a.view_as(a) if self.recording and a.requires_grad else a.detach().requires_grad_() for a in arrays]
        with torch.enable_grad():
            self.loss, self.outputs = function(*self.at)
        self.own = {id(a) for a in self.at if a.is_leaf}
        self.outside = self.recording and self._depends_on_others(self.loss)

    def differentiated(self) -> Differentiated:
        loss = self.loss if self.outside else self.loss.detach()
        outputs = [self._released(x) for x in self.outputs]
        return Differentiated(loss, outputs, self._pull, lambda cotangents: self._pull(cotangents, True))

    def _pull(self, cotangent: torch.Tensor, each: bool = False) -> list[torch.Tensor]:
        found: Sequence[torch.Tensor | None] = [None] * len(self.at)
        if self.loss.requires_grad:
            found = torch.autograd.grad(
                self.loss, self.at, cotangent, True, self.outside, allow_unused=True, is_grads_batched=each
            )
        lead = cotangent.shape[:1] if each else ()
        return [
            a.new_zeros((*lead, *a.shape)) if g is None else self._released(g) if self.outside else g
            for g, a in zip(found, self.at, strict=True)
        ]

    def _released(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.recording and x.requires_grad and self._depends_on_others(x) else x.detach()

    def _depends_on_others(self, x: torch.Tensor) -> bool:
        """Does the record of x lead to tensors other than the function's arguments?"""
        if x.grad_fn is None:
            return x.requires_grad and id(x) not in self.own
        nodes, seen = [x.grad_fn], {x.grad_fn}
        while nodes:
            node = nodes.pop()
            if hasattr(node, "variable") and id(node.variable) not in self.own:
                return True
            new = [follower for follower, _ in node.next_functions if follower is not None and follower not in seen]
            seen.update(new)
            nodes += new
        return False


def outside_compilers(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`; inside of `torch.compile` it runs between two graphs, where that cannot follow derivatives."""
    disabled: Callable[..., Any] = torch.compiler.disable(function) if torch.compiler.is_compiling() else function
    return disabled


class DerivativesOfFunctions:
    """The part of the backend about derivatives of users' functions."""

    _differentiated = staticmethod(differentiated)
    _with_rule = staticmethod(with_rule)
    _outside_compilers = staticmethod(outside_compilers)
