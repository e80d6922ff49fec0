"""Stencils and functions on grids that are cut over a device mesh: products by one exchange along each cut axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, Cut
from ..errors import UnsupportedOperation
from ..formats.boxes import Shifted
from ..operator import Operator
from ..tracing.front_end import front_end_of
from ..tracing.matrix_from_function import TracedBox, traced_boxes
from ..tracing.peeling import lattice
from .composed import Composed
from .couplings import Shift
from .function import DerivedFunction, FunctionOperator
from .halo import Axes, reach, windows
from .wrappers import OnGrid


@dataclass(eq=False, repr=False)
class CutStencil(Composed):
    """`image[x] = sum over k of values[k][x] * u[x + shifts[k]]` on a grid that is cut over a device mesh.

    Attributes:
        values: for each shift a number, an array `(*grid)`, or one for each system, `(systems, *grid)`; arrays are
            spread as the grid is. They are zero in rows whose column is not on the grid; numbers need not be.
        shifts: steps along each axis, shorter than a block.
        grid: lengths of the axes, which the parts divide.
        periodic: which of them are closed to rings.
        cut: how the grid is distributed.

    Cost: two messages for each cut axis, as wide as the longest step along it; a pass over the values.
    """

    parts = ("values",)
    keeps_grids = True
    is_container = True

    values: tuple[Array, ...]
    shifts: tuple[Shift, ...]
    grid: tuple[int, ...]
    periodic: tuple[bool, ...]
    spread: Cut
    bk: Backend
    dtype: np.dtype

    def _settle(self) -> None:
        self.shape = (math.prod(self.grid),) * 2
        self.systems = None

    @property
    def own_grid(self) -> tuple[int, ...]:
        return self.grid

    def astype(self, dtype: np.dtype) -> Operator:
        return self if dtype == self.dtype else replace(super().astype(dtype), dtype=np.dtype(dtype))  # type: ignore[type-var]

    def apply(self, x: Array) -> Array:
        bk = self.bk

        def on_block(u: Array, *values: Array) -> Array:
            around = windows(bk, u, self.shifts, self._axes)
            terms = [value * window for value, window in zip(values, around, strict=True)]
            return sum(terms[1:], start=terms[0])

        leads = [1, *map(self._lead, self.values)]
        return bk.as_rows(bk.map_parts(on_block, self.spread, [bk.cells(x, self.grid), *self.values], leads, 1), x)

    def transpose(self) -> Operator:
        """Cost: an exchange of the values, once."""
        back = tuple(tuple(-s for s in shift) for shift in self.shifts)
        arrays = [k for k, value in enumerate(self.values) if self._lead(value) is not None]
        values = list(self.values)
        if arrays:

            def on_block(*own: Array) -> tuple[Array, ...]:
                moved = []
                for k, value in zip(arrays, own, strict=True):
                    rows = value if self._lead(values[k]) else value[None]
                    (window,) = windows(self.bk, rows, [back[k]], self._axes)
                    moved.append(window if self._lead(values[k]) else window[0])
                return tuple(moved)

            given = [values[k] for k in arrays]
            leads = [self._lead(value) for value in given]
            for k, value in zip(
                arrays, self.bk.map_parts(on_block, self.spread, given, leads, tuple(leads)), strict=True
            ):
                values[k] = value
        return replace(self, values=tuple(values), shifts=back)

    def own_diagonal(self) -> CutStencil:
        """The diagonal alone."""
        here = (0,) * len(self.grid)
        if here not in self.shifts:
            return replace(self, values=(0 * self.values[0],), shifts=(here,))
        return replace(self, values=(self.values[self.shifts.index(here)],), shifts=(here,))

    @property
    def _axes(self) -> Axes:
        return self.spread.axes(self.periodic)

    def _lead(self, value: Array) -> int | None:
        axes = len(value.shape)
        return axes - len(self.grid) if axes else None

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        raise UnsupportedOperation("A stencil on a grid that is spread over devices has no form on the host.")


@dataclass(eq=False, repr=False)
class InSteps(Composed):
    """`inner`, which iterations multiply by another form of; true residuals are of `inner`."""

    parts = ("inner", "form")
    passes_grids = True

    inner: Operator
    form: Operator

    def _settle(self) -> None:
        super()._settle()
        self.products = self.inner.products  # type: ignore[misc]

    @property
    def in_steps(self) -> Operator:
        return self.form

    @property
    def own_grid(self) -> tuple[int, ...] | None:
        return self.form.own_grid

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x)

    def transpose(self) -> Operator:
        return self._map(lambda A: A.transpose())


# --- Coefficients of a function on such a grid, spread as the grid is ---
# Which points a point depends on is traced, and so are coefficients that are numbers. Arrays are measured by the
# function itself inside the program, which then holds no array that lies on each device in full: products with vectors
# of ones in points of one colour, where all neighbours of a point have different colours.

_MOST_COLOURS = 64  # products that measure coefficients


class Part(NamedTuple):
    """What belongs to one offset, after wrapping around."""

    boxes: list[TracedBox]
    number: Any  # of all rows whose column is on the grid; None: an array


def cut_stencil(A: Operator, cut: Cut, like: Array) -> Operator | str:
    """A function on a grid as a stencil of blocks; in words why not, where it has none.

    Args:
        A: the function, its transpose or its conjugate.
        cut: how the grid is distributed.
        like: rows that are kept as such grids.

    Cost: a trace, and where coefficients are arrays a product for each colour: 5 or 7 for five points in two
    dimensions or seven in three, 3^d with corners.
    """
    if isinstance(A, DerivedFunction):
        own = cut_stencil(A.function, cut, like)
        if isinstance(own, str):
            return own
        turned = own.transpose() if A.transposed else own
        return turned.conj() if A.conjugated else turned
    grid = A.own_grid
    if not isinstance(A, FunctionOperator) or grid is None or not cut.divides(grid):
        return "is no function of one array whose axes divide"
    boxes = _boxes_of(A, grid)
    if not boxes:
        return "is no stencil that can be traced"
    parts, rings = _by_offset(boxes, grid)
    blocks = [n // k if k > 1 else n for n, k in zip(grid, cut.parts, strict=True)]
    far = next((shift for shift in parts if any(abs(s) > n for s, n in zip(shift, blocks, strict=True))), None)
    if far is not None:
        return f"reaches {far}, further than the next block"
    values = _values(A.bk, parts, rings, grid, OnGrid(A.with_constant(None), grid), like)
    if values is None:
        return f"needs more than {_MOST_COLOURS} products to measure its coefficients"
    bk = A.bk
    arrays = [
        value if not len(value.shape) else bk.spread_over(value, cut, len(value.shape) - len(grid)) for value in values
    ]
    return CutStencil(tuple(arrays), tuple(parts), grid, tuple(rings), cut, bk, A.dtype)


def _boxes_of(A: FunctionOperator, grid: tuple[int, ...]) -> list[TracedBox] | None:
    """On the grid of one system; None where systems depend on each other."""
    bk, layout = A.bk, A.layout
    shape = (layout.systems, *grid) if layout.batch else grid

    def image(u: Any) -> Any:
        return bk.reshape(A.apply(bk.reshape(u, (layout.systems, layout.size))), shape)

    found = traced_boxes(front_end_of(bk.name), image, bk.zeros(shape, A.dtype, A.like))
    if found is None or not layout.batch:
        return found
    if any(box.shift[0] for box in found):
        return None
    return [_of_each(box, layout.systems) for box in found]


def _of_each(part: TracedBox, systems: int) -> TracedBox:
    """What holds for each system; None for the box where they may have numbers of their own."""
    box, number = part.box, part.number
    if box is None or box.shape[0] != systems:
        return TracedBox(part.shift[1:], None, None)
    return TracedBox(part.shift[1:], Shifted(box.lo[1:], box.shape[1:], box.start[1:]), number)


def _by_offset(boxes: Sequence[TracedBox], grid: tuple[int, ...]) -> tuple[dict[Shift, Part], list[bool]]:
    """Offsets of at most half an axis: longer ones are steps around a ring."""
    rings = [any(2 * abs(box.shift[axis]) > n for box in boxes) for axis, n in enumerate(grid)]
    found: dict[Shift, list[TracedBox]] = {}
    for box in boxes:
        steps = zip(box.shift, grid, rings, strict=True)
        shift = tuple(n // 2 - (n // 2 - step) % n if ring else step for step, n, ring in steps)
        found.setdefault(shift, []).append(box)
    return {shift: Part(of, _number(of, shift, grid, rings)) for shift, of in sorted(found.items())}, rings


def _number(boxes: Sequence[TracedBox], shift: Shift, grid: tuple[int, ...], rings: Sequence[bool]) -> Any:
    """The coefficient of all rows whose column is on the grid; None where they have several."""
    own = [box.box for box in boxes]
    if any(box is None for box in own) or any(a.overlaps(b) for a, b in itertools.combinations(own, 2)):  # type: ignore[union-attr, arg-type]
        return None
    rows = math.prod(n if ring else n - abs(s) for n, s, ring in zip(grid, shift, rings, strict=True))
    if sum(math.prod(box.shape) for box in own if box is not None) != rows:
        return None
    first, *others = (box.number for box in boxes)
    known = all(isinstance(box.number, int | float | complex | np.ndarray | np.generic) for box in boxes)
    return first if not others or (known and all(number == first for number in others)) else None


def _values(
    bk: Backend,
    parts: dict[Shift, Part],
    rings: Sequence[bool],
    grid: tuple[int, ...],
    product: Operator,
    like: Array,
) -> list[Array] | None:
    """A number or an array for each offset; None where there would be too many colours."""
    dtype = product.dtype
    numbers = {s: bk.astype(bk.asarray(p.number, like=like), dtype) for s, p in parts.items() if p.number is not None}
    arrays = [shift for shift in parts if shift not in numbers]
    if not arrays:
        return [numbers[shift] for shift in parts]
    colours = _colours([*parts], grid, rings)
    if colours.number > _MOST_COLOURS:
        return None
    found = _measured(bk, arrays, colours, grid, rings, product, like)
    measured = dict(zip(arrays, found, strict=True))
    return [numbers.get(shift, measured.get(shift)) for shift in parts]


class _Colours(NamedTuple):
    """The colour of a point is the sum of a number for each of its coordinates, modulo `number`."""

    number: int
    tables: list[np.ndarray]  # for each axis


def _colours(shifts: Sequence[Shift], grid: tuple[int, ...], rings: Sequence[bool]) -> _Colours:
    """A lattice where that closes on all rings, else three or more colours along each axis."""
    found = lattice(shifts, len(grid))
    if found is not None and not any(w * n % found[0] for w, n, ring in zip(found[1], grid, rings) if ring):
        modulus, weights = found
        return _Colours(modulus, [w * np.arange(n) % modulus for w, n in zip(weights, grid)])
    before, after = reach(shifts)
    tables, count = [], 1
    for n, ring, low, high in zip(grid, rings, before, after, strict=True):
        own = _along_axis(n, ring, low + high + 1)
        tables.append(own * count)
        count *= int(own.max()) + 1
    return _Colours(count, tables)


def _along_axis(n: int, ring: bool, span: int) -> np.ndarray:
    """Colours of n points: `span` of them in a row, around a ring too, have different ones."""
    rest = n % span if ring else 0  # so many runs of one more
    if rest * (span + 1) > n:
        return np.arange(n)
    return np.concatenate([np.tile(np.arange(span + 1), rest), np.arange(n - rest * (span + 1)) % span])


def _measured(
    bk: Backend,
    shifts: Sequence[Shift],
    colours: _Colours,
    grid: tuple[int, ...],
    rings: Sequence[bool],
    product: Operator,
    like: Array,
) -> list[Array]:
    """`(*grid)` for each offset, or `(systems, *grid)`: the image of the colour of its column."""
    own = _number_of(bk, colours, grid, rings, (0,) * len(grid), like)
    theirs = [_number_of(bk, colours, grid, rings, shift, like) for shift in shifts]
    systems = int(like.shape[0])
    zero = bk.zeros((systems, *grid), product.dtype, like)

    def image_of(cells: Array) -> Array:
        return bk.cells(product.apply(bk.as_rows(cells, like)), grid)

    of_zero = image_of(zero)  # as a grid: the constant that an operator knows is flat, and would be gathered

    def add(state: tuple[Any, ...]) -> tuple[Any, ...]:
        colour, *sums = state
        image = image_of(bk.where(own == colour, zero + 1, zero)) - of_zero
        return colour + 1, *(bk.where(each == colour, image, total) for each, total in zip(theirs, sums, strict=True))

    first = bk.asarray(np.zeros((), np.int32), like=like)
    _, *found = bk.for_loop(colours.number, add, (first, *[zero] * len(shifts)))
    return [array if systems > 1 else array[0] for array in found]


def _number_of(
    bk: Backend, colours: _Colours, grid: tuple[int, ...], rings: Sequence[bool], shift: Shift, like: Array
) -> Array:  # fmt: skip
    """Colours of the points at an offset, -1 off the grid."""
    total: Any = 0
    for axis, (table, n, ring, step) in enumerate(zip(colours.tables, grid, rings, shift, strict=True)):
        there = np.arange(n) + step
        on_grid = ring | ((there >= 0) & (there < n))
        along = np.where(on_grid, table[there % n], -colours.number * (len(grid) + 1)).astype(np.int32)
        total = total + bk.asarray(along.reshape([-1 if k == axis else 1 for k in range(len(grid))]), like=like)
    return bk.where(total < 0, 0 * total - 1, total % colours.number)
