"""Bilinear maps in PyTorch: one autograd function, whose derivatives are the same function with other arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.autograd import forward_ad

from ...compilers import without_compilers
from ...interface.kernels import PRODUCT, SAMPLE, TRANSPOSED, Arrays, Bilinear, evaluate_bilinear, transposed_arguments
from ..kernels import as_index
from ..tensors import is_tracked, is_transformed, may_have_derivatives, with_signature


@dataclass(frozen=True)
class _Map:
    """Which of the three maps of a form, and how its operands (indices, a, b) are laid out.

    `mapped` has an element for each enclosing vmap that could not be made part of the batch: for each index array,
    whether it has an axis for it. All other tensors have these axes in front, that of the outermost map first.
    """

    bk: Any
    form: Bilinear
    kind: str
    sizes: tuple[int, int, int]
    mapped: tuple[tuple[bool, ...], ...] = ()

    def split(self, operands: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
        """Indices, first and second argument."""
        i, a = self.sizes[0], self.sizes[0] + self.sizes[1]
        return tuple(operands[:i]), tuple(operands[i:a]), tuple(operands[a:])

    def __call__(self, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Evaluate without derivative rules."""

        def single(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return evaluate_bilinear(self.bk, self.form, self.kind, *self.split(operands))

        function: Callable[..., tuple[torch.Tensor, ...]] = single
        for level in self.mapped:
            axes = tuple(0 if own else None for own in level) + (0,) * (self.sizes[1] + self.sizes[2])
            function = torch.func.vmap(function, axes)
        return function(*operands)

    def apply(self, indices: Arrays, a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        """Evaluate with derivative rules, for other arguments."""
        own = replace(self, sizes=(len(indices), len(a), len(b)))
        result: tuple[torch.Tensor, ...] = _Apply.apply(own, *indices, *a, *b)
        return result


def bilinear(
    bk: Any, form: Bilinear, values: Arrays, indices: Arrays, x: torch.Tensor, transposed: bool = False
) -> Any:
    """`form.product` or its transpose, with derivatives where somebody may ask for them."""
    return without_compilers(_bilinear)(bk, form, values, indices, x, transposed)


def _bilinear(bk: Any, form: Bilinear, values: Arrays, indices: Arrays, x: torch.Tensor, transposed: bool) -> Any:
    which = _Map(bk, form, TRANSPOSED if transposed else PRODUCT, (len(indices), len(values), 1))
    indices = tuple(as_index(i, x) for i in indices)
    operands = (*indices, *values, x)
    if may_have_derivatives() and any(is_transformed(o) or is_tracked(o) for o in operands):
        return which.apply(indices, values, (x,))[0]
    return which(*operands)[0]


@with_signature
class _Apply(torch.autograd.Function):
    """(map, *operands) -> its results."""

    @staticmethod
    def forward(which: _Map, *operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return which(*operands)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[torch.Tensor, ...]) -> None:
        ctx.which = inputs[0]
        ctx.shapes = [(o.shape, o.dtype, o.device) for o in output]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[1:])
        ctx.save_for_forward(*inputs[1:])

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:
        """Vector-Jacobian products: the transposed maps at the conjugated arguments."""
        which: _Map = ctx.which
        nothing: tuple[Any, ...] = (None,) * (1 + sum(which.sizes))
        if all(c is None for c in cotangents):
            return nothing
        c = [
            torch.zeros(shape, dtype=dtype, device=device) if c is None else c
            for c, (shape, dtype, device) in zip(cotangents, ctx.shapes, strict=True)
        ]
        indices, *arguments = which.split(ctx.saved_tensors)
        wanted = which.split(ctx.needs_input_grad[1:])[1:]
        found: list[Any] = [None] * (1 + len(indices))
        conj = [tuple(map(torch.conj_physical, argument)) for argument in arguments]
        for by in (0, 1):
            if not any(wanted[by]):
                found += [None] * len(wanted[by])
                continue
            kind, first, second = transposed_arguments(which.kind, by, conj[0], conj[1], c)
            pulled = replace(which, kind=kind).apply(indices, first, second)
            found += [p if w else None for p, w in zip(pulled, wanted[by], strict=True)]
        return tuple(found)

    @staticmethod
    def jvp(ctx: Any, _: Any, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        """Jacobian-vector product: the map at one tangent and one argument, for both."""
        which: _Map = ctx.which
        # Without these two, PyTorch is silently wrong where forward mode is nested in forward mode.
        with forward_ad._set_fwd_grad_enabled(True):
            saved = [forward_ad.unpack_dual(t).primal for t in ctx.saved_tensors]
            indices, a, b = which.split(saved)
            _, da, db = which.split(tangents)
            pushed = []
            if any(t is not None for t in da):
                pushed.append(which.apply(indices, _full(da, a), b))
            if any(t is not None for t in db):
                pushed.append(which.apply(indices, a, _full(db, b)))
            if not pushed:
                return (None,) * len(ctx.shapes)
            return pushed[0] if len(pushed) == 1 else tuple(p + q for p, q in zip(*pushed, strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: Sequence[Any], which: _Map, *operands: torch.Tensor) -> Any:
        """Extend the batch where only the vector is mapped; else add a level to `mapped`."""
        size = info.batch_size
        indices, a, b = which.split(operands)
        index_axes, a_axes, b_axes = which.split(in_dims[1:])
        if which.kind != SAMPLE and not which.form.each and all(axis is None for axis in (*index_axes, *a_axes)):
            depth = len(which.mapped)
            x = b[0].movedim(b_axes[0], depth)
            (image,) = which.apply(indices, a, (x.flatten(depth, depth + 1),))
            return (image.unflatten(depth, (size, -1)),), (depth,)
        level = tuple(axis is not None for axis in index_axes)
        moved = (i if axis is None else i.movedim(axis, 0) for i, axis in zip(indices, index_axes, strict=True))
        first = [_in_front(v, axis, size) for v, axis in zip(a, a_axes, strict=True)]
        second = [_in_front(v, axis, size) for v, axis in zip(b, b_axes, strict=True)]
        found = replace(which, mapped=(*which.mapped, level)).apply(tuple(moved), first, second)
        return found, (0,) * len(found)


def _full(tangents: Sequence[Any], primals: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.zeros_like(p) if t is None else t for t, p in zip(tangents, primals, strict=True)]


def _in_front(x: torch.Tensor, axis: int | None, size: int) -> torch.Tensor:
    return x.expand(size, *x.shape) if axis is None else x.movedim(axis, 0)
