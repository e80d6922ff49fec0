"""What PyTorch adds to tracing: its functions as linear maps, their values for a known input, their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten

from ...errors import UnsupportedOperation
from ..engine.coefficients import largest
from ..front_end import FrontEnd, Linearised, sample_of_all
from ..traced import Traced
from .trace import trace_function

_NO_FORWARD = "torch has no forward derivative of this function"


class TorchFrontEnd:
    """Functions of torch are recorded as ATen calls, which are followed one by one."""

    def trace(
        self, function: Callable[..., Any], like: Any, args: Sequence[Any], kwargs: Mapping[str, Any], keep_zeros: bool
    ) -> Traced:
        return trace_function(function, like, args, kwargs, keep_zeros)

    def evaluate(self, traced: Traced, leaves: Sequence[np.ndarray], watch: bool = False) -> tuple[list[Any], float]:
        """By the function itself, of other numbers than those that it was recorded with."""
        if not watch:
            return traced.program(leaves), 0.0
        with _Largest() as seen:
            return traced.program(leaves), seen.value

    def sample(
        self, traced: Traced, inputs: Callable[[int, np.ndarray | None], np.ndarray], wanted: Sequence[np.ndarray]
    ) -> list[np.ndarray] | None:
        return sample_of_all(self, traced, inputs, wanted)

    def forward_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        x = tree_map(_array, x)

        def derivative(tangent: Any) -> Any:
            try:
                return torch.func.jvp(lambda y: f(y, *args, **kwargs), (x,), (tangent,))[1]
            except (RuntimeError, NotImplementedError) as error:
                raise UnsupportedOperation(f"{_NO_FORWARD}: {error}") from error

        return derivative, x

    def reverse_derivative(
        self, f: Callable[..., Any], x: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> Linearised:
        leaves, structure = tree_flatten(tree_map(_array, x))

        def derivative(cotangent: Any) -> Any:
            own = [leaf.detach().requires_grad_() for leaf in leaves]
            image = tree_leaves(f(tree_unflatten(own, structure), *args, **kwargs))
            # torch's cotangents are conjugated
            given = [c.conj() for c in tree_leaves(cotangent)]
            found = torch.autograd.grad(image, own, given, create_graph=True, allow_unused=True)
            both = zip(leaves, found)
            return tree_unflatten([torch.zeros_like(x) if g is None else g.conj() for x, g in both], structure)

        return derivative, f(tree_unflatten(leaves, structure), *args, **kwargs)

    def has_only_reverse_rule(self, error: Exception) -> bool:
        """Did it fail at an `autograd.Function`, or an operator, without a forward derivative?"""
        return _NO_FORWARD in str(error)


class _Largest(TorchDispatchMode):
    """The largest number that came up."""

    value = 0.0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, (list, tuple)) else [out]:
            if isinstance(x, torch.Tensor) and x.layout == torch.strided and x.device.type != "meta":
                self.value = max(self.value, _size(x.detach()))
        return out


def _size(x: torch.Tensor) -> float:
    if not (x.is_floating_point() or x.is_complex()) or x._is_zerotensor():
        return 0.0
    return largest(x.resolve_conj().resolve_neg().cpu().numpy())


def _array(leaf: Any) -> torch.Tensor:
    array = leaf if isinstance(leaf, torch.Tensor) else torch.as_tensor(np.asarray(leaf))
    if not (array.is_floating_point() or array.is_complex()):
        raise TypeError(f"x has the dtype {array.dtype}; expected a floating or complex one. Give x.double().")
    return array


FRONT_END: FrontEnd = TorchFrontEnd()
