"""Padding, slicing, repeating and stacking, beyond the standard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..interface.arrays import Array, Integers
from .gathering import check_size_is_known, constant, filling, folded, known_shape, one_axis
from .lists import searchsorted


def pad(bk: Any, x: Array, widths: Sequence[tuple[int, int]], mode: str = "constant", value: Any = 0) -> Array:
    """`x` with entries around it: `(before, after)` of each axis, in one of PhiML's modes.

    "constant" adds `value`; "boundary", "periodic", "symmetric" and "reflect" repeat entries of `x`, of any width.
    """
    shape = known_shape("pad", x)
    pairs = [(int(lo), int(hi)) for lo, hi in widths]
    if len(pairs) != len(shape) or any(min(pair) < 0 for pair in pairs):
        raise ValueError(
            f"pad got widths={[tuple(pair) for pair in widths]} and an array of shape {shape}; expected a pair of "
            "numbers for each axis, none of them negative. Slice the array to take entries off."
        )
    for axis, (lo, hi) in enumerate(pairs):
        if (lo, hi) == (0, 0):
            continue
        if mode == "constant":
            x = _with_constant(bk, x, axis, lo, hi, value)
        else:
            places = folded(np, np.arange(-lo, shape[axis] + hi), shape[axis], mode)
            x = bk.xp.take(x, constant(bk, places, x), axis=axis)
    return x


def _with_constant(bk: Any, x: Array, axis: int, lo: int, hi: int, value: Any) -> Array:
    shape = known_shape("pad", x)
    x, value = bk.auto_cast(x, filling(bk, x, value))
    sides = [bk.xp.broadcast_to(value, (*shape[:axis], n, *shape[axis + 1 :])) for n in (lo, hi)]
    return bk.xp.concat([part for part, n in ((sides[0], lo), (x, 1), (sides[1], hi)) if n], axis=axis)


def pad_to(bk: Any, x: Array, axis: int, new_size: int, fill_value: Any = 0) -> Array:
    """`x` with its axis cut to this length, or filled up to it with a number."""
    axis = one_axis("pad_to", x, axis)
    size = known_shape("pad_to", x)[axis]
    if new_size < 0:
        raise ValueError(f"pad_to got new_size={new_size}; expected a length.")
    if new_size <= size:
        return x[(slice(None),) * axis + (slice(new_size),)]
    return bk.pad(x, [(0, new_size - size if i == axis else 0) for i in range(len(x.shape))], "constant", fill_value)


def tile_to(bk: Any, x: Array, axis: int, size: int) -> Array:
    """`x` repeated along an axis to this length, a multiple of its own."""
    axis = one_axis("tile_to", x, axis)
    own = known_shape("tile_to", x)[axis]
    if own == size:
        return x
    if not own or size % own:
        raise ValueError(f"tile_to got size={size} and an axis of length {own}; expected a multiple of that.")
    return bk.xp.tile(x, tuple(size // own if i == axis else 1 for i in range(len(x.shape))))


def multi_slice(bk: Any, x: Array, slices: Sequence[Any]) -> Array:
    """`x[slices]` with a slice, also a falling one, or an integer for each of the first axes.

    An integer may be an array without axes, whose value need not be known.
    """
    shape, axis = known_shape("multi_slice", x), 0
    if len(slices) > len(shape):
        raise IndexError(f"multi_slice got {len(slices)} slices and an array with {len(shape)} axes.")
    for one, n in zip(slices, shape, strict=False):
        if isinstance(one, slice):
            x = _sliced(bk, x, axis, range(n)[one])
            axis += 1
        elif isinstance(one, int | np.integer):
            x = x[(slice(None),) * axis + (range(n)[one], ...)]  # which checks it: not every library does
        else:
            x = bk.take(x, one, axis)
    return x


def _sliced(bk: Any, x: Array, axis: int, places: range) -> Array:
    """The entries at these places, with slices and a flip: libraries differ in what they say of falling ones."""
    rising = places if places.step > 0 else places[::-1]
    start, stop = (rising[0], rising[-1] + 1) if len(rising) else (0, 0)
    x = x[(slice(None),) * axis + (slice(start, stop, rising.step), ...)]
    return x if places.step > 0 else bk.xp.flip(x, axis=axis)


def unstack(bk: Any, x: Array, axis: int = 0, keepdims: bool = False) -> tuple[Array, ...]:
    """The parts of `x` along an axis, which they keep with length 1 if asked."""
    parts = tuple(bk.xp.unstack(x, axis=axis))
    return tuple(bk.xp.expand_dims(part, axis=axis) for part in parts) if keepdims else parts


def expand_dims(bk: Any, x: Array, axis: int | Sequence[int] = 0) -> Array:
    """`x` with new axes of length 1, at these places of the new shape."""
    return bk.xp.expand_dims(x, axis=axis)


def repeat(bk: Any, x: Array, repeats: int | Integers, axis: int | None = None, new_length: int | None = None) -> Array:
    """Each entry of `x` along an axis, or of the flat array, as often as `repeats` says for all or for each.

    Args:
        new_length: of the axis of the result, for compiled functions: what is more is cut off, and what is missing is
            filled up with the last entry.
    """
    if axis is None:
        x, axis = bk.xp.reshape(x, (-1,)), 0
    axis = one_axis("repeat", x, axis)
    if new_length is None:
        if bk.is_array(repeats):
            check_size_is_known(bk, "repeat", "new_length=, the size", repeats)
        return bk.xp.repeat(x, repeats, axis=axis)
    size = known_shape("repeat", x)[axis]
    if not size:
        raise ValueError(f"repeat got an axis of length 0 and new_length={new_length}: there is nothing to repeat.")
    _check_counts(bk, repeats, new_length)
    counts = bk.xp.broadcast_to(bk.asarray(repeats, like=x), (size,))
    ends = bk.xp.cumulative_sum(counts)
    now = bk.xp.astype(constant(bk, np.arange(new_length), x), ends.dtype)
    # Not of the standard, which PyTorch's vmap serves by copies, with a warning.
    place = searchsorted(bk, ends[None, :], now[None, :], "right")[0, :]
    return bk.xp.take(x, bk.xp.minimum(place, size - 1), axis=axis)


def _check_counts(bk: Any, repeats: int | Integers, new_length: int) -> None:
    known = bk.host_view(repeats) if bk.is_array(repeats) else np.asarray(repeats)
    kind = bk.dtype(repeats).kind if known is None else known.dtype.kind
    if kind not in "biu" or new_length < 0 or (known is not None and known.min(initial=0) < 0):
        raise ValueError(
            f"repeat got repeats={repeats} and new_length={new_length}; expected integers, none of them negative."
        )


def linspace_without_last(bk: Any, start: Any, stop: Any, number: int) -> Array:
    """So many numbers at equal distances from `start`, the next of which would be `stop`."""
    return bk.xp.linspace(start, stop, number, endpoint=False)


def copy_leaves(bk: Any, tree: Any) -> Any:
    """A container of copies of the arrays in a container; arrays themselves where they are immutable."""
    leaves, structure = bk.leaves(tree)
    return bk.unleaves(structure, [bk.copy(leaf) if bk.is_array(leaf) else leaf for leaf in leaves])


def stack_leaves(bk: Any, trees: Sequence[Any], axis: int = 0) -> Any:
    """Containers of arrays, alike, as one: of the arrays at each place, stacked along a new axis."""
    if not trees:
        raise ValueError("stack_leaves got no containers; expected at least one.")
    every = [bk.leaves(tree) for tree in trees]
    if any(structure != every[0][1] for _, structure in every):
        raise ValueError(f"stack_leaves got different containers: {[structure for _, structure in every]}.")
    return bk.unleaves(every[0][1], [bk.xp.stack(parts, axis=axis) for parts in zip(*(own for own, _ in every))])


def broadcast_size(bk: Any, arrays: Sequence[Array], axis: int) -> int:
    """The length to which arrays with this axis are broadcast along it."""
    sizes = {known_shape("broadcast_size", x)[axis] for x in arrays} - {1}
    if len(sizes) > 1:
        raise ValueError(f"broadcast_size got the lengths {sorted(sizes)} along axis {axis}; expected one, or 1.")
    return sizes.pop() if sizes else 1
