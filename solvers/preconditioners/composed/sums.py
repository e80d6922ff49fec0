"""Sum and scalar multiple of operators."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ....backends import Array
from ....sparse import Composed, Operator, storable


@storable("sum")
@dataclass(eq=False, repr=False)
class Sum(Composed):
    """`first + second`: both correct the same residual."""

    parts = ("first", "second")
    passes_grids = True

    first: Operator
    second: Operator

    def apply(self, x: Array) -> Array:
        return self.first.apply(x) + self.second.apply(x)

    def transpose(self) -> Operator:
        transposed: Operator = self._map(lambda A: A.transpose())
        return transposed

    def dense(self) -> Array:
        return self.first.dense() + self.second.dense()

    def diagonals(self) -> Array:
        return self.first.diagonals() + self.second.diagonals()


@storable("multiple")
@dataclass(eq=False, repr=False)
class ScalarMultiple(Composed):
    """`factor` times an operator; the factor is a Python number, complex only for a complex operator."""

    passes_grids = True

    inner: Operator
    factor: complex

    def apply(self, x: Array) -> Array:
        return self._scalar() * self.inner.apply(x)

    def transpose(self) -> Operator:
        return replace(self, inner=self.inner.transpose())

    def conj(self) -> Operator:
        return replace(self, inner=self.inner.conj(), factor=np.conj(self.factor))

    def dense(self) -> Array:
        return self._scalar() * self.inner.dense()

    def diagonals(self) -> Array:
        return self._scalar() * self.inner.diagonals()

    def _scalar(self) -> Array:
        return self.bk.asarray(np.asarray(self.factor, self.dtype))
