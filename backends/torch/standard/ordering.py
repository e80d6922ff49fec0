"""Sorting, searching and sets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...standard.promotion import UniqueAll, parts_of


def sort(x: torch.Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> torch.Tensor:
    """The elements in order along an axis."""
    return torch.sort(x, dim=axis, descending=descending, stable=True).values


def argsort(x: torch.Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> torch.Tensor:
    """The places of the elements in order."""
    return torch.sort(x, dim=axis, descending=descending, stable=True).indices


def _place_of(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def place(x: torch.Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> torch.Tensor:
        x = x.to(torch.uint8) if x.dtype == torch.bool else x
        found = function(x, dim=axis, keepdim=keepdims and axis is not None)
        return found.reshape((1,) * x.ndim) if keepdims and axis is None else found

    place.__name__ = function.__name__
    return place


argmax, argmin = _place_of(torch.argmax), _place_of(torch.argmin)


def nonzero(x: torch.Tensor, /) -> tuple[torch.Tensor, ...]:
    """The places of the elements that are not 0, an array for each axis."""
    if x.ndim == 0:
        raise ValueError("xp.nonzero got an array without axes; expected one with places to name.")
    return torch.nonzero(x, as_tuple=True)


def searchsorted(x1: torch.Tensor, x2: torch.Tensor, /, *, side: str = "left", sorter: Any = None) -> torch.Tensor:
    """Where elements would have to be put into a sorted array; NaN is larger than all numbers."""
    x1 = x1 if sorter is None else x1[torch.as_tensor(sorter, device=x1.device)]
    if not x1.is_floating_point():
        return torch.searchsorted(x1.contiguous(), x2.contiguous(), side=side)
    not_numbers = torch.isnan(x1)  # which PyTorch compares with nothing
    numbers = (~not_numbers).sum()
    infinite = torch.where(not_numbers, torch.inf, x1).contiguous()
    found = torch.minimum(torch.searchsorted(infinite, x2.contiguous(), side=side), numbers)
    return torch.where(torch.isnan(x2), numbers if side == "left" else x1.shape[0], found)


def unique_all(x: torch.Tensor, /) -> UniqueAll:
    """The different elements in order, with their places and counts."""
    if x.is_complex():  # which PyTorch does not sort: by their parts
        parts = torch.view_as_real(x.flatten().resolve_conj())
        pairs, inverse, counts = torch.unique(parts, dim=0, return_inverse=True, return_counts=True)
        values, inverse = torch.view_as_complex(pairs), inverse.reshape(x.shape)
    else:
        values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    order = torch.sort(inverse.flatten(), stable=True).indices
    return UniqueAll(values, order[torch.cumsum(counts, 0) - counts], inverse, counts)


unique_counts, unique_inverse, unique_values = parts_of(unique_all)
