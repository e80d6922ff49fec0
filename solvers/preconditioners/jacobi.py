"""The Jacobi preconditioner: divide by the diagonal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend
from ...sparse import Composed, Operator
from .base import Preconditioner


@dataclass(eq=False, repr=False)
class DiagonalOperator(Composed):
    """Multiplication with a diagonal `(1, n)`, or one per system `(systems, n)`."""

    parts = ("values",)
    is_container = True

    bk: Backend
    values: Array

    def _settle(self) -> None:
        rows, n = (int(k) for k in self.values.shape)
        self.shape, self.dtype, self.systems = (n, n), self.bk.dtype(self.values), None if rows == 1 else rows

    def apply(self, x: Array) -> Array:
        return self.values * x

    def transpose(self) -> DiagonalOperator:
        return self

    def dense(self) -> Array:
        full = self.values[..., None] * self.bk.asarray(np.eye(self.shape[0]), self.dtype, like=self.values)
        return full[0] if self.systems is None else full

    def diagonals(self) -> Array:
        return self.values

    def per_system(self, i: int) -> Any:
        return sp.dia_array((self.values[0 if self.systems is None else i][None], [0]), shape=self.shape)


def jacobi(A: Operator) -> Preconditioner:
    """1 / diagonal of A; 1 where the diagonal is zero. Stores n numbers, costs one pass over the vector.

    A must show its diagonal: a matrix, or a function small enough to be evaluated column by column.

    Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 10.2.
    """
    bk, diagonal = A.bk, A.diagonals()
    one = bk.full_like(diagonal, 1)
    values = one / bk.where(diagonal == 0, one, diagonal)
    hermitian = True if A.dtype.kind != "c" else None  # with a complex diagonal it is not, but that may be traced
    return Preconditioner(DiagonalOperator(bk, values), "jacobi", hermitian, int(np.prod(tuple(values.shape))))
