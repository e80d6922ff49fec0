"""Implicit differentiation of a solve in PyTorch: an autograd function whose rules solve again, to every order.

For batched cotangents, `grad(..., is_grads_batched=True)` and `jacobian(..., vectorize=True)`, autograd maps over rules
with a batching of its own, older than `torch.func.vmap`, which knows no rules of custom functions. A rule that meets
such a batch takes it apart and is mapped by `torch.func.vmap`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any

import torch
from torch._C import _functorch  # not public, as the next functions of torch; a test pins them
from torch.autograd import forward_ad

from ...compilers import without_autocast
from ...interface.functions import LinearSystem
from ..tensors import with_signature
from .functions import pullback


def implicit_solve(system: LinearSystem, b: torch.Tensor) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
    """`system.solve(b)` with derivatives with respect to `b` and those `system.arrays` that have some."""
    x, *rest = _Solve.apply(system, b, *system.arrays)
    return x, tuple(rest)


@with_signature
class _Solve(torch.autograd.Function):
    """x(b, arrays) with A x = b; the other outputs have no derivatives."""

    @staticmethod
    def forward(system: LinearSystem, b: torch.Tensor, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, rest = system.with_arrays(arrays).solve(b)
        return (x, *rest)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.system = inputs[0]
        x, *rest = output
        ctx.mark_non_differentiable(*rest)
        ctx.save_for_backward(x, *inputs[2:])
        ctx.save_for_forward(x, *inputs[2:])

    @staticmethod
    @without_autocast
    def backward(ctx: Any, cotangent: torch.Tensor, *_: Any) -> tuple[Any, ...]:
        """A^H y = cotangent; y for b, and - y^H dA x for the entries of A."""
        if is_batch_of_autograd(cotangent):
            return one_by_one(lambda c: _Solve.backward(ctx, c), cotangent)
        x, *arrays = ctx.saved_tensors
        system: LinearSystem = ctx.system.with_arrays(arrays)
        y = torch.conj_physical(_Solve.apply(system.transpose(), torch.conj_physical(cotangent), *arrays)[0])
        has_derivative, wanted = system.differentiable, ctx.needs_input_grad[2:]
        if not any(compress(wanted, has_derivative)):
            return (None, y, *(None for _ in arrays))
        found = iter(pullback(_product(system, x), *system.entries())(y))
        gradients = [next(found) if has else None for has in has_derivative]
        return (None, y, *(-g if g is not None and asked else None for g, asked in zip(gradients, wanted, strict=True)))

    @staticmethod
    @without_autocast
    def jvp(ctx: Any, _: Any, tangent: Any, *tangents: Any) -> tuple[Any, ...]:
        """A dx = db - dA x."""
        # Without these two, PyTorch is silently wrong where forward mode is nested in forward mode.
        with forward_ad._set_fwd_grad_enabled(True):
            x, *arrays = (forward_ad.unpack_dual(t).primal for t in ctx.saved_tensors)
            system: LinearSystem = ctx.system.with_arrays(arrays)
            b = torch.zeros_like(x) if tangent is None else tangent
            given = list(compress(tangents, system.differentiable))
            if any(t is not None for t in given):
                entries = system.entries()
                full = [torch.zeros_like(a) if t is None else t for a, t in zip(entries, given, strict=True)]
                b = b - _pushforward(_product(system, x), entries, full)
            found, *rest = _Solve.apply(system.tangent(), b, *arrays)
        return (found, *(None for _ in rest))

    @staticmethod
    @without_autocast
    def vmap(info: Any, in_dims: Sequence[Any], system: LinearSystem, b: torch.Tensor, *arrays: torch.Tensor) -> Any:
        """One solve of the whole batch, with the systems of the first element in front."""
        size = info.batch_size
        rows = b.expand(size, *b.shape) if in_dims[1] is None else b.movedim(in_dims[1], 0)
        axes = in_dims[2:]
        moved = [a if axis is None else a.movedim(axis, 0) for a, axis in zip(arrays, axes, strict=True)]
        mapped = system.mapped(size, [None if axis is None else 0 for axis in axes])
        outputs = _Solve.apply(mapped, rows.reshape(-1, rows.shape[-1]), *moved)
        return tuple(o.reshape(size, -1, *o.shape[1:]) for o in outputs), (0,) * len(outputs)


def _product(system: LinearSystem, x: torch.Tensor) -> Callable[..., torch.Tensor]:
    """The map from the entries of A to A x."""
    return lambda *entries: system.with_entries(entries).product(x)


def _pushforward(
    function: Callable[..., torch.Tensor], at: Sequence[torch.Tensor], tangents: Sequence[torch.Tensor]
) -> torch.Tensor:
    """The directional derivative as the transpose of the transpose: PyTorch does not nest forward mode."""
    y, pullback = torch.func.vjp(function, *at)
    _, twice = torch.func.vjp(pullback, torch.zeros_like(y))
    result: torch.Tensor = twice(tuple(tangents))[0]
    return result


def is_batch_of_autograd(x: Any) -> bool:
    """Is it a batched tensor of autograd's own kind?"""
    return isinstance(x, torch.Tensor) and _functorch.is_legacy_batchedtensor(x)


def one_by_one(rule: Callable[[torch.Tensor], tuple[Any, ...]], cotangents: torch.Tensor) -> tuple[Any, ...]:
    """Map `rule` over such a batch of cotangents; the same entries are None for each."""
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    places: list[bool] = []

    def present(cotangent: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results = rule(cotangent)
        places[:] = [r is not None for r in results]
        return tuple(r for r in results if r is not None)

    rows = torch._remove_batch_dim(cotangents, level, 1, 0)
    found = iter(torch._add_batch_dim(r, 0, level) for r in torch.func.vmap(present)(rows))
    return tuple(next(found) if is_there else None for is_there in places)
