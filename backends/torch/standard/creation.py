"""New tensors; dtypes are given, see `backends/standard/creation.py`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ..dtypes import NUMPY_DTYPE
from .library import from_numpy


def asarray(obj: Any, /, *, dtype: Any, device: Any, copy: bool | None) -> torch.Tensor:
    """A tensor of a tensor, an array of NumPy or another library's array."""
    if isinstance(obj, torch.Tensor):  # torch.asarray leaves derivatives behind, or warns of them
        moved = obj.to(device=device, dtype=dtype)
        if copy is False and moved is not obj:
            raise ValueError("xp.asarray got copy=False, and a tensor of another dtype or on another device.")
        return moved.clone() if copy and moved is obj else moved
    if isinstance(obj, (np.ndarray, np.generic)):
        host = np.asarray(obj) if dtype is None else np.asarray(obj, NUMPY_DTYPE.get(dtype))
        moved = from_numpy(host, copy=bool(copy)).to(device=device, dtype=dtype)
        if copy is False and not (isinstance(obj, np.ndarray) and np.shares_memory(moved.numpy(force=True), obj)):
            raise ValueError("xp.asarray got copy=False and an array of NumPy that PyTorch cannot share as it is.")
        return moved
    return torch.asarray(obj, dtype=dtype, device=device, copy=copy)


def astype(x: torch.Tensor, dtype: Any, /, *, copy: bool, device: Any) -> torch.Tensor:
    """`x` in another dtype."""
    return x.to(device=device, dtype=dtype, copy=copy)


def arange(start: Any, stop: Any, step: Any, *, dtype: Any, device: Any) -> torch.Tensor:
    """`start + i step` below `stop`, none where the step leads away from it."""
    if math.ceil((stop - start) / step) <= 0:
        return torch.empty(0, dtype=dtype, device=device)
    return torch.arange(start, stop, step, dtype=dtype, device=device)


def linspace(start: Any, stop: Any, num: int, *, dtype: Any, device: Any, endpoint: bool) -> torch.Tensor:
    """`num` numbers from `start` to `stop`."""
    count = num if endpoint else num + 1
    return torch.linspace(start, stop, count, dtype=dtype, device=device)[:num]


def eye(n_rows: int, n_cols: int, /, *, k: int, dtype: Any, device: Any) -> torch.Tensor:
    """Ones on the k-th diagonal."""
    return torch.ones((n_rows, n_cols), dtype=dtype, device=device).tril(k).triu(k)


def full(shape: tuple[int, ...], fill_value: Any, *, dtype: Any, device: Any) -> torch.Tensor:
    """A number, or a tensor without axes, everywhere."""
    if isinstance(fill_value, torch.Tensor):
        return fill_value.to(device=device, dtype=dtype).expand(shape).clone()
    return torch.full(shape, fill_value, dtype=dtype, device=device)


def full_like(x: torch.Tensor, /, fill_value: Any, *, dtype: Any, device: Any) -> torch.Tensor:
    """A number everywhere, in the shape of `x`."""
    return full(tuple(x.shape), fill_value, dtype=dtype, device=x.device if device is None else device)


def meshgrid(*arrays: torch.Tensor, indexing: str = "xy") -> list[torch.Tensor]:
    """Coordinates of a grid, one array for each axis."""
    return list(torch.meshgrid(*arrays, indexing=indexing)) if arrays else []


def tril(x: torch.Tensor, /, *, k: int = 0) -> torch.Tensor:
    """The part below the k-th diagonal, with it."""
    return torch.tril(x, k)


def triu(x: torch.Tensor, /, *, k: int = 0) -> torch.Tensor:
    """The part above the k-th diagonal, with it."""
    return torch.triu(x, k)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> torch.Tensor:
    """A tensor on the memory of another library's array."""
    if isinstance(x, (np.ndarray, torch.Tensor)):  # PyTorch ends the process at a negative stride, refuses gradients
        return asarray(x, dtype=None, device=device, copy=copy)
    shared = torch.from_dlpack(x)
    moved = shared.to(device=device)
    if copy is False and moved is not shared:
        raise ValueError(f"xp.from_dlpack got copy=False and an array on {shared.device}, not on {device}.")
    return moved.clone() if copy and moved is shared else moved
