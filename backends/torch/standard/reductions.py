"""Reductions over one axis, several or none (`axis=()`), and sums along an axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...standard.library import axes_of, one_axis

Axis = int | Sequence[int] | None
_Reduce = Callable[..., torch.Tensor]


def _over(function: _Reduce, x: torch.Tensor, axis: Axis, keepdims: bool, **settings: Any) -> torch.Tensor:
    """`function(x, dim=..., keepdim=...)`; PyTorch reads an empty `dim` as all axes, so then a new axis is reduced."""
    if axis is None and not keepdims and x.numel():
        return function(x, **settings)
    dim = axes_of(axis, x.ndim)
    if not dim:
        return function(x.unsqueeze(-1), dim=(x.ndim,), keepdim=False, **settings)
    return function(x, dim=dim, keepdim=keepdims, **settings)


def sum(x: torch.Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> torch.Tensor:
    """The sum."""
    if axis is None and dtype is None and not keepdims:
        return torch.sum(x)
    return _over(torch.sum, x, axis, keepdims, dtype=dtype)


def prod(x: torch.Tensor, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> torch.Tensor:
    """The product, axis by axis."""
    x = x if dtype is None else x.to(dtype)
    if axis is None and not keepdims:
        return torch.prod(x)
    for a in sorted(axes_of(axis, x.ndim), reverse=True):
        x = torch.prod(x, dim=a, keepdim=keepdims)
    return x


def max(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    """The largest element; NaN where there is one."""
    return _over(torch.amax, x, axis, keepdims)


def min(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    """The smallest element; NaN where there is one."""
    return _over(torch.amin, x, axis, keepdims)


def mean(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    """The mean."""
    return _over(torch.mean, x, axis, keepdims)


def var(x: torch.Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> torch.Tensor:
    """The sum of squared deviations, divided by their number less `correction`."""
    return _over(torch.var, x, axis, keepdims, correction=correction)


def std(x: torch.Tensor, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False) -> torch.Tensor:
    """The square root of `var`."""
    return _over(torch.std, x, axis, keepdims, correction=correction)


def any(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    """Is an element true, that is not 0?"""
    return _over(torch.any, x.to(torch.bool), axis, keepdims)


def all(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    """Are all elements true, that is not 0?"""
    return _over(torch.all, x.to(torch.bool), axis, keepdims)


def count_nonzero(x: torch.Tensor, /, *, axis: Axis = None, keepdims: bool = False) -> torch.Tensor:
    """How many elements are not 0?"""
    return sum(x != 0, axis=axis, keepdims=keepdims, dtype=torch.int64)


def _along(name: str, function: _Reduce, first: int) -> Callable[..., torch.Tensor]:
    """A cumulative function; `include_initial` puts its value for no elements in front."""

    def cumulative(
        x: torch.Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> torch.Tensor:
        axis = one_axis(cumulative.__name__, x, axis)
        found = function(x, dim=axis, dtype=dtype)
        if not include_initial:
            return found
        shape = list(found.shape)
        shape[axis] = 1
        return torch.cat([found.new_full(shape, first), found], dim=axis)

    cumulative.__name__ = name
    return cumulative


cumulative_sum = _along("cumulative_sum", torch.cumsum, 0)
cumulative_prod = _along("cumulative_prod", torch.cumprod, 1)
