"""The Jacobi preconditioner: divide by the diagonal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ...sparse import Operator
from .base import Preconditioner


class DiagonalOperator(Operator):
    """Multiplication with a diagonal `(1, n)`, or one per system `(systems, n)`."""

    is_container = True

    def __init__(self, bk: Backend, values: Array) -> None:
        self.bk, self.values, self.dtype = bk, values, bk.dtype(values)
        rows, n = int(values.shape[0]), int(values.shape[1])
        self.shape, self.systems = (n, n), None if rows == 1 else rows
        bk.register(DiagonalOperator, lambda d: ((d.values,), d.bk), _restore)

    def apply(self, x: Array) -> Array:
        return self.values * x

    def astype(self, dtype: np.dtype) -> DiagonalOperator:
        return DiagonalOperator(self.bk, self.bk.astype(self.values, dtype))

    def on_backend(self, bk: Backend, like: Array | None) -> DiagonalOperator:
        return DiagonalOperator(bk, bk.asarray(self.values, like=like))

    def transpose(self) -> DiagonalOperator:
        return self

    def conj(self) -> DiagonalOperator:
        return DiagonalOperator(self.bk, self.bk.conj(self.values))

    def dense(self) -> Array:
        full = self.values[..., None] * self.bk.asarray(np.eye(self.shape[0]), self.dtype, like=self.values)
        return full[0] if self.systems is None else full

    def diagonals(self) -> Array:
        return self.values

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return (self.values,), lambda arrays: DiagonalOperator(get_backend("numpy"), arrays[0])

    def per_system(self, i: int) -> Any:
        return sp.dia_array((self.values[0 if self.systems is None else i][None], [0]), shape=self.shape)


def _restore(bk: Backend, arrays: Sequence[Any]) -> DiagonalOperator:
    d = object.__new__(DiagonalOperator)
    d.bk, d.values = bk, arrays[0]
    shape = tuple(getattr(d.values, "shape", (1, 0)))
    d.shape, d.systems = (shape[-1], shape[-1]), None if shape[0] == 1 else shape[0]
    d.dtype = bk.dtype(d.values) if hasattr(d.values, "dtype") else np.dtype(np.float64)
    return d


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
