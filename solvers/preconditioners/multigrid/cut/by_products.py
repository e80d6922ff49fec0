"""Stencil coefficients of a function by its products, where its values are not known: they stay spread as vectors are.

What a trace finds are flat diagonals, which no compiler spreads over several axes of a mesh. The images of vectors with
ones in every third point show the same numbers, point by point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .....backends import Array, Cut
from .....sparse import FunctionOperator, Operator
from .....sparse.operators.couplings import Couplings, Shift, Stacked
from .....sparse.operators.on_grid import on_grid
from ..probes import colours_of


def couplings_by_products(
    A: Operator, grid: tuple[int, ...], shifts: tuple[Shift, ...], rings: tuple[bool, ...], cut: Cut
) -> Couplings:
    """Stencil coefficients of A, of which the offsets are known.

    Cost: a product for every colour, 3^d on most grids, and one with zero.
    """
    bk, here = A.bk, (0,) * len(grid)
    own = on_grid(A.with_constant(None) if isinstance(A, FunctionOperator) else A, grid)
    colours = [colours_of(n, ring) for n, ring in zip(grid, rings)]
    counts = [int(each.max()) + 1 for each in colours]
    tables = [_table(each, axis, shifts, rings[axis], len(grid)) for axis, each in enumerate(colours)]
    start = bk.zeros((len(shifts), 1, *grid), A.dtype, getattr(A, "like", None))
    values = bk.spread_over(start, cut, -2)

    def image_of(cells: Array) -> Array:
        rows = bk.on_grid(bk.spread_over(cells, cut, -1), grid, Cut(cut.mesh, cut.names))
        return bk.cells(own.apply(rows), grid)

    of_zero = bk.spread_over(image_of(values[0]), cut, -1)  # as a grid: what an operator subtracts itself is flat

    def body(state: tuple[Array, Array]) -> tuple[Array, Array]:
        colour, found = state
        number: Any = 0
        for table, count in zip(tables, counts):  # not known to the compiler, which would make one large array of them
            each = bk.materialize(bk.asarray(table, like=found))
            number = bk.where((number < 0) | (each < 0), 0 * each - 1, number * count + each)
        has_it = bk.spread_over(number == colour, cut, -1)
        image = image_of(bk.astype(has_it[shifts.index(here)][None], A.dtype)) - of_zero
        return colour + 1, bk.spread_over(bk.where(has_it[:, None], image[None], found), cut, -2)

    count = int(np.prod(counts))
    values = bk.for_loop(count, body, (bk.asarray(np.zeros(1, np.int32), like=values), values))[1]
    return Couplings(bk, grid, rings, Stacked(shifts, bk.constant(values)), None)


def _table(colours: np.ndarray, axis: int, shifts: tuple[Shift, ...], ring: bool, axes: int) -> np.ndarray:
    """Colour of the neighbour in the direction of each offset along an axis, -1 off the grid; `(shifts, .., n, ..)`."""
    n = len(colours)
    there = np.arange(n) + np.array([shift[axis] for shift in shifts])[:, None]
    found = np.where(ring | ((there >= 0) & (there < n)), colours[there % n], -1).astype(np.int32)
    return found.reshape([len(shifts), *(n if k == axis else 1 for k in range(axes))])
