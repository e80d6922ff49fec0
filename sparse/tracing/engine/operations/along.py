"""Elements along one axis.

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
>>> u = identity(get_backend("numpy"), (5,), float)
>>> for term in along(u, 0, np.array([4, 0, 1, 2, 3])).terms:  # np.roll(u, 1)
...     print(term.lo, term.shape, term.offset)
(0,) (1,) 4
(1,) (4,) 0
"""

from __future__ import annotations

import numpy as np

from ....formats.entries.grid import row_strides
from ..linear import Linear
from ..positions import take
from ..structural import broadcast_to, concatenate, reverse, slice_

_PIECES = 8  # of a shuffled axis that are slices


def along(x: Linear, axis: int, index: np.ndarray) -> Linear:
    """`np.take(x, index, axis)` for indices that are not negative; a few runs of neighbours are slices side by side."""
    axis, index = axis % x.ndim, np.asarray(index)
    if not len(index):
        return _run(x, axis, 0, 0)
    steps = np.diff(index)
    jumps = np.abs(steps) > 1
    turns = (steps[1:] != steps[:-1]) & ~jumps[:-1]
    breaks = np.flatnonzero(jumps | np.concatenate([[False], turns])) + 1
    if len(breaks) >= _PIECES:
        distance = row_strides(x.shape)[axis]
        own = np.arange(x.size).reshape(x.shape)
        first = own[(slice(None),) * axis + (slice(0, 1),)]
        return take(x, first + index.reshape([-1 if a == axis else 1 for a in range(x.ndim)]) * distance)
    parts = [_neighbours(x, axis, run) for run in np.split(index, breaks)]
    return parts[0] if len(parts) == 1 else concatenate(parts, axis)


def _neighbours(x: Linear, axis: int, index: np.ndarray) -> Linear:
    first, last, n = int(index[0]), int(index[-1]), len(index)
    piece = _run(x, axis, min(first, last), max(first, last) + 1)
    if last < first:
        return reverse(piece, [axis])
    if n > 1 and first == last:  # one element again and again
        return broadcast_to(piece, [n if a == axis else m for a, m in enumerate(x.shape)])
    return piece


def _run(x: Linear, axis: int, start: int, stop: int) -> Linear:
    starts, limits = [0] * x.ndim, list(x.shape)
    starts[axis], limits[axis] = start, stop
    return slice_(x, starts, limits)
