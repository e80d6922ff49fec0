"""The multigrid cycle on a cut grid, as an operator: all of it one function of blocks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .....backends import Array
from .....sparse import Composed, Operator, UnsupportedOperation
from .....sparse.operators.couplings import neighbours, opposite, shifted_array
from .....sparse.operators.halo import names_of
from ..cycle import LevelParts, cycle_over, work_of
from ..on_grid import MatrixOnGrid
from ..transfer import Interpolation
from .gathered import GatheredCycle
from .levels import CutArrays, CutSetup


@dataclass(eq=False, repr=False)
class CutMultigrid(Composed):
    """A cycle on a grid that is cut over a device mesh.

    Attributes:
        scale, sign, levels, coarse: see `CutArrays`; spread over the mesh, but for what is of the gathered grid.
        setup: how it was made.

    Cost: for each level and side of a cut axis a message for each product, and one message up and one down for each
    axis; one all-gather of the residual on the gathered grid. Nothing else leaves a device.
    """

    parts = ("scale", "sign", "levels", "coarse")
    keeps_grids = True
    is_container = True

    scale: Array
    sign: Array
    levels: tuple[Array, ...]
    coarse: Operator
    setup: CutSetup

    @classmethod
    def of(cls, arrays: CutArrays, setup: CutSetup) -> CutMultigrid:
        """From what was set up."""
        return cls(*arrays, setup)

    def _settle(self) -> None:
        self.bk = self.setup.bk
        self.shape = (math.prod(self.setup.grid),) * 2
        self.dtype = np.dtype(self.bk.dtype(self.scale))
        self.systems = int(self.scale.shape[0]) if self.setup.batch else None

    @property
    def in_shape(self) -> tuple[int, ...]:
        return self.setup.grid

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self.setup.grid

    def apply(self, x: Array) -> Array:
        if self.bk.in_program():
            return _applied(x, self)
        return self.bk.compile_if_faster(_applied, ())(x, self)

    def transpose(self) -> Operator:
        if self.setup.hermitian:
            return self.conj() if self.dtype.kind == "c" else self
        turned = _transposed
        if not self.bk.in_program():
            turned = self.bk.compile_if_faster(_transposed, ())
        return replace(self, levels=turned(self.levels, self), coarse=self.coarse.transpose())

    def on_backend(self, bk: Any, like: Array | None) -> Operator | None:
        return self if bk is self.bk else None

    def for_host(self) -> Any:
        raise UnsupportedOperation(
            "Multigrid on a grid that is spread over devices has no form on the host; make it of the matrix there."
        )

    @property
    def work(self) -> int:
        """Multiplications of one application, in all systems."""
        sizes = [math.prod(map(int, array.shape)) for array in self.levels]
        products = 2 * self.setup.smoothing.degree + self.setup.smoothing.visits - 1
        found = work_of(self.coarse)
        for values, weights in reversed([*zip(sizes[::2], sizes[1::2])]):
            found = products * values + self.setup.smoothing.visits * (2 * weights + found)
        return found + 2 * math.prod(map(int, self.scale.shape))

    def matrices(self) -> list[tuple[tuple[tuple[int, ...], ...], tuple[int, ...]]]:
        """Offsets of each level's matrix, and the grid of each block."""
        this = self.setup
        grids = map(this.cut.local, this.plan.grids)
        every = neighbours(len(this.grid))
        return [(tuple(every if k else this.shifts), grid) for k, grid in enumerate(grids)]


def _applied(x: Any, M: CutMultigrid) -> Any:
    this, bk = M.setup, M.bk
    rows = bk.cells(x, this.grid)
    added = [n - m for n, m in zip(this.plan.grid, this.grid)]
    if any(added):
        rows = bk.pad(rows, [(0, 0), *((0, n) for n in added)])
    count = len(M.levels)

    def on_block(own: Array, scale: Array, sign: Array, coarse: Operator, *levels: Array) -> Array:
        flat = bk.reshape(own, (int(own.shape[0]), -1))
        scale, sign = (bk.reshape(each, (int(each.shape[0]), -1)) for each in (scale, sign))
        found = scale * _in_range(_cycle(M, levels, coarse), sign * (scale * flat), this)
        return bk.reshape(found, tuple(map(int, own.shape)))

    arrays, leads = (rows, M.scale, M.sign, M.coarse, *M.levels), (1, -1, None, None, *(-2,) * count)
    found = bk.map_parts(on_block, this.cut, arrays, leads, 1)
    if any(added):
        found = found[(slice(None), *map(slice, this.grid))]
    return bk.as_rows(found, x)


def _cycle(M: CutMultigrid, levels: tuple[Array, ...], coarse: Operator) -> Operator:
    """On a block."""
    this, bk, axes = M.setup, M.bk, M.setup.cut.axes(M.setup.periodic)
    shapes, parts = M.matrices(), []
    for k in range(len(this.plan.factors)):
        (shifts, grid), values, weights = shapes[k], levels[2 * k], levels[2 * k + 1]
        A = MatrixOnGrid(bk, values, shifts, grid, axes, this.batch)
        P = Interpolation(bk, weights, grid, this.plan.factors[k], axes, this.batch)
        bound = bk.full_like(bk.real(values[0][:, *(0,) * len(grid)]), 1)
        parts.append(LevelParts(this.smoothing.smoother_of(A, bound, this.hermitian), P, P.T))
    return cycle_over(parts, GatheredCycle(coarse, shapes[-1][1], axes), this.smoothing.visits)


def _in_range(cycle: Operator, x: Array, this: CutSetup) -> Array:
    """The cycle applied to x, which may be of a wider dtype: it is scaled to the size of one then."""
    bk, dtype = this.bk, np.dtype(this.bk.dtype(x))
    if cycle.dtype == dtype:
        return cycle.apply(x)
    size = bk.max_over(bk.constant(bk.binary_scale(x)), names_of(this.cut.axes(this.periodic)))
    return size * bk.astype(cycle.apply(bk.astype(x / size, cycle.dtype)), dtype)


def _transposed(levels: tuple[Array, ...], M: CutMultigrid) -> tuple[Array, ...]:
    """The same levels with transposed matrices."""
    bk, axes, shapes = M.bk, M.setup.cut.axes(M.setup.periodic), M.matrices()

    def on_block(*own: Array) -> tuple[Array, ...]:
        return tuple(_mirrored(values, shapes[k][0]) for k, values in enumerate(own))

    def _mirrored(values: Array, shifts: tuple[tuple[int, ...], ...]) -> Array:
        back = [shifts.index(opposite(s)) for s in shifts]
        return bk.stack([shifted_array(bk, values[k], s, axes) for k, s in zip(back, shifts)])

    matrices = levels[::2]
    if not matrices:
        return ()
    turned = bk.map_parts(on_block, M.setup.cut, matrices, (-2,) * len(matrices), (-2,) * len(matrices))
    return tuple(array for pair in zip(turned, levels[1::2]) for array in pair)
