"""Matrix-free stencil operator: products by shifted copies of the grid, with one array of all coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....sparse import Composed, Operator, SparseMatrix, storable
from ....sparse.formats.making.build import from_diagonals
from ....sparse.operators.couplings import (
    Couplings,
    Shift,
    Stacked,
    distance,
    opposite,
    settled,
    shifted_array,
    shifted_arrays,
    sum_of_terms,
)
from ....sparse.operators.halo import Axes


@storable("matrix on a grid")
@dataclass(eq=False, repr=False)
class MatrixOnGrid(Composed):
    """`image[x] = sum over k of values[k][x] * u[x + shifts[k]]`.

    All values are one array, since in compiled loops each array costs compile time.

    Attributes:
        values: `(shifts, systems or 1, *grid)`; zero where they leave the grid.
        shifts: -1, 0 or 1 along each axis; -s is among them where s is.
        grid, periodic: lengths of the axes, and which of them are rings; as of `Couplings` they may be cut.
        batch: is there one matrix for each system?
    """

    parts = cut = ("values",)
    is_container = True

    bk: Backend
    values: Array
    shifts: tuple[Shift, ...]
    grid: tuple[int, ...]
    periodic: Axes
    batch: bool = False

    @classmethod
    def of(cls, A: Couplings) -> MatrixOnGrid:
        """From stencil coefficients, in the order of their offsets."""
        values = settled(A.bk, {s: A.values[s] for s in A.shifts} if [*A.values] != [*A.shifts] else A.values)
        array = values.array if isinstance(values, Stacked) else A.bk.stack([*values.values()])
        return cls(A.bk, array, A.shifts, A.grid, A.periodic, A.systems is not None)

    def __post_init__(self) -> None:
        found, _ = self._form("values")
        opposites = {opposite(s) for s in self.shifts}
        axes = {len(self.grid), len(self.periodic), *map(len, self.shifts)}
        if len(axes) > 1 or opposites != set(self.shifts) or max(max(map(abs, s)) for s in self.shifts) > 1:
            raise ValueError(f"There is no matrix on the grid {self.grid} with the couplings {self.shifts}.")
        if (*found[:1], *found[2:]) != (len(self.shifts), *self.grid) or (found[1] != 1 and not self.batch):
            raise ValueError(f"{found} values were given for {len(self.shifts)} couplings on the grid {self.grid}.")
        super().__post_init__()

    def _settle(self) -> None:
        n = math.prod(self.grid)
        (_, systems, *_), self.dtype = self._form("values")
        self.shape, self.systems = (n, n), systems if self.batch else None

    def transpose(self) -> MatrixOnGrid:
        bk = self._library_of(self.values[0])
        back = [self.shifts.index(opposite(s)) for s in self.shifts]
        mirrored = [shifted_array(bk, self.values[k], s, self.periodic) for k, s in zip(back, self.shifts)]
        return replace(self, values=bk.stack(mirrored))

    def apply(self, x: Array) -> Array:
        bk, values = self.bk, self.array("values")
        u = bk.reshape(x, (int(x.shape[0]), *self.grid))
        near = shifted_arrays(bk, u, self.shifts, self.periodic)
        image = sum_of_terms([values[k] * near[s] for k, s in enumerate(self.shifts)])
        return bk.reshape(image, (int(x.shape[0]), self.shape[0]))

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        """As a DIA matrix where possible, whose products are quicker on the host."""
        arrays, make = super().for_host()
        if self.batch or any(self.periodic):
            return arrays, make

        def made(values: Sequence[np.ndarray]) -> Operator:
            own: Any = make(values)
            return as_diagonals(own.bk, own.shifts, np.asarray(own.values))

        return arrays, made


def as_diagonals(bk: Backend, shifts: Sequence[Shift], values: Array) -> SparseMatrix:
    """DIA matrix of coefficients `(shifts, 1, *grid)` on a grid without periodic axes."""
    offsets = [distance(shift, tuple(map(int, values.shape[2:]))) for shift in shifts]
    diagonals = bk.reshape(values, (len(offsets), -1))
    return from_diagonals(bk, offsets, diagonals, (int(diagonals.shape[1]),) * 2, format="dia")
