"""Operations that move elements: the box rule where there is one, else element by element.

`u[1:]` and `u` between two zeros, where u has 4 elements: only the rows and the first column of the box change.

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
>>> u = identity(get_backend("numpy"), (4,), float)
>>> slice_(u, [1], [4]).terms
(Box(lo=(0,), shape=(3,), offset=1, strides=(1,), factor=1, values=None, mask=None),)
>>> pad(u, [(1, 1, 0)]).terms
(Box(lo=(1,), shape=(4,), offset=0, strides=(1,), factor=1, values=None, mask=None),)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from . import coefficients as co
from .box import broadcast_box, flip_box, slice_box, transpose_box
from .coefficients import Coefficient
from .linear import Linear, joint_bias, joint_fields, linear_among, map_bias, normal, reshape, rows_of
from .merging import settle
from .rows import take_entries
from .terms import Box, Entries, Gathered, Term, has_axes, to_gathered

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
    """Along an axis; coefficients among the parts become bias.

    Raises:
        TypeError: no part depends on the input.
    """
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
