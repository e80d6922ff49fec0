"""Positions in arrays: of what is outside of an axis, flat ones, and the check of those that are known."""

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
