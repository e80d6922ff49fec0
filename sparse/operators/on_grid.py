"""Operators on vectors in grid shape, see `Backend.on_grid`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ...backends import Array
from ..operator import Operator
from .cast import in_precision
from .composed import Composed


@dataclass(eq=False, repr=False)
class OnGrid(Composed):
    """`inner`, whose arguments are made flat and whose images are made grids again: both are nothing where `inner`
    computes on this grid, as compilers cancel opposite reshapes.
    """

    keeps_grids = True

    inner: Operator
    grid: tuple[int, ...]

    def _settle(self) -> None:
        super()._settle()
        self.products = self.inner.products  # type: ignore[misc]

    def apply(self, x: Array) -> Array:
        bk = self.bk
        return bk.on_grid(self.inner.apply(bk.flat(x)), self.grid, bk.known_cut(x))

    def transpose(self) -> Operator:
        transposed: Operator = self._map(lambda A: A.transpose())
        return transposed

    def astype(self, dtype: np.dtype) -> Operator:
        return OnGrid(in_precision(self.inner, dtype), self.grid)


def on_grid(A: Operator | None, grid: tuple[int, ...]) -> Any:
    """`A`, or None, for rows of this grid."""
    if A is None or A.keeps_grids:
        return A
    if isinstance(A, Composed) and A.passes_grids:
        return A._map(lambda part: on_grid(part, grid))
    return OnGrid(A, grid)
