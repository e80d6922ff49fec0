"""Operations that move elements: the box rule where there is one, else element by element.

`u[1:]` and `u` between two zeros, where u has 4 elements: only the rows and the first column of the box change.

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine.linear import identity
>>> u = identity(get_backend("numpy"), (4,), float)
>>> slice_(u, [1], [4]).terms
(Box(lo=(0,), shape=(3,), offset=1, strides=(1,), factor=1, values=None, mask=None),)
>>> pad(u, [(1, 1, 0)]).terms
(Box(lo=(1,), shape=(4,), offset=0, strides=(1,), factor=1, values=None, mask=None),)

The elements 1 and 2 of 4 by those of another array; each box of the result lies before, in or behind these:

>>> u, v = (identity(get_backend("numpy"), (n,), float, first) for n, first in ((4, 0), (2, 4)))
>>> [(term.lo, term.shape, term.offset) for term in replace_box(u, v, [1]).terms]
[((0,), (1,), 0), ((1,), (2,), 4), ((3,), (1,), 3)]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...formats.entries.integers import affine, row_strides
from . import coefficients as co
from .coefficients import Coefficient
from .linear import Linear, joint_bias, joint_fields, linear_among, map_bias, normal, reshape, rows_of, settle
from .terms import (
    Box,
    Entries,
    Gathered,
    Term,
    broadcast_box,
    flip_box,
    has_axes,
    slice_box,
    take_entries,
    to_gathered,
    transpose_box,
)

Config = Sequence[tuple[int, int, int]]
MAX_COPIES = 8  # of a tile that are laid side by side; more are broadcast


def move(
    x: Linear,
    shape: Sequence[int],
    box_rule: Callable[[Box], Box | None] | None,
    array_rule: Callable[[Coefficient, int], Coefficient],
    bias: Coefficient | None,
) -> Linear:
    """An operation that gives each element one element of `x`, or none.

    Args:
        x: in normal form.
        shape: of the result.
        box_rule: what becomes of a box, None: nothing; without a rule boxes are gathered.
        array_rule: what the operation makes of an array of `x`'s shape and a number for the elements without a source.
        bias: of the result.
    """
    terms: list[Term | None] = []
    positions = None
    for term in x.terms:
        if isinstance(term, Box) and box_rule is not None:
            terms.append(box_rule(term))
        elif isinstance(term, Entries):
            if positions is None:
                positions = array_rule(rows_of(x.shape), -1).reshape(-1)
            terms.append(take_entries(x.bk, term, x.size, positions))
        else:
            term = to_gathered(x.bk, term, x.base) if isinstance(term, Box) else term
            values = array_rule(term.values, 0) if has_axes(term.values) else term.values
            terms.append(Gathered(array_rule(term.columns, -1), term.factor, values))
    shape = tuple(int(n) for n in shape)
    return x.changed([t for t in terms if t is not None], bias, shape=shape, base=shape)


def slice_(x: Linear, starts: Sequence[int], limits: Sequence[int], strides: Sequence[int] | None = None) -> Linear:
    """`x[start:limit:stride]` along every axis, all within the array."""
    x = normal(x)
    steps = (1,) * x.ndim if strides is None else strides
    slices = tuple(slice(int(a), int(b), int(s)) for a, b, s in zip(starts, limits, steps))
    shape = [max(0, -((s.start - s.stop) // s.step)) for s in slices]
    if 0 in shape:
        return x.changed((), None, shape=tuple(shape), base=tuple(shape))
    return move(
        x, shape, lambda box: slice_box(box, slices), lambda c, fill: c[slices], map_bias(x, lambda b: b[slices])
    )


def pad(x: Linear, config: Config, fill: Coefficient = 0) -> Linear:
    """Around and between elements.

    Args:
        x: the array.
        config: per axis `(lo, hi, interior)`: new elements before, after (negative: cut so many) and between two.
        fill: their value, without axes.
    """
    x = normal(x)
    config = [(int(lo), int(hi), int(between)) for lo, hi, between in config]
    spread = [n + max(n - 1, 0) * between for n, (_, _, between) in zip(x.shape, config)]
    shape = tuple(max(lo + n + hi, 0) for n, (lo, hi, _) in zip(spread, config))
    bias = None
    if x.bias is not None or not co.is_zero(fill):
        bias = co.pad(x.bk, x.plain(), config, fill)
    shift = [max(lo, 0) for lo, _, _ in config]
    cuts = any(lo < 0 or hi < 0 for lo, hi, _ in config)
    left = [slice(max(-lo, 0), n - max(-hi, 0), 1) for n, (lo, hi, _) in zip(x.shape, config)]

    def box_rule(box: Box) -> Box | None:
        inside = slice_box(box, left) if cuts else box
        return None if inside is None else inside._replace(lo=tuple(a + b for a, b in zip(inside.lo, shift)))

    apart = any(between and n > 1 for n, (_, _, between) in zip(x.shape, config))  # then rows are no box any more
    return move(x, shape, None if apart else box_rule, lambda c, f: co.pad(x.bk, c, config, f), bias)


def transpose(x: Linear, axes: Sequence[int]) -> Linear:
    """Axes in a new order: axis i of the result is axis `axes[i]`."""
    axes = tuple(int(a) for a in axes)
    if axes == tuple(range(x.ndim)):
        return x
    x = normal(x)
    shape = [x.shape[a] for a in axes]
    bias = map_bias(x, lambda b: co.transpose(x.bk, b, axes))
    return move(x, shape, lambda box: transpose_box(x.bk, box, axes), lambda c, fill: co.transpose(x.bk, c, axes), bias)


def reverse(x: Linear, axes: Sequence[int]) -> Linear:
    """The order reversed along some axes."""
    x = normal(x)
    axes = tuple(int(a) for a in axes)
    bias = map_bias(x, lambda b: co.flip(x.bk, b, axes))
    return move(x, x.shape, lambda box: flip_box(x.bk, box, axes, x.base), lambda c, fill: co.flip(x.bk, c, axes), bias)


def broadcast_in_dim(x: Linear, shape: Sequence[int], dims: Sequence[int]) -> Linear:
    """Axis k becomes axis `dims[k]` (rising) of `shape`; it repeats along the others, and where its length is 1."""
    shape = tuple(int(n) for n in shape)
    if shape == x.shape and tuple(dims) == tuple(range(x.ndim)):
        return x
    x = normal(x)
    bias = map_bias(x, lambda b: co.expand(x.bk, b, shape, dims))
    return move(
        x,
        shape,
        lambda box: broadcast_box(x.bk, box, x.base, shape, dims),
        lambda c, fill: co.expand(x.bk, c, shape, dims),
        bias,
    )


def broadcast_to(x: Linear, shape: Sequence[int]) -> Linear:
    """By NumPy's rule: new axes come first."""
    return broadcast_in_dim(x, shape, range(len(shape) - x.ndim, len(shape)))


def concatenate(parts: Sequence[Linear | Coefficient], axis: int) -> Linear:
    """Along an axis; coefficients among the parts become bias."""
    example = linear_among(parts, "concatenate")
    axis %= example.ndim
    lengths = [(p.shape if isinstance(p, Linear) else co.shape_of(p))[axis] for p in parts]
    total, begin = sum(lengths), 0
    terms: list[Term] = []
    for part, length in zip(parts, lengths):
        if isinstance(part, Linear):
            config = [(begin, total - begin - length, 0) if a == axis else (0, 0, 0) for a in range(part.ndim)]
            terms.extend(pad(part.changed(part.terms, None), config).terms)
        begin += length
    bias = joint_bias(parts)
    if bias is not None:
        bias = co.concatenate(example.bk, bias, axis)
    shape = (*example.shape[:axis], total, *example.shape[axis + 1 :])
    return settle(example.changed(terms, bias, shape=shape, base=shape, **joint_fields(parts, example)))


def stack(parts: Sequence[Linear | Coefficient], axis: int) -> Linear:
    """As `concatenate`, along a new axis."""
    example = linear_among(parts, "stack")
    axis %= example.ndim + 1
    shape = (*example.shape[:axis], 1, *example.shape[axis:])
    return concatenate(
        [reshape(p, shape) if isinstance(p, Linear) else co.reshape(example.bk, p, shape) for p in parts], axis
    )


def tile(x: Linear, reps: Sequence[int]) -> Linear:
    """Copies side by side, `reps` of them along each axis."""
    if math.prod(reps) > MAX_COPIES:
        shape = [n for pair in zip(reps, x.shape) for n in pair]
        repeated = broadcast_in_dim(x, shape, range(1, len(shape), 2))
        return reshape(repeated, [count * n for count, n in zip(reps, x.shape)])
    for axis, count in enumerate(reps):
        if count == 0:
            x = slice_(x, [0] * x.ndim, [0 if a == axis else n for a, n in enumerate(x.shape)])
        elif count > 1:
            x = concatenate([x] * count, axis)
    return x


# --- index arrays that are slices -------------------------------------------------------------------------------------


class Slices(NamedTuple):
    """`positions[i] = flat(starts + steps * i)`, axis by axis.

    Attributes:
        starts, steps: along each axis of the array that is indexed; a step of 0 where one element is taken.
        counts: elements along each of these axes.
        axes: for each axis of the positions the axis that it runs along; -1 where the same is repeated.
    """

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    counts: tuple[int, ...]
    axes: tuple[int, ...]


def find_slices(positions: np.ndarray, shape: Sequence[int]) -> Slices | None:
    """The slices of an array of `shape` that flat positions are, None if they are none."""
    if not positions.size:
        return None
    corner = (0,) * positions.ndim
    start = int(positions[corner])
    if start < 0:
        return None
    distances = []
    for axis, n in enumerate(positions.shape):
        neighbour = (*corner[:axis], 1, *corner[axis + 1 :])
        distances.append(int(positions[neighbour]) - start if n > 1 else 0)
    found = slices_at(start, distances, positions.shape, shape)
    return found if found is not None and _is_affine(positions, start, distances) else None


def slices_at(start: int, distances: Sequence[int], counts: Sequence[int], shape: Sequence[int]) -> Slices | None:
    """The slices of an array of `shape` that the positions `start + sum(distances * i)`, i below `counts`, are."""
    starts = [int(i) for i in np.unravel_index(start, tuple(shape))] if shape else []
    steps, lengths, axes = [0] * len(shape), [1] * len(shape), []
    strides = row_strides(shape)
    for distance, n in zip(distances, counts):
        if n == 1 or distance == 0:
            axes.append(-1)
            continue
        for axis, stride in enumerate(strides):
            step = distance // stride
            if distance % stride == 0 and lengths[axis] == 1 and 0 <= starts[axis] + step * (n - 1) < shape[axis]:
                steps[axis], lengths[axis] = step, n
                axes.append(axis)
                break
        else:
            return None
    return Slices(tuple(starts), tuple(steps), tuple(lengths), tuple(axes))


def _is_affine(positions: np.ndarray, start: int, distances: Sequence[int]) -> bool:
    last = start + sum(d * (n - 1) for d, n in zip(distances, positions.shape))
    if int(positions[(-1,) * positions.ndim]) != last:
        return False
    return bool(np.array_equal(positions, affine(start, distances, positions.shape)))


def slice_rows(x: Linear, found: Slices, shape: Sequence[int]) -> Linear:
    """The elements of `x` at the positions of these slices."""
    backward = [a for a, step in enumerate(found.steps) if step < 0]
    starts, limits, steps = [], [], []
    for start, step, count in zip(found.starts, found.steps, found.counts):
        last = start + step * (count - 1)
        starts.append(min(start, last))
        limits.append(max(start, last) + 1)
        steps.append(abs(step) or 1)
    part = slice_(x, starts, limits, steps)
    part = reverse(part, backward) if backward else part
    used = [axis for axis in found.axes if axis >= 0]
    rising = sorted(used)
    part = reshape(part, [found.counts[axis] for axis in rising])
    part = transpose(part, [rising.index(axis) for axis in used])
    return broadcast_in_dim(part, shape, [k for k, axis in enumerate(found.axes) if axis >= 0])


def embed(x: Linear, found: Slices, shape: Sequence[int]) -> Linear | None:
    """An array of `shape` that is `x` at the positions of these slices, else zero; None where a step is not 1."""
    used = [axis for axis in found.axes if axis >= 0]
    if any(step not in (0, 1) for step in found.steps) or any(
        axis < 0 and n > 1 for axis, n in zip(found.axes, x.shape)
    ):
        return None
    part = reshape(x, [n for axis, n in zip(found.axes, x.shape) if axis >= 0])
    rising = sorted(used)
    part = reshape(transpose(part, [used.index(axis) for axis in rising]), found.counts)
    return pad(part, [(lo, n - lo - m, 0) for lo, m, n in zip(found.starts, found.counts, shape)])


# --- replacing a box --------------------------------------------------------------------------------------------------


def replace_box(x: Linear | Coefficient, update: Linear | Coefficient, starts: Sequence[int]) -> Linear | Coefficient:
    """`x` with the elements from `starts` on replaced by `update`; at least one of the two is a Linear."""
    for axis, (start, n, size) in enumerate(zip(starts, x.shape, update.shape)):
        if size == 0:
            return x
        if size < n:
            rest = [0 if a == axis else s for a, s in enumerate(starts)]
            inner = replace_box(cut(x, axis, start, start + size), update, rest)
            parts = [cut(x, axis, 0, start), inner, cut(x, axis, start + size, n)]
            return concatenate([part for part in parts if part.shape[axis]], axis)
    return update


def element(x: Linear | Coefficient, k: int, axis: int = 0) -> Linear | Coefficient:
    """`x[k]` along an axis, which vanishes."""
    if not isinstance(x, Linear):
        return x[(slice(None),) * axis + (k,)]
    return reshape(cut(x, axis, k, k + 1), (*x.shape[:axis], *x.shape[axis + 1 :]))


def cut(x: Linear | Coefficient, axis: int, start: int, end: int) -> Linear | Coefficient:
    """`x[start:end]` along an axis."""
    if not isinstance(x, Linear):
        return x[(slice(None),) * (axis % len(x.shape)) + (slice(start, end),)]
    starts, limits = [0] * x.ndim, list(x.shape)
    starts[axis], limits[axis] = start, end
    return slice_(x, starts, limits)
