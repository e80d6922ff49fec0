"""Diagonal operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..backends import Array, Backend
from ..sparse import Composed, storable

DOMINANT = 1.02  # times the rest of a row: scaled by such a diagonal, the condition number is at most 100


@storable("diagonal")
@dataclass(eq=False, repr=False)
class DiagonalOperator(Composed):
    """A diagonal `(1, n)`, or one per system `(systems, n)`."""

    parts = ("values",)
    is_container = True
    keeps_grids = True

    bk: Backend
    values: Array
    batch: bool = False  # is one row that of a batch of one system?

    def _settle(self) -> None:
        rows, n = [1, 1, *map(int, self.values.shape)][-2:]  # transformations put axes in front, or take them away
        self.shape, self.dtype = (n, n), np.dtype(self._library_of(self.values).dtype(self.values))
        self.systems = rows if self.batch or rows != 1 else None

    def apply(self, x: Array) -> Array:
        return self.array("values") * x

    def transpose(self) -> DiagonalOperator:
        return self

    def dense(self) -> Array:
        values = self.array("values")
        full = values[..., None] * self.bk.asarray(np.eye(self.shape[0]), self.dtype, like=values)
        return full[0] if self.systems is None else full

    def diagonals(self) -> Array:
        return self.array("values")

    def per_system(self, i: int) -> Any:
        return sp.dia_array((self.values[0 if self.systems is None else i][None], [0]), shape=self.shape)
