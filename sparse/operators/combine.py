"""Offset operator: a constant added to every entry of another operator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...backends import Array
from ..operator import Operator
from .composed import Composed


@dataclass(eq=False, repr=False)
class OffsetOperator(Composed):
    """`A + c`: a constant added to every entry, without storing them."""

    passes_grids = True

    inner: Operator
    offset: complex

    @property
    def without_offset(self) -> Operator:
        return self.inner

    @property
    def own_grid(self) -> tuple[int, ...] | None:
        return self.inner.own_grid

    def apply(self, x: Array) -> Array:
        return self.inner.apply(x) + self._scalar(x) * self.bk.sum(x, 1, keepdims=True)

    def _scalar(self, like: Array) -> Array:
        return self.bk.asarray(np.asarray(self.offset, self.dtype), like=like)

    def transpose(self) -> Operator:
        return OffsetOperator(self.inner.transpose(), self.offset)

    def conj(self) -> Operator:
        return OffsetOperator(self.inner.conj(), np.conj(self.offset))

    def dense(self) -> Array:
        found = self.inner.dense()
        return found + self._scalar(found)

    def diagonals(self) -> Array:
        found = self.inner.diagonals()
        return found + self._scalar(found)
