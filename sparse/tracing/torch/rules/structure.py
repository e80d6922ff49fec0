"""Rules for operations that move elements. Views are not among them: they are places in memory.

The elements 3 and 1 of 4, and one element put at position 2:

>>> import numpy as np
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u = identity(get_backend("torch"), (4,), float)
>>> STRUCTURE["index"](None, u, [np.array([3, 1])]).terms
(Box(lo=(0,), shape=(2,), offset=3, strides=(-2,), factor=1, values=None, mask=None),)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...engine import coefficients as co
from ...engine import storage
from ...engine.arithmetic import scale
from ...engine.indexing import Labels, along, numbers, pad_by_mode, pad_by_mode_adjoint, replace_at, roll
from ...engine.linear import Linear, linear_among, reshape
from ...engine.operands import NotLinear, reshaped, shape_of, spread, static, static_needed, triangle, where
from ...engine.positions import scatter_add, take
from ...engine.storage import View
from ...engine.structural import concatenate, pad, reverse, stack, tile
from ...interpreter import mapped
from ..recorder import Step
from .arithmetic import by_first, times


def _where(step: Step, condition: Any, a: Any, b: Any) -> Any:
    cases = [np.asarray(case) if co.known(case) else case for case in (a, b)]
    return where(np.asarray(condition, bool) if co.known(condition) else condition, *cases)


def _widths(x: Linear, widths: Sequence[int]) -> list[tuple[int, int]]:
    """Before and after along each axis; torch begins with the last one."""
    pairs = [(int(lo), int(hi)) for lo, hi in zip(widths[::2], widths[1::2])]
    return [(0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]


def _pad_by(mode: str) -> Callable[..., Any]:
    return lambda step, x, widths: pad_by_mode(x, _widths(x, widths), mode)


def _pad_by_adjoint(mode: str) -> Callable[..., Any]:
    return by_first(lambda step, x, like, widths: pad_by_mode_adjoint(x, _widths(x, widths), mode))


def _concatenate(step: Step, parts: Sequence[Any], dim: int = 0) -> Any:
    ndim = len(step.shape)
    kept = [part for part in parts if len(part.shape) == ndim]  # an old exception: tensors of shape (0,) do not count
    return concatenate(kept, dim % ndim)


def _repeat(step: Step, x: Linear, repeats: Sequence[int]) -> Any:
    x = reshape(x, (*[1] * (len(repeats) - x.ndim), *x.shape))
    return tile(x, [int(n) for n in repeats])


# --- elements at known positions --------------------------------------------------------------------------------------


def put(x: Any, where: np.ndarray, source: Any, *, accumulate: bool = False) -> Any:
    """`x` with elements at flat positions replaced, or with more added to them."""
    source = np.asarray(source) if co.known(source) else source
    if not accumulate:
        return replace_at(x, where, source)
    return scatter_add(x, where, spread(linear_among([x, source], "put").bk, source, where.shape))


# --- x[...] -----------------------------------------------------------------------------------------------------------


def _positions(shape: Sequence[int], indices: Sequence[Any]) -> np.ndarray:
    found = [slice(None) if index is None else _known_index(index) for index in indices]
    return numbers(shape)[tuple(found)]


def _known_index(index: Any) -> np.ndarray:
    index = static("index", index)
    return index.astype(bool) if index.dtype == np.uint8 else index


def _index(step: Step, x: Any, indices: Sequence[Any]) -> Any:
    if not isinstance(x, Linear):
        linear = [index for index in indices if isinstance(index, Linear)]
        raise static_needed("index", linear[0])
    return take(x, _positions(x.shape, indices))


def _index_put(
    step: Step, x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False, unsafe: bool = False
) -> Any:
    return put(x, _positions(shape_of(x), indices), values, accumulate=accumulate)


def _flat_index(x: Any, index: Any) -> np.ndarray:
    index, size = static("index", index), math.prod(shape_of(x))
    return np.where(index < 0, index + size, index)


def _put(step: Step, x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    return put(x, _flat_index(x, index), source, accumulate=accumulate)


def _masked_select(step: Step, x: Linear, mask: Any) -> Any:
    mask = static("mask", mask)
    shape = np.broadcast_shapes(x.shape, mask.shape)
    return take(x, np.broadcast_to(numbers(x.shape), shape)[np.broadcast_to(mask, shape)])


def _masked_scatter(step: Step, x: Any, mask: Any, source: Any) -> Any:
    where = np.flatnonzero(np.broadcast_to(static("mask", mask), step.shape))
    example = linear_among([x, source], "masked_scatter")
    source = take(source, np.arange(len(where))) if isinstance(source, Linear) else source.reshape(-1)[: len(where)]
    return put(spread(example.bk, x, step.shape), where, source)


# --- along one axis ---------------------------------------------------------------------------------------------------


def _rows(shape: Sequence[int], dim: int, index: Any) -> np.ndarray:
    """Positions of slices along an axis."""
    index = np.atleast_1d(static("index", index))
    return np.take(numbers(shape), index, dim) if shape else np.zeros(index.shape, np.int64)


def _index_select(step: Step, x: Any, dim: int, index: Any) -> Any:
    if not isinstance(x, Linear):
        raise static_needed("index", index)
    if x.ndim:
        return along(x, dim, np.atleast_1d(static("index", index)))
    return take(x, _rows(x.shape, dim, index).reshape(step.shape))


def _index_add(step: Step, x: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    where = _rows(shape_of(x), dim, index)
    return put(x, where.reshape(shape_of(source)), times(alpha, source), accumulate=True)


def _index_copy(step: Step, x: Any, dim: int, index: Any, source: Any) -> Any:
    return put(x, _rows(shape_of(x), dim, index).reshape(shape_of(source)), source)


def _picked(shape: Sequence[int], dim: int, index: Any) -> np.ndarray:
    """Positions that `gather` reads."""
    index = static("index", index)
    if not shape:
        return np.zeros(index.shape, np.int64)
    where = list(np.indices(index.shape, sparse=True))
    if not index.ndim:
        return numbers(shape).reshape(-1)[index]
    where[dim] = index
    return numbers(shape)[tuple(where)]


def _gather(step: Step, x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    if not isinstance(x, Linear):
        raise static_needed("index", index)
    return take(x, _picked(x.shape, dim, index))


def _scatter(step: Step, x: Any, dim: int, index: Any, source: Any, *, reduce: str | None = None) -> Any:
    if reduce == "multiply":
        return _scatter_multiply(step, x, dim, index, source)
    where = _picked(shape_of(x), dim, index)
    return put(x, where, _corner(source, where.shape), accumulate=reduce == "add")


def _corner(source: Any, shape: Sequence[int]) -> Any:
    """The part of a source that an index of this shape uses."""
    if not shape_of(source) or shape_of(source) == tuple(shape):
        return source
    part = tuple(slice(0, n) for n in shape)
    return take(source, numbers(source.shape)[part]) if isinstance(source, Linear) else source[part]


def _scatter_multiply(step: Step, x: Any, dim: int, index: Any, source: Any) -> Any:
    if not co.known(source):
        raise NotLinear("the factors depend on it, or have derivatives")
    factors = np.ones(shape_of(x))
    where = _picked(shape_of(x), dim, index)
    np.multiply.at(factors.reshape(-1), where, np.broadcast_to(_corner(source, where.shape), where.shape))
    return scale(x, factors)


def _scatter_reduce(
    step: Step, x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    if reduce not in ("sum", "mean"):
        raise NotLinear(f"of reduce='{reduce}'")
    where = _picked(shape_of(x), dim, index)
    if not include_self:
        x = put(x, np.unique(where), 0.0) if isinstance(x, Linear) else _zeroed(x, where)
    total = put(x, where, _corner(source, where.shape), accumulate=True)
    if reduce == "sum":
        return total
    counts = np.bincount(where.reshape(-1), minlength=total.size).reshape(total.shape) + (1 if include_self else 0)
    return scale(total, 1 / np.maximum(counts, 1))


def _zeroed(x: Any, where: np.ndarray) -> Any:
    kept = np.ones(shape_of(x))
    kept.reshape(-1)[where.reshape(-1)] = 0
    return x * kept if co.known(x) else x * torch.as_tensor(kept, dtype=x.dtype, device=x.device)


# --- parts and their derivatives --------------------------------------------------------------------------------------


def _view(view: Callable[..., torch.Tensor], shape: Sequence[int], *args: Any, **kwargs: Any) -> View:
    part = view(torch.empty(tuple(shape), device="meta"), *args, **kwargs)
    return View(tuple(part.shape), part.stride(), int(part.storage_offset()))


def _part_of(view: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """`view_scatter(x, source, ...)`: x with a part of it replaced."""

    def rule(step: Step, x: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
        bk = linear_among([x, source], "scatter").bk
        found = storage.replace(bk, x, _view(view, shape_of(x), *args, **kwargs), source)
        return reshaped(bk, found, shape_of(x))

    return rule


def _back(view: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """`view_backward(gradient, shape, ...)`: zeros with the gradient added to a part."""

    def rule(step: Step, x: Linear, shape: Sequence[int], *args: Any) -> Any:
        zeros = np.zeros(tuple(shape), x.dtype)
        return reshape(storage.accumulate(x.bk, zeros, _view(view, shape, *args), x), shape)

    return rule


def moved(step: Step, *args: Any, **kwargs: Any) -> Any:
    """Any operator that gives each element one of its operands' or zero: by what it does to numbers of them."""
    labels = Labels()

    def labelled(value: Any) -> Any:
        if isinstance(value, (Linear, torch.Tensor)) or (isinstance(value, np.ndarray) and value.dtype.kind in "fc"):
            return torch.from_numpy(labels.of(value).astype(np.float64))
        return torch.from_numpy(np.array(value)) if isinstance(value, np.ndarray) else value

    return labels.result(step.function(*mapped(labelled, args), **kwargs).numpy())


_MOVES = (
    *("rot90", "diag_embed", "block_diag", "pixel_shuffle", "pixel_unshuffle", "channel_shuffle", "im2col"),
    *("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d"),
    *("_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d"),
    *("expand_copy", "diagonal_copy", "narrow_copy", "permute_copy", "unfold_copy", "squeeze_copy", "unsqueeze_copy"),
    *("transpose_copy", "t_copy", "select_copy", "slice_copy"),
)

_slice, _select = torch.ops.aten.slice.Tensor, torch.ops.aten.select.int
_diagonal, _strided = torch.ops.aten.diagonal.default, torch.ops.aten.as_strided.default
_unfold = torch.ops.aten.unfold.default

STRUCTURE: dict[str, Callable[..., Any]] = {
    "where": _where,
    "masked_fill": lambda step, x, mask, value: _where(step, static("mask", mask), value, x),
    "tril": lambda step, x, diagonal=0: triangle(x, np.tril, diagonal),
    "triu": lambda step, x, diagonal=0: triangle(x, np.triu, diagonal),
    "constant_pad_nd": lambda step, x, widths, value=0: pad(x, [(lo, hi, 0) for lo, hi in _widths(x, widths)], value),
    **{f"replication_pad{d}d": _pad_by("edge") for d in (1, 2, 3)},
    **{f"reflection_pad{d}d": _pad_by("reflect") for d in (1, 2, 3)},
    **{f"replication_pad{d}d_backward": _pad_by_adjoint("edge") for d in (1, 2, 3)},
    **{f"reflection_pad{d}d_backward": _pad_by_adjoint("reflect") for d in (1, 2, 3)},
    "roll": lambda step, x, shifts, dims=(): roll(x, shifts, None if isinstance(dims, Sequence) and not dims else dims),
    "flip": lambda step, x, dims: reverse(x, [d % x.ndim for d in dims]),
    "cat": _concatenate,
    "stack": lambda step, parts, dim=0: stack(parts, dim % len(step.shape)),
    "repeat": _repeat,
    "index": _index,
    "_unsafe_index": _index,
    "index_put": _index_put,
    "_index_put_impl": _index_put,
    "_unsafe_index_put": _index_put,
    "take": lambda step, x, index: take(x, _flat_index(x, index)),
    "put": _put,
    "masked_select": _masked_select,
    "masked_scatter": _masked_scatter,
    "embedding": lambda step, weight, indices, *args: take(weight, numbers(weight.shape)[static("index", indices)]),
    "index_select": _index_select,
    "index_add": _index_add,
    "index_copy": _index_copy,
    "index_fill": lambda step, x, dim, index, value: put(x, np.unique(_rows(shape_of(x), dim, index)), value),
    "gather": _gather,
    "scatter": _scatter,
    "scatter_add": lambda step, x, dim, index, source: _scatter(step, x, dim, index, source, reduce="add"),
    "scatter_reduce": _scatter_reduce,
    "slice_scatter": _part_of(_slice),
    "select_scatter": _part_of(_select),
    "diagonal_scatter": _part_of(_diagonal),
    "as_strided_scatter": _part_of(_strided),
    "slice_backward": _back(_slice),
    "select_backward": _back(_select),
    "diagonal_backward": _back(_diagonal),
    "unfold_backward": _back(_unfold),
    **dict.fromkeys(_MOVES, moved),
}
