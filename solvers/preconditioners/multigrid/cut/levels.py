"""Set-up of the levels of a cut grid: on blocks, as of a whole grid, until it is gathered."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .....backends import Array, Backend, Cut
from .....sparse import Operator
from .....sparse.operators.couplings import Couplings, Shift, Stacked
from ...operators import inner_dtype
from ..coarsening import Coarsest
from ..grid_cycle import cycle_of, residue_of, signs_of, sizes_of
from ..hierarchy import GridLevel, made
from ..on_grid import MatrixOnGrid
from ..smoothing import Smoothing
from ..transfer import Interpolation
from .gathered import gathered
from .plan import CutPlan


class CutSetup(NamedTuple):
    """What is known of a cut system when its program is compiled.

    Attributes:
        grid: the given one, without padding.
        shifts: of the couplings on the finest grid.
        dtype: of A.
        direct: points of the coarsest grid, at most.
        batch: is there one matrix for each system?
    """

    bk: Backend
    cut: Cut
    plan: CutPlan
    grid: tuple[int, ...]
    periodic: tuple[bool, ...]
    shifts: tuple[Shift, ...]
    dtype: np.dtype
    smoothing: Smoothing
    direct: int
    hermitian: bool
    batch: bool

    @property
    def within(self) -> np.dtype:
        """The dtype of all levels that are cut."""
        return inner_dtype(self.smoothing.precision, self.dtype)


class CutArrays(NamedTuple):
    """Arrays of a cycle on a cut grid.

    Attributes:
        scale: diagonal scaling of the cycle on both sides, `(systems or 1, *grid)`.
        sign: of the matrix of each system, `(systems or 1, 1, ...)`, over its size for single precision.
        levels: for each level two arrays: the values of the matrix, and the weights of the interpolation to it.
        coarse: the cycle on the gathered grid.
    """

    scale: Array
    sign: Array
    levels: tuple[Array, ...]
    coarse: Operator


def cut_levels(values: Array, setup: CutSetup) -> CutArrays:
    """Set up all levels.

    Args:
        values: `(shifts, systems or 1, *padded grid)`, zero in points that are no part of the grid.

    Cost: the products and transfers of 3^d probes on each level; one gather of the coefficients of the gathered grid.
    """
    leads = CutArrays(-1, None, (-2,) * (2 * len(setup.plan.factors)), None)  # type: ignore[arg-type]
    found: CutArrays = setup.bk.map_parts(lambda own: _on_block(own, setup), setup.cut, [values], [-2], leads)
    return found


def _on_block(values: Array, this: CutSetup) -> CutArrays:
    bk, systems = this.bk, int(values.shape[1]) if this.batch else None
    shape, axes = tuple(map(int, values.shape[2:])), this.cut.axes(this.periodic)
    A = Couplings(bk, shape, axes, Stacked(this.shifts, bk.constant(values)), systems)
    A = A.symmetrised() if this.hermitian else A
    sign = signs_of(A)
    if this.within != this.dtype:  # interpolation has numbers of the size of sqrt(A)
        sign = sign / sizes_of(A)
    A = A.map(lambda array: bk.astype(sign, bk.dtype(array)) * array)
    levels = []
    for factors in this.plan.factors:
        found = made(A, factors, this.hermitian, residue_of(this.dtype))
        P = Interpolation(bk, found.weights, A.grid, factors, axes, this.batch)
        levels.append(GridLevel(found.own, found.scale, P))
        A = found.coarse
    levels = [level._replace(scale=bk.ordered_after(level.scale, A.diagonal)) for level in levels]
    scale = levels[0].scale if levels else bk.full_like(bk.real(A.diagonal), 1)
    coarse = _below(A, this)
    arrays = [array for k in range(len(levels)) for array in _arrays(levels, k, this.within)]
    return CutArrays(bk.astype(scale, this.dtype), bk.astype(sign, this.dtype), tuple(arrays), coarse)


def _arrays(levels: list[GridLevel], k: int, dtype: np.dtype) -> tuple[Array, Array]:
    A, _, P = levels[k]
    below = levels[k + 1].scale if k + 1 < len(levels) else None
    P = P if below is None else P.scaled(below)  # type: ignore[union-attr]
    return MatrixOnGrid.of(A.astype(dtype)).values, P.astype(dtype).weights  # type: ignore[union-attr]


def _below(A: Couplings, this: CutSetup) -> Operator:
    """The cycle on the gathered grid."""
    bk, axes = this.bk, A.periodic
    shifts, count = A.shifts, len(A.shifts)
    array = bk.stack([A.values[s] for s in shifts])
    rows = int(array.shape[1])
    flat = bk.reshape(array, (count * rows, *A.grid))
    whole = gathered(bk, flat, axes)
    grid = tuple(map(int, whole.shape[1:]))
    values = Stacked(shifts, bk.materialize(bk.reshape(whole, (count, rows, *grid))))
    own = Couplings(bk, grid, this.periodic, values, A.systems)
    size = Coarsest(this.direct, this.direct)
    return cycle_of(own, this.dtype, size, this.smoothing, this.hermitian, above=len(this.plan.factors)).inner
