"""Selecting, counting and searching. What has a size that depends on numbers takes it as an argument to be compiled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..interface.arrays import Array, Integers
from .gathering import (
    UNKNOWN_SIZE,
    check_size_is_known,
    constant,
    filling,
    first_rows,
    known_shape,
    one_axis,
    signed,
    unravel_index,
)


def nonzero(bk: Any, x: Array, length: int | None = None, fill_value: int = -1) -> Array:
    """Places `(count, axes)` of the entries that are not 0, in order; `bk.xp.nonzero` has an array for each axis.

    Args:
        length: of the result, for compiled functions: what is more is cut off, and what is missing is `fill_value`.
    """
    if not len(x.shape):
        raise ValueError("nonzero got an array without axes; expected one with places to name.")
    if length is None:
        check_size_is_known(bk, "nonzero", "length=, the size", x)
        return bk.xp.stack(bk.xp.nonzero(x), axis=-1)
    shape = known_shape("nonzero", x)
    order, count = _first_true(bk, bk.xp.reshape(_holds(bk, x), (-1,)), length)
    there = bk.xp.astype(constant(bk, np.arange(length), x), count.dtype) < count
    return bk.xp.where(there[:, None], unravel_index(bk, order, tuple(max(n, 1) for n in shape)), fill_value)


def boolean_mask(
    bk: Any, x: Array, mask: Array, axis: int = 0, new_length: int | None = None, fill_value: Any = 0
) -> Array:
    """The entries of `x` along an axis where `mask` `(length,)` holds.

    Args:
        new_length: of the axis of the result, for compiled functions: what is more is cut off, and what is missing is
            `fill_value`.
    """
    axis = one_axis("boolean_mask", x, axis)
    shape = known_shape("boolean_mask", x)
    mask = bk.asarray(mask, like=x)
    if tuple(mask.shape) != shape[axis : axis + 1]:
        raise ValueError(
            f"boolean_mask got a mask of shape {tuple(mask.shape)} and an axis of length {shape[axis]}; expected the "
            f"shape {shape[axis : axis + 1]}."
        )
    if new_length is None:
        check_size_is_known(bk, "boolean_mask", "new_length=, the size", mask)
        return bk.xp.take(x, bk.xp.nonzero(mask)[0], axis=axis)
    if not shape[axis]:
        return bk.pad_to(x, axis, new_length, fill_value)
    order, count = _first_true(bk, _holds(bk, mask), new_length)
    there = bk.xp.astype(constant(bk, np.arange(new_length), x), count.dtype) < count
    there = bk.xp.reshape(there, (new_length,) + (1,) * (len(shape) - axis - 1))
    return bk.xp.where(there, bk.xp.take(x, order, axis=axis), filling(bk, x, fill_value))


def _first_true(bk: Any, condition: Array, length: int) -> tuple[Array, Array]:
    """Places of the true ones in order, then of others, as many as asked for; and the number of true ones."""
    numbers = bk.xp.astype(condition, bk.xp.int32)
    order = bk.xp.argsort(1 - numbers, stable=True)
    return bk.pad_to(order, 0, length), bk.xp.sum(numbers)


def _holds(bk: Any, x: Array) -> Array:
    return x if bk.dtype(x).kind == "b" else bk.xp.not_equal(x, 0)


def unique(
    bk: Any, x: Array, return_inverse: bool = False, return_counts: bool = False, axis: int | None = None
) -> Any:
    """The different entries of `x` in order, or the different parts along an axis, compared entry by entry.

    Returns:
        them; as a tuple with which of them each entry is, and how many there are of each, where asked for.
    """
    check_size_is_known(bk, "unique", "a call outside of compiled functions and vmap", x)
    if axis is None:
        values, _, inverse, counts = bk.xp.unique_all(x)
    else:
        values, inverse, counts = _unique_parts(bk, x, one_axis("unique", x, axis))
    found = (values, *([inverse] if return_inverse else []), *([counts] if return_counts else []))
    return found if len(found) > 1 else values


def _unique_parts(bk: Any, x: Array, axis: int) -> tuple[Array, Array, Array]:
    if bk.dtype(x).kind == "c":
        raise TypeError("unique got complex numbers along an axis, which have no order; expected real ones.")
    shape = known_shape("unique", x)
    rows = bk.xp.reshape(bk.xp.moveaxis(x, axis, 0), (shape[axis], -1)) if x.shape[axis] else x
    if not shape[axis]:
        none = constant(bk, np.zeros(0, np.int32), x)
        return x, none, none
    order = constant(bk, np.arange(shape[axis]), x)
    for column in range(int(rows.shape[1]) - 1, -1, -1):  # stable, so that the first column has the last word
        order = bk.xp.take(order, bk.xp.argsort(bk.xp.take(rows[:, column], order, axis=0), stable=True), axis=0)
    rows = bk.xp.take(rows, order, axis=0)
    new = bk.xp.any(rows[1:, :] != rows[:-1, :], axis=1)
    new = bk.xp.concat([bk.xp.ones_like(new[:1]) if shape[axis] > 1 else bk.asarray(np.ones(1, bool), like=x), new])
    first = bk.xp.nonzero(new)[0]
    kept = bk.xp.take(order, first, axis=0)
    ids = bk.xp.cumulative_sum(bk.xp.astype(new, order.dtype)) - 1
    inverse = bk.xp.take(ids, bk.xp.argsort(order, stable=True), axis=0)
    ends = bk.xp.concat([first[1:], bk.xp.astype(constant(bk, np.array([shape[axis]]), x), first.dtype)])
    return bk.xp.take(x, kept, axis=axis), inverse, ends - first


def searchsorted(bk: Any, sorted: Array, values: Array, side: str = "left", dtype: Any = np.int32) -> Array:
    """Where `values` would have to be put into a sorted array `(n,)`, or each row of them into a row of `(batch, n)`.

    NaN is larger than all numbers. "left" is before equal entries, "right" after them.
    """
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted got side={side!r}; expected 'left' or 'right'.")
    if len(sorted.shape) == 1:
        return bk.xp.astype(bk.xp.searchsorted(sorted, values, side=side), dtype)
    sorted, values = bk.auto_cast(sorted, values)
    batch = bk.broadcast_size((sorted, values), 0)
    n, m = int(sorted.shape[-1]), int(values.shape[-1])
    sorted, values = bk.xp.broadcast_to(sorted, (batch, n)), bk.xp.broadcast_to(values, (batch, m))
    # In the common order, which is stable, a value has as many sorted ones before it as is asked for.
    first = [values, sorted] if side == "left" else [sorted, values]
    order = bk.xp.argsort(bk.xp.concat(first, axis=-1), axis=-1, stable=True)
    is_sorted = order >= m if side == "left" else order < n
    before = bk.xp.cumulative_sum(bk.xp.astype(is_sorted, bk.xp.int32), axis=-1)
    found = bk.xp.take_along_axis(before, bk.xp.argsort(order, axis=-1, stable=True), axis=-1)
    return bk.xp.astype(found[:, :m] if side == "left" else found[:, n:], dtype)


def bincount(bk: Any, x: Integers, weights: Array | None = None, bins: int | None = None) -> Array:
    """How often each integer from 0 to `bins` - 1 is in `x` `(n,)`, or in each row of `(batch, n)`; or their weights.

    Integers outside raise where they are known, and count for nothing where they are not.
    """
    x = bk.asarray(x)
    shape, known = known_shape("bincount", x), bk.host_view(x)
    if bk.dtype(x).kind not in "iu":
        raise TypeError(f"bincount got an array of {bk.dtype(x)}; expected integers.")
    if len(shape) not in (1, 2):
        raise ValueError(f"bincount got an array of shape {shape}; expected (n,) or (batch, n).")
    if bins is None:
        if bk.compiled(x):
            raise ValueError(UNKNOWN_SIZE.format(operation="bincount", argument="bins=, the size"))
        bins = int(bk.to_numpy(bk.xp.max(x))) + 1 if math.prod(shape) else 0
    if known is not None and known.size and (known.min() < 0 or known.max() >= bins):
        raise IndexError(f"bincount got integers from {known.min()} to {known.max()}; expected 0 to {bins - 1}.")
    weights = bk.asarray(np.ones(shape, np.int64) if weights is None else weights, like=x)
    return _totals(bk, signed(bk, x), weights, bins)


def _totals(bk: Any, bin: Array, weights: Array, bins: int) -> Array:
    """Sums of the weights in each bin; those outside of all bins are left out."""
    batch, n = (1, *bin.shape) if len(bin.shape) == 1 else bin.shape
    there = bk.xp.logical_and(bin >= 0, bin < bins)
    weights = bk.xp.where(there, _as_summed(bk, weights), 0)
    if not bins:
        return bk.xp.reshape(weights, (batch, n))[:, :0] if len(bin.shape) > 1 else weights[:0]
    places = bk.xp.reshape(bk.xp.clip(bin, 0, bins - 1), (batch, n))
    if batch > 1:
        places = places + first_rows(bk, int(batch), bins, places)
    total = bk.segment_sum(bk.xp.reshape(weights, (-1,)), bk.xp.reshape(places, (-1,)), int(batch) * bins)
    return total if len(bin.shape) == 1 else bk.xp.reshape(total, (batch, bins))


def _as_summed(bk: Any, x: Array) -> Array:
    """x in the dtype of sums: small integers would wrap around."""
    return x if bk.dtype(x).kind in "fc" else bk.xp.sum(x, axis=())


def indexed_segment_sum(bk: Any, x: Array, starts: Integers, axis: int) -> Array:
    """Sums of `x` `(batch, ...)` along an axis, from each of the rising `starts` `(batch, count)` to the next one.

    The last segment goes to the end, what stands before the first start belongs to none, and an empty segment has the
    sum 0. The axis has `count` entries then. Either batch may be 1.
    """
    axis = one_axis("indexed_segment_sum", x, axis)
    starts = bk.asarray(starts)
    if not axis or len(starts.shape) != 2:
        raise ValueError(
            f"indexed_segment_sum got axis={axis} of an array {tuple(x.shape)} and starts {tuple(starts.shape)}; "
            "expected an axis behind the first one, of systems, and starts (batch, count)."
        )
    x = bk.xp.moveaxis(_as_summed(bk, x), axis, 1)
    systems, count = bk.broadcast_size((x, starts), 0), int(starts.shape[1])
    _, n, *rest = known_shape("indexed_segment_sum", x)
    now = constant(bk, np.arange(n)[None, :], x)
    segment = searchsorted(bk, starts, bk.xp.astype(now, starts.dtype), "right")  # 0: before all
    segment = segment + first_rows(bk, systems, count + 1, segment)
    rows = bk.xp.reshape(bk.xp.broadcast_to(x, (systems, n, *rest)), (systems * n, math.prod(rest)))
    sums = bk.segment_sum(rows, bk.xp.reshape(segment, (-1,)), systems * (count + 1), True)
    return bk.xp.moveaxis(bk.xp.reshape(sums, (systems, count + 1, *rest))[:, 1:, ...], 1, axis)


def histogram(bk: Any, values: Array, weights: Array | None, edges: Array) -> Array:
    """Sums of the weights `(batch, n)`, or the number, of the values between each two of rising edges `(batch, e)`.

    The last bin holds its right edge, too; what is outside is left out. All three may have a batch of 1.
    """
    n = int(edges.shape[-1]) - 1
    if len(values.shape) != 2 or len(edges.shape) != 2 or n < 1:
        raise ValueError(
            f"histogram got values of shape {tuple(values.shape)} and edges {tuple(edges.shape)}; expected (batch, n) "
            "and (batch, 2 or more)."
        )
    weights = bk.asarray(np.ones((1, 1), np.int64) if weights is None else weights, like=values)
    values, edges = bk.auto_cast(values, edges)
    batch = bk.broadcast_size((values, weights, edges), 0)
    shape = (batch, int(values.shape[1]))
    values, weights = bk.xp.broadcast_to(values, shape), bk.xp.broadcast_to(weights, shape)
    bin = searchsorted(bk, edges, values, "right") - 1
    return _totals(bk, bk.xp.where(values == edges[:, -1:], n - 1, bin), weights, n)


def quantile(bk: Any, x: Array, q: Any) -> Array:
    """`(q, ...)`: what this share of the numbers along the last axis is below, by linear interpolation; NaN with NaN.

    Args:
        q: numbers from 0 to 1, `(q,)` or one; a compiled function may compute them.
    """
    shape = known_shape("quantile", x)
    n = shape[-1] if shape else 0
    if not n or bk.dtype(x).kind == "c":
        raise ValueError(
            f"quantile got {bk.dtype(x)} of shape {shape}; expected real numbers, and at least one along the last axis."
        )
    x = bk.xp.sort(bk.to_float(x) if bk.dtype(x).kind in "biu" else x, axis=-1)
    part, low = _ranks(bk, q, n, x)
    high = bk.xp.minimum(low + 1, n - 1)
    below, above = (bk.xp.moveaxis(bk.xp.take(x, place, axis=-1), -1, 0) for place in (low, high))
    part = bk.xp.reshape(part, (-1,) + (1,) * (len(x.shape) - 1))
    found = below + bk.xp.where(part == 0, 0, above - below) * part  # infinite ones have no difference
    found = bk.xp.where(bk.xp.isnan(x[..., -1]), np.nan, found)
    return found if len(_shape_of(bk, q)) else found[0, ...]


def _ranks(bk: Any, q: Any, n: int, x: Array) -> tuple[Array, Array]:
    """How far a quantile is above which of the sorted numbers."""
    known = bk.host_view(q) if bk.is_array(q) else np.asarray(q, np.float64)
    if known is None:
        at = bk.xp.astype(bk.xp.reshape(q, (-1,)), x.dtype) * (n - 1)
        low = bk.xp.clip(bk.xp.floor(at), 0, n - 1)
        return at - low, bk.xp.astype(low, bk.xp.int32)
    if not np.all((known >= 0) & (known <= 1)):
        raise ValueError(f"quantile got q={known}; expected numbers from 0 to 1.")
    at = known.reshape(-1).astype(np.float64) * (n - 1)
    low = np.floor(at)
    part = bk.xp.astype(bk.asarray(at - low, like=x), x.dtype)
    return part, constant(bk, low.astype(np.int64), x)


def _shape_of(bk: Any, q: Any) -> Sequence[int]:
    return tuple(q.shape) if bk.is_array(q) else np.shape(q)
