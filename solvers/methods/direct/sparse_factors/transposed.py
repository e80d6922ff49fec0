"""Factors of a matrix as those of its transpose or conjugate."""

from __future__ import annotations

import numpy as np

from .protocol import Factors


class TransposedFactors(Factors):
    """Factors that were made of the transposed, or the conjugated matrix, or of both."""

    def __init__(self, inner: Factors, transposed: bool, conjugated: bool) -> None:
        self.inner, self.transposed, self.conjugated = inner, transposed, conjugated
        self.provider, self.nnz, self.known = inner.provider, inner.nnz, inner.known

    def solve(self, b: np.ndarray, trans: str = "N") -> np.ndarray:
        given = b.conj() if self.conjugated else b
        x = self.inner.solve(given, "N" if (trans == "T") == self.transposed else "T")
        return x.conj() if self.conjugated else x
