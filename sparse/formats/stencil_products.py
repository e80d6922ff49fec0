"""Stencil products: shifted copies of an array on a grid, times values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ...backends import Array
from ...backends.interface.kernels import Arrays, Bilinear
from .entries.box_diagonals import Grid, Shifted

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
