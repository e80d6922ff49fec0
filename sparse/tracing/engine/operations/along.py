"""Elements along one axis: a few runs of neighbours are slices side by side; and the transpose of padding by them.

>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
>>> u = identity(get_backend("numpy"), (5,), float)
>>> for term in roll(u, 1).terms:
...     print(term.lo, term.shape, term.offset)
(0,) (1,) 4
(1,) (4,) 0
>>> pad_by_mode(u, [(1, 0)], "edge").terms[0].offset
0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....formats.entries.integers import row_strides
from ..arithmetic import add
from ..linear import Linear, reshape
from ..positions import take
from ..structural import broadcast_to, concatenate, pad, reverse
from .replace import cut

_PIECES = 8  # of a shuffled axis that are slices


def along(x: Linear, axis: int, index: np.ndarray) -> Linear:
    """`np.take(x, index, axis)` for indices that are not negative."""
    axis, index = axis % x.ndim, np.asarray(index)
    if not len(index):
        return cut(x, axis, 0, 0)
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
    piece = cut(x, axis, min(first, last), max(first, last) + 1)
    if last < first:
        return reverse(piece, [axis])
    if n > 1 and first == last:  # one element again and again
        return broadcast_to(piece, [n if a == axis else m for a, m in enumerate(x.shape)])
    return piece


def roll(x: Linear, shifts: Any, axes: Any = None) -> Linear:
    """`np.roll`."""
    if axes is None:
        return reshape(roll(reshape(x, (x.size,)), shifts, 0), x.shape)
    for shift, axis in np.broadcast(shifts, axes):
        n = x.shape[axis]
        if n and shift % n:
            x = along(x, axis, np.roll(np.arange(n), shift))
    return x


def pad_by_mode(x: Linear, widths: Sequence[tuple[int, int]], mode: str) -> Linear:
    """`np.pad` by elements of the array (edge, reflect, symmetric, wrap); negative widths cut."""
    for axis, (lo, hi) in enumerate(widths):
        if (lo, hi) != (0, 0):
            x = along(x, axis, _padded(x.shape[axis], lo, hi, mode))
    return x


def pad_by_mode_adjoint(x: Linear, widths: Sequence[tuple[int, int]], mode: str) -> Linear:
    """The transpose of `pad_by_mode`: each element is added to the one that it came from."""
    for axis, (lo, hi) in enumerate(widths):
        n = x.shape[axis] - lo - hi
        sources = _padded(n, lo, hi, mode)
        inside = pad(x, [(-lo, -hi, 0) if a == axis else (0, 0, 0) for a in range(x.ndim)]) if lo or hi else x
        for k in (*range(lo), *range(lo + n, len(sources))):
            place = (int(sources[k]), n - 1 - int(sources[k]), 0)
            inside = add(
                inside, pad(cut(x, axis, k, k + 1), [place if a == axis else (0, 0, 0) for a in range(x.ndim)])
            )
        x = inside
    return x


def _padded(n: int, lo: int, hi: int, mode: Any) -> np.ndarray:
    """The source of each element along a padded axis."""
    index = np.pad(np.arange(n), (max(lo, 0), max(hi, 0)), mode=mode)
    return index[max(-lo, 0) : len(index) - max(-hi, 0)]
