"""Shapes, and elements by their places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ...standard.library import axes_of, one_axis


def broadcast_arrays(*arrays: torch.Tensor) -> list[torch.Tensor]:
    """The arrays in their common shape."""
    return list(torch.broadcast_tensors(*map(torch.as_tensor, arrays)))


def broadcast_to(x: torch.Tensor, /, shape: Sequence[int]) -> torch.Tensor:
    """The array in a larger shape."""
    return torch.broadcast_to(x, tuple(shape))


def concat(arrays: list[torch.Tensor], /, *, axis: int | None) -> torch.Tensor:
    """The arrays one after the other; flat ones where the axis is None."""
    return torch.cat([x.flatten() for x in arrays]) if axis is None else torch.cat(arrays, dim=axis)


def stack(arrays: list[torch.Tensor], /, *, axis: int) -> torch.Tensor:
    """The arrays along a new axis."""
    return torch.stack(arrays, dim=axis)


def unstack(x: torch.Tensor, /, *, axis: int = 0) -> tuple[torch.Tensor, ...]:
    """The parts along an axis."""
    return torch.unbind(x, axis)


def expand_dims(x: torch.Tensor, /, axis: int | Sequence[int]) -> torch.Tensor:
    """New axes of length 1, at these places of the new shape."""
    count = len(axis) if hasattr(axis, "__len__") else 1
    for a in sorted(axes_of(axis, x.ndim + count)):
        x = torch.unsqueeze(x, a)
    return x


def squeeze(x: torch.Tensor, /, axis: int | Sequence[int]) -> torch.Tensor:
    """Without these axes, which have length 1."""
    axes = axes_of(axis, x.ndim)
    if any(x.shape[a] != 1 for a in axes):
        raise ValueError(f"xp.squeeze got axis={axis} of the shape {tuple(x.shape)}; expected axes of length 1.")
    return torch.squeeze(x, axes)


def flip(x: torch.Tensor, /, *, axis: int | Sequence[int] | None = None) -> torch.Tensor:
    """The elements in the other order."""
    return torch.flip(x, axes_of(axis, x.ndim))


def permute_dims(x: torch.Tensor, /, axes: Sequence[int]) -> torch.Tensor:
    """The axes in another order."""
    return torch.permute(x, tuple(axes))


def moveaxis(
    x: torch.Tensor, source: int | Sequence[int], destination: int | Sequence[int], /
) -> torch.Tensor:  # fmt: skip
    """Axes at other places; `torch.moveaxis` has no rule for `vmap`."""
    old, new = axes_of(source, x.ndim), axes_of(destination, x.ndim)
    order = [a for a in range(x.ndim) if a not in old]
    for place, a in sorted(zip(new, old, strict=True)):
        order.insert(place, a)
    return torch.permute(x, order)


def matrix_transpose(x: torch.Tensor, /) -> torch.Tensor:
    """With the last two axes exchanged."""
    return torch.transpose(x, -2, -1)


def reshape(x: torch.Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> torch.Tensor:
    """The elements in another shape."""
    if copy is False:
        try:
            return x.view(tuple(shape))
        except RuntimeError as error:
            raise ValueError(f"xp.reshape got copy=False, and the memory has no such view: {error}") from error
    found = torch.reshape(x, tuple(shape))
    return found.clone() if copy else found


def roll(
    x: torch.Tensor, /, shift: int | Sequence[int], *, axis: int | Sequence[int] | None = None
) -> torch.Tensor:  # fmt: skip
    """The elements shifted around."""
    if isinstance(shift, int) and axis is not None and not isinstance(axis, int):
        shift = (shift,) * len(axis)
    return torch.roll(x, shift, axis)


def repeat(x: torch.Tensor, repeats: Any, /, *, axis: int | None = None) -> torch.Tensor:
    """Each element so many times."""
    x, axis = (x.flatten(), 0) if axis is None else (x, axis)
    return torch.repeat_interleave(x, repeats if isinstance(repeats, int) else torch.as_tensor(repeats), dim=axis)


def tile(x: torch.Tensor, repetitions: Sequence[int], /) -> torch.Tensor:
    """The whole so many times."""
    return torch.tile(x, tuple(repetitions))


def take(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int | None = None) -> torch.Tensor:
    """The parts at these places along an axis."""
    axis, indices = one_axis("take", x, axis), torch.as_tensor(indices, device=x.device)
    found = torch.index_select(x, axis, _not_negative(indices, x.shape[axis]).flatten())
    return found if indices.ndim == 1 else found.reshape(x.shape[:axis] + indices.shape + x.shape[axis + 1 :])


def take_along_axis(x: torch.Tensor, indices: torch.Tensor, /, *, axis: int = -1) -> torch.Tensor:
    """The elements at these places along an axis, line by line."""
    indices = torch.as_tensor(indices, device=x.device)
    return torch.take_along_dim(x, _not_negative(indices, x.shape[axis]), dim=axis)


def _not_negative(indices: torch.Tensor, length: int) -> torch.Tensor:
    indices = indices.long()
    return torch.where(indices < 0, indices + length, indices)


def diff(
    x: torch.Tensor, /, *, axis: int, n: int, prepend: torch.Tensor | None = None, append: torch.Tensor | None = None
) -> torch.Tensor:
    """Differences of neighbours."""
    return torch.diff(x, n=n, dim=axis, prepend=prepend, append=append)
