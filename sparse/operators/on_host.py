"""Operators of any library on rows of NumPy, for loops of the host around their products."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...backends import get_backend
from ..operator import Operator
from .composed import Composed
from .symmetric_dia import as_symmetric_dia


@dataclass(eq=False, repr=False)
class OnHost(Composed):
    """`inner`, which gets each row in an array of its own library: in the same memory where that can be."""

    inner: Operator

    def _settle(self) -> None:
        super()._settle()
        self.bk = get_backend("numpy")
        self.products = self.inner.products  # type: ignore[misc]

    def _register(self) -> None:
        """It lives as long as a loop, and no library takes it apart."""

    @property
    def in_steps(self) -> Operator:
        return OnHost(as_symmetric_dia(self.inner.in_steps))

    def apply(self, x: np.ndarray) -> np.ndarray:
        return self.inner.apply_on_host(x)

    def transpose(self) -> Operator:
        transposed: Operator = self._map(lambda A: A.transpose())
        return transposed
