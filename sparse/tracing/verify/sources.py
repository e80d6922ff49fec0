"""Which elements of its operands an operation needs for some elements of its result.

A function here gets flat positions in the result and gives the positions in each operand, -1 where there is no element.
Columns 1 to 2 of an array (2, 3), and an array (1, 2) below another:

>>> sliced(np.array([0, 3]), (2, 3), (2, 2), (0, 1), (1, 1))
[array([1, 5])]
>>> concatenated(np.array([0, 5]), [(2, 2), (1, 2)], (3, 2), axis=0)
[array([ 0, -1]), array([-1,  1])]

Sums need several elements for each, along a second axis:

>>> summed_over(np.array([1]), (2, 3), (1,))
[array([[3, 4, 5]])]

The other functions make the elements of the result of those: `moved`, `joined`, `filled`, `added`, `products_added`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...formats.entries.integers import row_strides

Positions: TypeAlias = np.ndarray  # flat, int64; -1: no element
Shape: TypeAlias = tuple[int, ...]
MOST_SUMMED = 256  # elements of a sum


def _index(where: Positions, shape: Sequence[int]) -> list[np.ndarray]:
    return list(np.unravel_index(where, tuple(shape))) if len(shape) else []


def _flat(index: Sequence[Any], shape: Sequence[int], like: Positions) -> Positions:
    """Positions in an array, whose axes of length 1 are broadcast."""
    flat = np.zeros(like.shape, np.int64)
    for i, n, stride in zip(index, shape, row_strides(shape)):
        if n > 1:
            flat += i * stride
    return flat


def elementwise(where: Positions, shapes: Sequence[Shape], shape: Shape) -> list[Positions]:
    """Operands of the shape of the result, or without axes."""
    index = None if all(s in (shape, ()) for s in shapes) else _index(where, shape)
    return [where if s == shape else _flat(index or [], s, where) for s in shapes]


def broadcast(where: Positions, source: Shape, shape: Shape, axes: Sequence[int]) -> list[Positions]:
    """Axis k became axis `axes[k]`."""
    index = _index(where, shape)
    return [_flat([index[axis] for axis in axes], source, where)]


def sliced(
    where: Positions, source: Shape, shape: Shape, starts: Sequence[int], strides: Sequence[int]
) -> list[Positions]:
    """A part of the operand."""
    return [_flat([a + i * s for i, a, s in zip(_index(where, shape), starts, strides)], source, where)]


def transposed(where: Positions, source: Shape, shape: Shape, axes: Sequence[int]) -> list[Positions]:
    """Axis i of the result is axis `axes[i]` of the operand."""
    index = _index(where, shape)
    return [_flat([index[axis] for axis in np.argsort(axes)], source, where)]


def reversed_along(where: Positions, shape: Shape, axes: Sequence[int]) -> list[Positions]:
    """The order reversed along some axes."""
    index = [n - 1 - i if axis in axes else i for axis, (i, n) in enumerate(zip(_index(where, shape), shape))]
    return [_flat(index, shape, where)]


def concatenated(where: Positions, shapes: Sequence[Shape], shape: Shape, axis: int) -> list[Positions]:
    """All operands one after the other."""
    index, sources, start = _index(where, shape), [], 0
    for s in shapes:
        own = [i - start if a == axis else i for a, i in enumerate(index)]
        inside = (own[axis] >= 0) & (own[axis] < s[axis])
        sources.append(np.where(inside, _flat(own, s, where), -1))
        start += s[axis]
    return sources


def stacked(where: Positions, shapes: Sequence[Shape], shape: Shape, axis: int) -> list[Positions]:
    """All operands along a new axis."""
    index = _index(where, shape)
    number = index.pop(axis)
    return [np.where(number == k, _flat(index, s, where), -1) for k, s in enumerate(shapes)]


def padded(where: Positions, source: Shape, shape: Shape, config: Sequence[tuple[int, int, int]]) -> list[Positions]:
    """An operand and the number around it, with `(lo, hi, interior)` per axis."""
    inside, own = np.ones(where.shape, bool), []
    for i, n, (lo, _, between) in zip(_index(where, shape), source, config):
        place, rest = np.divmod(i - lo, between + 1)
        inside &= (rest == 0) & (place >= 0) & (place < n)
        own.append(place)
    return [np.where(inside, _flat(own, source, where), -1), np.zeros_like(where)]


def summed_over(where: Positions, source: Shape, axes: Sequence[int]) -> list[Positions] | None:
    """The elements of each sum; None where these are many."""
    if not 0 < math.prod(source[a] for a in axes) <= MOST_SUMMED:
        return None
    strides = row_strides(source)
    kept = [a for a in range(len(source)) if a not in axes]
    base = np.zeros(where.shape, np.int64)
    for i, a in zip(_index(where, [source[a] for a in kept]), kept):
        base += i * strides[a]
    steps = np.zeros((), np.int64)
    for a in axes:
        steps = np.add.outer(steps, np.arange(source[a]) * strides[a])
    return [base[:, None] + steps.reshape(-1)]


def convolved(
    where: Positions,
    shapes: Sequence[Shape],
    shape: Shape,
    axes: tuple[Sequence[int], Sequence[int], Sequence[int]],
    strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    image_dilation: Sequence[int],
    kernel_dilation: Sequence[int],
    groups: int = 1,
) -> list[Positions] | None:
    """Image and kernel elements of each product in the sum; None where these are many.

    Args:
        where: positions in the result.
        shapes: of image and kernel.
        shape: of the result.
        axes: those of image, kernel and result that are `(batch, feature, space...)`, `(out, in, space...)` and
            `(batch, out, space...)`.
        strides, padding, image_dilation, kernel_dilation, groups: as for `engine.convolve`.
    """
    image, kernel = ([s[a] for a in order] for s, order in zip(shapes, axes))
    if not 0 < math.prod(kernel[1:]) <= MOST_SUMMED:
        return None
    index = _index(where, shape)
    batch, out, *space = (index[a][:, None] for a in axes[2])
    feature, *taps = (t.reshape(1, -1) for t in np.indices(kernel[1:]))
    own = [batch, out // (kernel[0] // groups) * kernel[1] + feature]
    inside = np.ones((len(where), math.prod(kernel[1:])), bool)
    places = zip(space, taps, image[2:], strides, kernel_dilation, image_dilation, padding)
    for i, tap, n, stride, step, between, (lo, _) in places:
        place, rest = np.divmod(i * stride + tap * step - lo, between)
        inside &= (rest == 0) & (place >= 0) & (place < n)
        own.append(place)
    like = np.zeros(inside.shape, np.int64)
    image_source = _flat([own[i] for i in np.argsort(axes[0])], shapes[0], like)
    weights = [out, feature, *taps]
    kernel_source = _flat([weights[i] for i in np.argsort(axes[1])], shapes[1], like)
    return [np.where(inside, image_source, -1), kernel_source]


def moved(parts: Sequence[np.ndarray], sources: Sequence[Positions], dtype: np.dtype) -> np.ndarray:
    """Elements of the first operand."""
    return parts[0]


def joined(parts: Sequence[np.ndarray], sources: Sequence[Positions], dtype: np.dtype) -> np.ndarray:
    """Elements of whichever operand has one."""
    joint = np.zeros(parts[0].shape, dtype)
    for part, source in zip(parts, sources):
        np.copyto(joint, part, where=source >= 0)
    return joint


def filled(parts: Sequence[np.ndarray], sources: Sequence[Positions], dtype: np.dtype) -> np.ndarray:
    """Those of the first operand, where there are any, else of the second."""
    return np.where(sources[0] >= 0, parts[0], parts[1])


def added(parts: Sequence[np.ndarray], sources: Sequence[Positions], dtype: np.dtype) -> np.ndarray:
    """Sums along the second axis."""
    return np.asarray(parts[0].sum(axis=1, dtype=dtype))


def products_added(parts: Sequence[np.ndarray], sources: Sequence[Positions], dtype: np.dtype) -> np.ndarray:
    """Sums of products along the second axis, where the first factor has an element."""
    return np.asarray(np.where(sources[0] >= 0, parts[0] * parts[1], 0).sum(axis=1, dtype=dtype))
