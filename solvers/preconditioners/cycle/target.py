"""Library, device and precision of a cycle."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ....backends import Array, Backend
from ....sparse import Dense, Matrix, SparseMatrix
from ....sparse.formats.making.build import from_csr
from ..known import anchor
from .formats import suitable_format


class Target(NamedTuple):
    """Target of a cycle: a library, an array on the device or None, and the dtype of A."""

    bk: Backend
    like: Array | None
    dtype: np.dtype

    @classmethod
    def of(cls, matrix: Matrix) -> Target:
        """The target of a matrix."""
        return cls(matrix.bk, anchor(matrix), matrix.dtype)

    @property
    def stored(self) -> np.dtype:
        """The dtype that arrays get there."""
        return self.bk.stored_dtype(self.dtype)

    def dense(self, matrix: np.ndarray) -> Dense:
        known = matrix.astype(self.stored)
        return Dense(self.bk, self.bk.asarray(known, like=self.like), known)

    def array(self, values: np.ndarray) -> Array:
        """A constant array: NumPy's inside compiled programs and in the NumPy backend."""
        known = values.astype(self.stored)
        return known if self.bk.on_host or self.bk.compiled() else self.bk.asarray(known, like=self.like)

    def matrix(self, A: Any, format: str | None = None) -> SparseMatrix:
        """Convert SciPy's CSR to a format, by default the one that suits it in the library."""
        return from_csr(
            self.bk, A.astype(self.dtype), prune=False, like=self.like, format=format or suitable_format(self.bk, A)
        )
