"""Library, device, precision and formats of a preconditioner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend
from ...sparse import DIA, Dense, Matrix, Operator, SparseMatrix, Stencil
from ...sparse.formats import choose_format
from ...sparse.formats.compressed import CsrStructure
from ...sparse.formats.making.build import from_csr
from ...sparse.operators.concrete import anchor, from_host

_LONG = 2**15  # numbers of a diagonal, whose product in parts is quicker than that of rows
_SMALL = 50_000  # entries, whose product takes as long in rows, and compiles in a third of the time


@dataclass(frozen=True)
class Target:
    """Where a preconditioner is applied: beside A, in a dtype, by default that of A."""

    A: Operator
    dtype: np.dtype
    formats_of: Backend | None = None  # library whose formats suit, where arrays of NumPy are to be moved to it

    @property
    def bk(self) -> Backend:
        """The library."""
        return self.A.bk

    @property
    def like(self) -> Array | None:
        """An array on the device, or None where it does not matter."""
        return anchor(self.A) if isinstance(self.A, Matrix) else getattr(self.A, "like", None)

    @property
    def stored(self) -> np.dtype:
        """The dtype that arrays get there."""
        return self.bk.stored_dtype(self.dtype)

    def moved(self, M: Operator) -> Operator:
        """Convert an operator that NumPy made; those of the library are as they are."""
        return M if M.bk is self.bk else from_host(M, self.A)  # type: ignore[arg-type]

    def dense(self, matrix: np.ndarray) -> Dense:
        known = matrix.astype(self.stored)
        return Dense(self.bk, self.bk.asarray(known, like=self.like), known)

    def array(self, values: np.ndarray) -> Array:
        """A constant array in the dtype: NumPy's inside compiled programs and in the NumPy backend."""
        return self.placed(values.astype(self.stored))

    def placed(self, array: Array) -> Array:
        """Likewise in its own dtype; arrays of the library are as they are."""
        if self.bk.on_host or self.bk.compiled() or not isinstance(array, np.ndarray):
            return array
        return self.bk.asarray(array, like=self.like)

    def matrix(self, A: Any, format: str | None = None, copy: bool = True) -> SparseMatrix:
        """Convert SciPy's CSR to a format, by default the one that suits it in the library.

        Args:
            copy: False: A is owned by the caller, and may be put in order and kept.
        """
        known, format = A.astype(self.dtype, copy=copy), format or suitable_format(self.formats_of or self.bk, A)
        return from_csr(self.bk, known, prune=False, like=self.like, format=format)


def suitable_format(bk: Backend, A: CsrStructure | sp.csr_array) -> str:
    """Format for the products of a CSR matrix in a library, with regard to compile time.

    PyTorch's product of short diagonals is an operation for each, and takes longer than that of rows.
    """
    if bk.has_compiled_rows and not bk.on_host:
        return "csr"
    starts, cols = (A.starts, A.cols) if isinstance(A, CsrStructure) else (A.indptr, A.indices)
    return "csr" if len(cols) <= _SMALL else choose_format(bk, starts, cols, A.shape).format


def suited(A: Operator, bk: Backend, like: Array | None) -> Operator:
    """A sparse matrix in the format for a library, on the device of `like`.

    Anything else is unchanged, also stencils, which suit every library that has them.
    """
    if not isinstance(A, SparseMatrix) or isinstance(A, Stencil):
        return A
    if isinstance(A, DIA) and A.shape[0] >= _LONG and bk.prefers_diagonals(like):
        return A
    rows: Any = A.to("csr")
    format = suitable_format(bk, rows.structure)
    return A if format == A.format else rows.to(format)
