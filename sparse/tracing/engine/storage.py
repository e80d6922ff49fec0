"""Strided views of the elements of one storage: read, replaced, added to.

Views need no rules of their own: they are slices of the storage in some shape. On 3 x 4 elements, the columns 1 and 2:

>>> View((3, 2), (4, 1), 1).positions
array([[ 1,  2],
       [ 5,  6],
       [ 9, 10]], dtype=int32)
>>> next(_slices(np.zeros(12), View((3, 2), (4, 1), 1), ()))
((3, 4), Slices(starts=(0, 1), steps=(1, 1), counts=(3, 2), axes=(0, 1)))
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ....backends import Backend
from ...formats.entries.integers import affine, row_strides
from . import coefficients as co
from .arithmetic import add
from .linear import Linear, reshape
from .operands import Operand, permuted, reshaped, shape_of, taken
from .positions import replace_elements, scatter_add
from .structural import Slices, embed, replace_box, slice_rows, slices_at

Grids = Sequence[tuple[int, ...]]


class View(NamedTuple):
    """The elements `offset + sum(strides * i)` of a storage, for all i in `shape`."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @property
    def positions(self) -> np.ndarray:
        """Positions of its elements in the storage."""
        return affine(self.offset, self.strides, self.shape)

    def is_all(self, size: int) -> bool:
        """Whether it holds all elements of a storage of this size, in their order."""
        if self.offset or math.prod(self.shape) != size:
            return False
        return all(s == t or n == 1 for s, t, n in zip(self.strides, row_strides(self.shape), self.shape))


def _slices(value: Operand, view: View, grids: Grids) -> Iterator[tuple[tuple[int, ...], Slices]]:
    """Shapes of the storage in which the view is slices of it: its own, the given ones, what the strides tell, flat."""
    if 0 in view.shape:
        return
    for grid in itertools.chain([shape_of(value)], grids, _told(value, view)):
        found = slices_at(view.offset, view.strides, view.shape, grid)
        if found is not None:
            yield grid, found


def _told(value: Operand, view: View) -> Iterator[tuple[int, ...]]:
    size = math.prod(shape_of(value))
    strides = sorted({s for s, n in zip(view.strides, view.shape) if s > 0 and n > 1} | {1}, reverse=True)
    steps = [size, *strides]
    if all(a % b == 0 for a, b in itertools.pairwise(steps)):
        yield tuple(a // b for a, b in itertools.pairwise(steps))
    yield (size,)


def read(bk: Backend, value: Operand, view: View, grids: Grids = ()) -> Operand:
    """The elements of a view of a storage that holds `value`; `grids` are shapes in which it may be slices."""
    if 0 in view.shape:
        return np.zeros(view.shape, value.dtype if isinstance(value, Linear) else co.dtype_of(bk, value))
    if view.is_all(math.prod(shape_of(value))):
        return reshaped(bk, value, view.shape)
    if isinstance(value, Linear):
        for grid, found in _slices(value, view, grids):
            return slice_rows(reshape(value, grid), found, view.shape)
    return taken(bk, value, view.positions)


def replace(bk: Backend, old: Operand, view: View, value: Operand, grids: Grids = ()) -> Operand:
    """What a storage holds, in some shape, after an array was written to a view of its shape."""
    if isinstance(old, Linear) or isinstance(value, Linear):
        for grid, found in _slices(old, view, grids):
            is_full = all(axis >= 0 or n == 1 for axis, n in zip(found.axes, view.shape))
            if is_full and all(step in (0, 1) for step in found.steps):
                return replace_box(reshaped(bk, old, grid), _on_grid(bk, value, found), found.starts)
    return replace_elements(bk, old, view.positions, value)


def _on_grid(bk: Backend, value: Operand, found: Slices) -> Operand:
    """An array that lies at these slices, with the axes of the grid."""
    used = [axis for axis in found.axes if axis >= 0]
    part = reshaped(bk, value, [n for axis, n in zip(found.axes, shape_of(value)) if axis >= 0])
    part = permuted(bk, part, [used.index(axis) for axis in sorted(used)])
    return reshaped(bk, part, found.counts)


def accumulate(bk: Backend, old: Operand, view: View, value: Linear, grids: Grids = ()) -> Linear:
    """As `replace`, where the array is added to what the view holds."""
    for grid, found in _slices(old, view, grids):
        embedded = embed(value, found, grid)
        if embedded is not None:
            return add(reshaped(bk, old, grid), embedded)
    return scatter_add(old, view.positions, value)
