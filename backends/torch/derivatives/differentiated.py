"""The derivatives of a loss in PyTorch: by plain autograd, which starts in a third of the time, or by `torch.func`.

The first derivative by `torch.func` also imports torch's compiler, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from ...interface.transformations import Differentiated
from ..transformed import transforming
from .with_rule import with_rule


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
