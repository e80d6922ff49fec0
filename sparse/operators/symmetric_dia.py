"""Symmetric DIA: NumPy products that read one triangle of a symmetric matrix of diagonals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...backends.interface.kernels import Place
from ...backends.numpy.kernels import dia_product, symmetric_places
from ..analysis.analysis import analysis_of
from ..formats import DIA
from ..operator import Operator
from .composed import Composed

_LEAST = 2**16  # rows from which a product waits for memory


def as_symmetric_dia(A: Operator) -> Operator:
    """Prepare A for many products: a large DIA matrix that is bitwise symmetric is read by one triangle.

    Images are the same to the last digit. Cost: a pass over the values of real matrices of diagonals in NumPy.
    """
    large = isinstance(A, DIA) and A.bk.on_host and A.systems is None and A.shape[0] >= _LEAST
    return SymmetricDIA(A) if large and A.dtype.kind == "f" and analysis_of(A).is_exactly_hermitian else A


@dataclass(eq=False, repr=False)
class SymmetricDIA(Composed):
    """The same as `inner`, real and exactly symmetric."""

    inner: Operator

    @cached_property
    def _where(self) -> list[Place]:
        own: Any = self.inner
        return symmetric_places(own.structure.offsets, own.shape[0])

    def apply(self, x: Array) -> Array:
        own: Any = self.inner
        if x.dtype != self.dtype:
            return own.apply(x)
        return dia_product(own.arrays()[0], self._where, x, own.shape[0])

    def add_to(self, y: Array, x: Array) -> Array:
        own: Any = self.inner
        same = x.dtype == y.dtype == self.dtype
        found = self.bk.dia_added(y, own.arrays()[0], self._where, x) if same else None
        return own.add_to(y, x) if found is None else found

    def transpose(self) -> SymmetricDIA:
        return self

    def astype(self, dtype: np.dtype) -> Operator:
        return self.inner.astype(dtype)

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        return self.inner.on_backend(bk, like)
