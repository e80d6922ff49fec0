"""Conversion of stencil boxes to diagonals by whole-array operations instead of gathers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....backends import Array, Backend, get_backend
from .grid import row_strides

Grid = tuple[int, ...]


class Shifted(NamedTuple):
    """The rows `lo + i` of the output's grid, i in a box of `shape`, have an entry each in column `start + i`."""

    lo: Grid
    shape: Grid
    start: Grid  # on the grid of the input

    @property
    def rows(self) -> tuple[slice, ...]:
        return tuple(slice(a, a + n) for a, n in zip(self.lo, self.shape))

    @property
    def cols(self) -> tuple[slice, ...]:
        return tuple(slice(a, a + n) for a, n in zip(self.start, self.shape))

    @property
    def shift(self) -> Grid:
        """From a row to its column, along each axis."""
        return tuple(s - a for s, a in zip(self.start, self.lo))

    def overlaps(self, other: Shifted) -> bool:
        """Does another box have an entry in the same place?"""
        ranges = zip(self.lo, self.shape, other.lo, other.shape)
        return self.shift == other.shift and all(max(a, b) < min(a + k, b + n) for a, k, b, n in ranges)


@dataclass(frozen=True)
class BoxDiagonals:
    """Differentiable conversion of box values to diagonals `(k, n)`, traced or not, in every library.

    Attributes:
        grid: of the rows.
        boxes: no two of which share a place.
        where: for each box the number of its diagonal; None: it has no entries.
        offsets: of the diagonals, rising.
    """

    grid: Grid
    boxes: tuple[Shifted, ...]
    where: tuple[int | None, ...]
    offsets: tuple[int, ...]

    @classmethod
    def of(cls, boxes: Sequence[Shifted], out_grid: Grid, in_grid: Grid) -> BoxDiagonals | None:
        """None where a box has entries on several diagonals, as its rows and columns are on grids of two widths."""
        strides = list(zip(row_strides(out_grid), row_strides(in_grid)))
        found: list[int | None] = []
        for box in boxes:
            if any(n > 1 and by_row != by_col for n, (by_row, by_col) in zip(box.shape, strides)):
                return None
            first = sum(b * c - a * r for a, b, (r, c) in zip(box.lo, box.start, strides))
            found.append(first if math.prod(box.shape) else None)
        offsets = sorted({o for o in found if o is not None})
        number: dict[int | None, int] = {o: d for d, o in enumerate(offsets)}
        return cls(tuple(out_grid), tuple(boxes), tuple(map(number.get, found)), tuple(offsets))

    def __call__(self, bk: Backend, values: Sequence[Array], systems: int | None = None) -> tuple[Array, ...]:
        """One value for each box, a number or an array of its shape; of a batch with one more axis in front.

        Cost: a pass over the grid for each box.
        """
        lead, n = () if systems is None else (systems,), math.prod(self.grid)
        rows: list[Array | None] = [None] * len(self.offsets)
        for d, box, value in zip(self.where, self.boxes, values, strict=True):
            if d is None:
                continue
            if len(value.shape) == len(lead):
                value = bk.broadcast_to(bk.reshape(value, (*lead, *(1,) * len(box.shape))), (*lead, *box.shape))
            corner, row = (*(0,) * len(lead), *box.lo), rows[d]
            if row is None:
                ends = zip(corner, (*lead, *box.shape), (*lead, *self.grid))
                rows[d] = bk.pad(value, [(a, whole - a - k) for a, k, whole in ends])
            else:  # the box beyond a periodic border may lie on the same diagonal
                rows[d] = bk.add_box(row, corner, value)
        if not rows:
            return (bk.zeros((*lead, 0, n), bk.dtype(values[0]), values[0]),)
        return (bk.concat([bk.reshape(row, (*lead, 1, n)) for row in rows], len(lead)),)

    def spread(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """`(k, n)` of known values of any dtype."""
        return self(get_backend("numpy"), values)[0]


@dataclass(frozen=True)
class Covered:
    """Lazy `(k, n)` bool: the places of the diagonals that lie in a box."""

    diagonals: BoxDiagonals

    def __call__(self) -> np.ndarray:
        return self.diagonals.spread([np.array(True)] * len(self.diagonals.boxes))


def without_zeros(box: Shifted, value: np.ndarray, systems: int | None) -> tuple[Shifted, np.ndarray] | None:
    """Trim a box and its known value to what is not 0 in any system; None where zeros are left among others.

    A box that is 0 throughout comes without places, and with a number.
    """
    lead = 0 if systems is None else 1
    used = (value != 0).any(axis=tuple(range(lead)))
    if not used.any() or not math.prod(box.shape):
        return Shifted(box.lo, (0,) * len(box.shape), box.start), np.zeros(value.shape[:lead], value.dtype)
    if not used.ndim:
        return box, value
    ends = [(int(places[0]), int(places[-1]) + 1) for places in map(np.flatnonzero, _shadows(used))]
    part = tuple(slice(*end) for end in ends)
    if not used[part].all():
        return None
    first = tuple(a for a, _ in ends)
    lo, start = (tuple(map(sum, zip(corner, first))) for corner in (box.lo, box.start))
    return Shifted(lo, tuple(b - a for a, b in ends), start), value[(slice(None),) * lead + part]


def _shadows(mask: np.ndarray) -> list[np.ndarray]:
    """Projections of a mask on each axis."""
    axes = range(mask.ndim)
    return [np.logical_or.reduce(mask, axis=tuple(k for k in axes if k != axis)) for axis in axes]
