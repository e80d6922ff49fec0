"""Entries at positions that arrays of integers say: a gather or a scatter of rows, by strides.

Negative integers count from the end. Those outside raise where they are known, and are undefined where they are not.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..interface.arrays import Array, Integers

UNKNOWN_SIZE = (
    "{operation} got numbers that are known only when the compiled function runs, on which the size of its result "
    "depends; expected {argument}."
)
MODES = ("boundary", "periodic", "symmetric", "reflect")
_WIDE = 2**31  # entries, from which int32 does not count them


def known_shape(operation: str, x: Array) -> tuple[int, ...]:
    """The shape, which is known.

    Raises:
        ValueError: a size is known only when the program runs.
    """
    shape = tuple(x.shape)
    if any(n is None for n in shape):
        raise ValueError(
            f"{operation} got an array of the shape {shape}; expected sizes that are known when the function is "
            "compiled: give tf.function an input_signature with sizes."
        )
    return tuple(map(int, shape))


def one_axis(operation: str, x: Array, axis: int) -> int:
    """The axis, counted from the front."""
    count = len(x.shape)
    if not -count <= axis < count:
        raise IndexError(f"{operation} got axis={axis} and an array with {count} axes.")
    return axis % count


def check_size_is_known(bk: Any, operation: str, argument: str, x: Array) -> None:
    """Refuse a result whose size depends on `x`, where a compiled function would have to know it."""
    if bk.compiled(x) and not bk.has_unknown_sizes:
        raise ValueError(UNKNOWN_SIZE.format(operation=operation, argument=argument))


def constant(bk: Any, x: Any, like: Array) -> Array:
    """An array of NumPy on the device of another; integers as narrow as they may be, which index everywhere."""
    x = np.asarray(x)
    narrow = x.dtype.kind in "iu" and (not x.size or max(x.max(), -x.min()) < _WIDE)
    return bk.asarray(x.astype(np.int32) if narrow else x, like=like)


def filling(bk: Any, x: Array, value: Any) -> Any:
    """A number to fill up `x` with: 0 and 1 are bools among bools."""
    return bool(value) if bk.dtype(x).kind == "b" and type(value) is int and value in (0, 1) else value


def inside(bk: Any, operation: str, index: Integers, sizes: Any, like: Array, entries: int) -> Array:
    """Integers of the library in which negative ones, that count from the end, are replaced.

    Args:
        sizes: of the axis; or of those that the last axis of `index` names.
        entries: how many there are to be counted, which takes int64 from some number on.

    Raises:
        TypeError: not integers.
        IndexError: a known one is outside. Unknown ones are not looked at.
    """
    limits = np.asarray(sizes, np.int64)
    known = bk.host_view(index) if bk.is_array(index) else np.asarray(index)
    if known is not None and known.dtype.kind == "f" and not known.size:  # an empty list
        known = index = known.astype(np.int32)
    kind = known.dtype.kind if known is not None else bk.dtype(index).kind
    if kind not in "iu":
        raise TypeError(f"{operation} got indices of the kind {kind!r}; expected integers.")
    if known is None:
        index = signed(bk, index, entries)
        return bk.xp.where(index < 0, index + bk.xp.astype(constant(bk, limits, index), index.dtype), index)
    if known.size and bool(((known < -limits) | (known >= limits)).any()):
        raise IndexError(
            f"{operation} got indices from {known.min()} to {known.max()}; expected some of {-limits} to {limits - 1}."
        )
    if known.size and bool((known < 0).any()):
        return constant(bk, np.where(known < 0, known + limits, known), like)
    return signed(bk, index, entries) if bk.is_array(index) else constant(bk, known, like)


def signed(bk: Any, index: Array, entries: int = 0) -> Array:
    """Integers as int32 or int64, in which positions among so many entries can be counted."""
    dtype = bk.dtype(index)
    if dtype == np.int64 or (dtype == np.int32 and entries < _WIDE):
        return index
    return bk.xp.astype(index, bk.xp.int64 if entries >= _WIDE or dtype == np.uint32 else bk.xp.int32)


def first_rows(bk: Any, systems: int, size: int, places: Array) -> Array:
    """Where the rows of each system begin, to be added to places `(batch, ...)`."""
    first = np.arange(systems).reshape((-1,) + (1,) * (len(places.shape) - 1)) * size
    return bk.xp.astype(constant(bk, first, places), places.dtype)


def strides(shape: Sequence[int]) -> list[int]:
    """What a step along each axis is among the entries in their order."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def flat(index: Array, shape: Sequence[int]) -> Array:
    """Positions among the entries in their order, from those along each axis `(..., axes)`."""
    parts = [index[..., axis] * step for axis, step in enumerate(strides(shape))]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def folded(xp: Any, index: Any, n: int, mode: str) -> Any:
    """Positions inside of an axis of length n, from any integers.

    Args:
        xp: NumPy, or a library's functions of the standard.
        mode: "boundary" repeats the end, "periodic" begins again, "symmetric" turns back at the end and repeats it,
            "reflect" turns back without that.
    """
    if mode not in MODES:
        raise ValueError(f"the mode is {mode!r}; expected one of {', '.join(MODES)}.")
    if n == 0:
        raise ValueError(f"got an axis of length 0, and the mode {mode!r} has no entries to repeat.")
    if mode == "boundary" or n == 1:
        return xp.clip(index, 0, n - 1)
    if mode == "periodic":
        return xp.remainder(index, n)
    turn = 2 * n if mode == "symmetric" else 2 * n - 2
    index = xp.remainder(index, turn)
    return xp.where(index < n, index, turn - int(mode == "symmetric") - index)


# --- Entries at places that arrays of integers say. All of it is a gather or a scatter of rows, by strides ------------
# Negative integers count from the end. Those outside raise where they are known, and are undefined where they are not.

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
