"""Replacing a box of an array.

The elements 1 and 2 of 4 by those of another array; each box of the result lies before, in or behind these:

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
>>> u, v = (identity(get_backend("numpy"), (n,), float, first) for n, first in ((4, 0), (2, 4)))
>>> [(term.lo, term.shape, term.offset) for term in replace_box(u, v, [1]).terms]
[((0,), (1,), 0), ((1,), (2,), 4), ((3,), (1,), 3)]
"""

from __future__ import annotations

from collections.abc import Sequence

from ..coefficients import Coefficient
from ..linear import Linear
from ..structural import concatenate, slice_


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


def cut(x: Linear | Coefficient, axis: int, start: int, end: int) -> Linear | Coefficient:
    """`x[start:end]` along an axis."""
    if not isinstance(x, Linear):
        return x[(slice(None),) * (axis % len(x.shape)) + (slice(start, end),)]
    starts, limits = [0] * x.ndim, list(x.shape)
    starts[axis], limits[axis] = start, end
    return slice_(x, starts, limits)
