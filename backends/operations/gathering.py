"""Entries at places that arrays of integers say. All of it is a gather or a scatter of rows, by strides.

Negative integers count from the end. Those outside raise where they are known, and are undefined where they are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..interface.arrays import Array, Integers
from .positions import constant, first_rows, flat, inside, known_shape, one_axis, signed, strides

_UPDATES = ("update", "add", "max", "min")


def take(bk: Any, x: Array, indices: Integers, axis: int = 0) -> Array:
    """The entries of `x` at these places along an axis, which the axes of `indices` replace."""
    axis = one_axis("take", x, axis)
    n = x.shape[axis]
    if n is not None:  # in a graph, whose run will say
        indices = inside(bk, "take", indices, int(n), x, int(n))
    return bk.xp.take(x, indices, axis=axis)


def gather_nd(bk: Any, x: Array, indices: Integers, batched: bool = False) -> Array:
    """Entries `(any..., channels)` of `x` `(spatial..., channels)` at places `(any..., axes)`.

    Args:
        batched: both have a first axis of systems more, of which one may have length 1.
    """
    if not batched:
        return gather_nd(bk, x[None, ...], _indices(bk, indices)[None, ...], True)[0, ...]
    systems, *grid, channels = known_shape("gather_nd", x)
    indices = _checked(bk, "gather_nd", indices, grid, x)
    places = flat(indices, grid)
    _check_systems("gather_nd", systems, int(places.shape[0]))
    if systems > 1:
        places = places + first_rows(bk, systems, math.prod(grid), places)
    rows = bk.xp.reshape(x, (systems * math.prod(grid), channels))
    return bk.xp.reshape(bk.xp.take(rows, bk.xp.reshape(places, (-1,)), axis=0), (*places.shape, channels))


def batched_gather_nd(bk: Any, x: Array, indices: Integers) -> Array:
    """`gather_nd` of several systems."""
    return gather_nd(bk, x, indices, True)


def scatter(bk: Any, base: Array, indices: Integers, values: Array, mode: str = "update") -> Array:
    """A copy of `base` `(batch, spatial..., channels)` with values put in at places `(batch, count, axes)`.

    Args:
        values: `(batch, count, channels)`; each axis, and the batch of the others, may have length 1.
        mode: "update", which is undefined where places are equal, "add", "max" or "min".
    """
    if mode not in _UPDATES:
        raise ValueError(f"scatter got mode={mode!r}; expected one of {', '.join(_UPDATES)}.")
    base, values = bk.auto_cast(base, values)
    if len(values.shape) != 3:
        raise ValueError(f"scatter got values of shape {tuple(values.shape)}; expected (batch, count, channels).")
    _, *grid, channels = known_shape("scatter", base)
    indices = _checked(bk, "scatter", indices, grid, base)
    systems = bk.broadcast_size((base, indices, values), 0)
    count, size = int(indices.shape[1]), math.prod(grid)
    places = bk.xp.broadcast_to(flat(indices, grid), (systems, count))
    if systems > 1:
        places = places + first_rows(bk, systems, size, places)
    values = bk.xp.reshape(bk.xp.broadcast_to(values, (systems, count, channels)), (systems * count, channels))
    rows = bk.xp.reshape(bk.xp.broadcast_to(base, (systems, *grid, channels)), (systems * size, channels))
    some = count and size and channels
    rows = bk._scatter_rows(rows, bk.xp.reshape(places, (-1,)), values, mode) if some else bk.copy(rows)
    return bk.xp.reshape(rows, (systems, *grid, channels))


def scatter_nd(bk: Any, base: Array, indices: Integers, values: Array, mode: str = "update") -> Array:
    """`scatter` of one system: `(spatial..., channels)`, `(count, axes)` and `(count, channels)`, or without channels.

    Without channels `base` has as many axes as `indices` names, and `values` is `(count,)` or `(1,)`; an array of one
    axis takes places `(count,)`, too.
    """
    indices = _indices(bk, indices)
    indices = indices[:, None] if len(indices.shape) == 1 else indices
    if len(base.shape) == int(indices.shape[-1]):
        return scatter(bk, base[None, ..., None], indices[None, ...], values[None, :, None], mode)[0, ..., 0]
    return scatter(bk, base[None, ...], indices[None, ...], values[None, ...], mode)[0, ...]


def unravel_index(bk: Any, flat_index: Integers, shape: Sequence[int]) -> Array:
    """Places `(..., axes)` of entries that are counted in their order."""
    sizes = [int(n) for n in shape]
    count, flat_index = math.prod(sizes), bk.asarray(flat_index)
    flat_index = inside(bk, "unravel_index", flat_index, count, flat_index, count)
    sizes = [max(n, 1) for n in sizes]
    parts = [flat_index // step % n for step, n in zip(strides(sizes), sizes, strict=True)]
    return bk.xp.stack(parts, axis=-1)


def ravel_multi_index(bk: Any, multi_index: Integers, shape: Sequence[int], mode: str | int = "undefined") -> Array:
    """Where entries at places `(..., axes)` are in their order.

    Args:
        mode: of places outside: "periodic", "clamp", "undefined", or an integer that the result has there.
    """
    shape = tuple(map(int, shape))
    index = signed(bk, bk.asarray(multi_index), math.prod(shape))
    sizes = bk.xp.astype(constant(bk, np.asarray(shape), index), index.dtype)
    if mode == "periodic":
        return flat(bk.xp.remainder(index, sizes), shape)
    if mode == "clamp":
        return flat(bk.xp.clip(index, 0, sizes - 1), shape)
    if mode == "undefined":
        return flat(index, shape)
    if not isinstance(mode, int):
        raise ValueError(
            f"ravel_multi_index got mode={mode!r}; expected 'undefined', 'periodic', 'clamp' or an integer."
        )
    there = bk.xp.all(bk.xp.logical_and(index >= 0, index < sizes), axis=-1)
    return bk.xp.where(there, flat(index, shape), mode)


def _checked(bk: Any, operation: str, indices: Integers, grid: Sequence[int], x: Array) -> Array:
    indices = _indices(bk, indices)
    if len(indices.shape) < 2 or int(indices.shape[-1]) != len(grid) or not grid:
        raise ValueError(
            f"{operation} got indices of shape {tuple(indices.shape)} and an array of shape {tuple(x.shape)}; expected "
            f"an index for each of its {len(grid)} axes between the first and the last one, as their last axis."
        )
    return inside(bk, operation, indices, grid, x, math.prod(known_shape(operation, x)))


def _indices(bk: Any, indices: Integers) -> Integers:
    """As they are if of the library, else of NumPy, whose values are known."""
    return indices if bk.is_array(indices) else np.asarray(indices)


def _check_systems(operation: str, *counts: int) -> None:
    if len({*counts} - {1}) > 1:
        raise ValueError(f"{operation} got {' and '.join(map(str, counts))} systems; expected as many, or 1.")
