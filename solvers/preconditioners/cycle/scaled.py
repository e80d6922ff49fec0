"""Two-sided diagonal scaling of an operator."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....backends import Array
from ....sparse import Composed, Operator, storable
from .recast import Recast


@storable("scaled on both sides")
@dataclass(eq=False, repr=False)
class DiagonallyScaled(Composed):
    """`left inner right`, with diagonals `(1, n)`, or one per system `(systems, n)`."""

    parts = ("inner", "left", "right")
    passes_grids = True

    inner: Operator
    left: Array
    right: Array

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            rows, n = (int(k) for k in side.shape) if len(side.shape) == 2 else (0, 0)
            if n != self.inner.shape[0] or rows not in (1, self.inner.systems):
                raise ValueError(f"A diagonal of the shape {tuple(side.shape)} does not fit to {self.inner!r}.")
        super().__post_init__()

    def apply(self, x: Array) -> Array:
        left, right = self.array("left"), self.array("right")
        found = self.inner.between(left, x, right) if isinstance(self.inner, Recast) else None
        return left * self.inner.apply(right * x) if found is None else found

    def transpose(self) -> DiagonallyScaled:
        return DiagonallyScaled(self.inner.transpose(), self.right, self.left)


@storable("scaled on both sides, on a grid")
@dataclass(eq=False, repr=False)
class ScaledOnGrid(Composed):
    """`left inner right`, with diagonals `(1, *grid)`, which may be spread over devices as vectors are."""

    parts = ("inner", "left", "right")
    passes_grids = True

    inner: Operator
    left: Array
    right: Array
    grid: tuple[int, ...]

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            if tuple(map(int, side.shape)) != (1, *self.grid) or math.prod(self.grid) != self.inner.shape[0]:
                raise ValueError(
                    f"A diagonal of the shape {tuple(side.shape)} on a grid {self.grid} does not fit to {self.inner!r}."
                )
        super().__post_init__()

    def apply(self, x: Array) -> Array:
        right = self._times(self.array("right"), x)
        return self._times(self.array("left"), self.inner.apply(right))

    def _times(self, side: Array, x: Array) -> Array:
        return self.bk.as_rows(side * self.bk.cells(x, self.grid), x)

    def transpose(self) -> ScaledOnGrid:
        return ScaledOnGrid(self.inner.transpose(), self.right, self.left, self.grid)
