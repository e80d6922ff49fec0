"""Gather, scatter, pad, permute and flip in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..interface.arrays import Array, Integers
from ..interface.kernels import Kernels


class TorchIndexing(Kernels):
    """Kernels by index_select and index_add, each the derivative of the other."""

    def take_in_bounds(self, x: Array, index: Integers, axis: int = 0) -> Array:
        index, axis = as_index(index, x), axis % x.ndim
        taken = x.index_select(axis, index.reshape(-1))
        return taken if index.ndim == 1 else taken.reshape((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]))

    def segment_sum(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        return values.new_zeros((count, *values.shape[1:])).index_add(0, as_index(ids, values), values)

    def _pad_with_zeros(self, x: Array, widths: Sequence[tuple[int, int]]) -> Array:
        flat = [width for pair in reversed(widths) for width in pair]
        return torch.nn.functional.pad(x, flat) if any(flat) else x  # a batched gradient lacks a rule for no padding

    def permute_dims(self, x: Array, axes: Sequence[int]) -> Array:
        return x.permute(tuple(axes))

    def flip(self, x: Array, axis: int | Sequence[int] | None = None) -> Array:
        if isinstance(axis, Sequence):
            return x.flip(tuple(axis))
        return x.flip(tuple(range(x.ndim)) if axis is None else axis)


def as_index(index: Integers, like: torch.Tensor) -> torch.Tensor:
    """Integers as a tensor that torch indexes with, on `like`'s device."""
    if isinstance(index, torch.Tensor):
        return index if index.dtype in (torch.int32, torch.int64) else index.long()
    array = np.asarray(index)
    array = np.require(array, array.dtype if array.dtype.char in "ilq" else np.int64, ["C", "W"])
    if any(stride < 0 for stride in array.strides):  # also along an axis of one element, which NumPy does not mind
        array = array.copy()
    return torch.as_tensor(array, device=like.device)
