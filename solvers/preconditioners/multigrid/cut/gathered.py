"""The part of a cycle that all devices do alike: on a grid that is small enough to be gathered."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .....backends import Array, Backend, CutAxis
from .....sparse import Composed, Operator
from .....sparse.operators.halo import Axes, length_and_ring, names_of, own_part


@dataclass(eq=False, repr=False)
class GatheredCycle(Composed):
    """`inner`, on the whole grid, as an operator on blocks; inside of `map_parts`.

    Attributes:
        grid: of the block.
        axes: how it is cut.

    Cost: one all-gather of the vector.
    """

    inner: Operator
    grid: tuple[int, ...]
    axes: Axes

    def _settle(self) -> None:
        super()._settle()
        self.shape = (math.prod(self.grid),) * 2

    def transpose(self) -> GatheredCycle:
        return replace(self, inner=self.inner.transpose())

    def apply(self, x: Array) -> Array:
        bk, rows = self.bk, int(x.shape[0])
        whole = gathered(bk, bk.reshape(x, (rows, *self.grid)), self.axes)
        found = self.inner.apply(bk.materialize(bk.reshape(whole, (rows, -1))))
        found = bk.reshape(found, tuple(map(int, whole.shape)))
        for axis, (n, cut) in enumerate(zip(self.grid, self.axes), 1):
            found = own_part(bk, found, axis, n, cut)
        return bk.reshape(found, (rows, self.shape[0]))


def gathered(bk: Backend, u: Array, axes: Axes) -> Array:
    """`(rows, *whole grid)` of blocks `(rows, *grid)`, by one all-gather over all mesh axes."""
    rows, *grid = map(int, u.shape)
    parts = [axis.parts if isinstance(axis, CutAxis) else 1 for axis in axes]
    blocks = bk.reshape(bk.all_gathered(u[None], names_of(axes), 0), (*parts, rows, *grid))
    order = [len(parts), *(k for axis in range(len(parts)) for k in (axis, len(parts) + 1 + axis))]
    whole = (length_and_ring(n, axis)[0] for n, axis in zip(grid, axes))
    return bk.reshape(bk.permute_dims(blocks, order), (rows, *whole))
