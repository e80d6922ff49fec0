"""Boxes of a stencil: shifted copies of an array on a grid, times values; their products and their diagonals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, get_backend
from ...backends.interface.kernels import Arrays, Bilinear
from .entries.integers import row_strides

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


# --- products ---

_THIN = 8  # times smaller than the grid: added in place, as the wrapped rows of a periodic stencil are


@dataclass(frozen=True)
class StencilForm(Bilinear):
    """Products of boxes; there is one value for each: a number, or an array of its shape (or one for each row)."""

    out_grid: Grid
    in_grid: Grid
    boxes: tuple[Shifted, ...]
    numbers: tuple[bool, ...]  # for each box: is its value a number?

    def product(self, bk: Any, values: Arrays, indices: Arrays, x: Array) -> Array:
        return _product(bk, self, values, x)

    def product_transposed(self, bk: Any, values: Arrays, indices: Arrays, y: Array) -> Array:
        return _product(bk, self.flipped(), values, y)

    def sample(self, bk: Any, indices: Arrays, y: Array, x: Array, each: bool = False) -> Arrays:
        batch = int(x.shape[0])
        ys, xs = bk.reshape(y, (batch, *self.out_grid)), bk.reshape(x, (batch, *self.in_grid))
        found = []
        for box, number in zip(self.boxes, self.numbers):
            both = ys[(slice(None), *box.rows)] * xs[(slice(None), *box.cols)]
            axes = (*(() if each else (0,)), *(range(1, len(box.shape) + 1) if number else ()))
            found.append(bk.sum(both, axes) if axes else both)
        return tuple(found)

    def flipped(self) -> StencilForm:
        """The form of the transpose."""
        boxes = tuple(Shifted(box.start, box.shape, box.lo) for box in self.boxes)
        return StencilForm(self.in_grid, self.out_grid, boxes, self.numbers)

    @cached_property
    def natural(self) -> tuple[bool, ...]:
        """Mask of the boxes that hold all rows whose column is on the grid: zero padding of the input suffices."""
        return tuple(
            all(
                a == max(0, a - s) and a + k == min(n, m + a - s)
                for a, k, s, n, m in zip(box.lo, box.shape, box.start, self.out_grid, self.in_grid)
            )
            for box in self.boxes
        )

    @cached_property
    def thin(self) -> tuple[bool, ...]:
        """Mask of the boxes that are too small for a pass over the grid."""
        return tuple(_THIN * math.prod(box.shape) < math.prod(self.out_grid) for box in self.boxes)

    @cached_property
    def margins(self) -> tuple[tuple[int, int], ...] | None:
        """Widths of the zero padding that `shared` boxes need; None if there are not two such boxes."""
        shared = [box for box, is_shared in zip(self.boxes, self.shared) if is_shared]
        if len(shared) < 2:
            return None
        shifts = zip(*(box.shift for box in shared))
        return tuple(
            (max(0, -min(shift)), max(0, n + max(shift) - m))
            for shift, n, m in zip(shifts, self.out_grid, self.in_grid)
        )

    @cached_property
    def shared(self) -> tuple[bool, ...]:
        """Mask of the natural boxes with a number that are worth a pass over the grid."""
        every = zip(self.numbers, self.natural, self.thin)
        return tuple(number and natural and not thin for number, natural, thin in every)


def _product(bk: Any, form: StencilForm, values: Arrays, x: Array) -> Array:
    batch = int(x.shape[0])
    grid = bk.reshape(x, (batch, *form.in_grid))
    values = tuple(
        bk.reshape(value, (batch, *(1,) * len(box.shape))) if number and len(value.shape) else value  # one for each row
        for box, number, value in zip(form.boxes, form.numbers, values, strict=True)
    )
    image = bk.boxes_product(form.boxes, values, grid, form.out_grid)
    if image is None:
        image = _by_windows(bk, form, values, grid) if bk.has_windows else _by_margins(bk, form, values, grid)
    return bk.reshape(image, (batch, math.prod(form.out_grid)))


def _by_windows(bk: Any, form: StencilForm, values: Arrays, grid: Array) -> Array:
    """Shifted copies of the whole input, with zeros around, which one pass adds up; thin boxes are put in place.

    Where arrays are spread over devices a shift takes one message to the neighbour, and everything else several, so
    there thin boxes and those of arrays are such copies, too.
    """
    whole = form.natural if bk.spreads_arrays() else form.shared
    image = None
    for box, number, value, shifts in zip(form.boxes, form.numbers, values, whole, strict=True):
        if shifts:
            part = bk.window(grid, box.shift, form.out_grid)
            part = part * (value if number else bk.window(value, [-a for a in box.lo], form.out_grid))
            image = part if image is None else image + part
    return _with_boxes(bk, form, values, grid, image, whole)


def _by_margins(bk: Any, form: StencilForm, values: Arrays, grid: Array) -> Array:
    """Boxes that are cut only by the border share one copy of the input with zeros around; others are put in place."""
    margins, image = form.margins, None
    if margins is None:
        return _with_boxes(bk, form, values, grid, None, (False,) * len(form.boxes))
    padded = bk.pad(grid, ((0, 0), *margins))
    for box, value, is_shared in zip(form.boxes, values, form.shared, strict=True):
        if is_shared:
            starts = [s + before for s, (before, _) in zip(box.shift, margins)]
            part = padded[(slice(None), *(slice(s, s + n) for s, n in zip(starts, form.out_grid)))] * value
            image = part if image is None else image + part
    return _with_boxes(bk, form, values, grid, image, form.shared)


def _with_boxes(
    bk: Any, form: StencilForm, values: Arrays, grid: Array, image: Any, done: Sequence[bool]
) -> Array:  # fmt: skip
    """Add the remaining boxes to the image, thin ones in place."""
    everything, thin = slice(None), []
    for box, value, is_thin, is_done in zip(form.boxes, values, form.thin, done, strict=True):
        if is_done:
            continue
        if is_thin:
            thin.append((box, value))
            continue
        widths = [(a, n - a - k) for a, k, n in zip(box.lo, box.shape, form.out_grid)]
        part = bk.pad(grid[(everything, *box.cols)] * value, ((0, 0), *widths))
        image = part if image is None else image + part
    if image is None:
        image = bk.zeros((int(grid.shape[0]), *form.out_grid), bk.dtype(grid), grid)
    for box, value in thin:
        image = bk.add_box(image, (0, *box.lo), grid[(everything, *box.cols)] * value)
    return image
