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

_LONG = 2**15  # length of a diagonal from which products by diagonals are faster than by rows
_SMALL = 50_000  # entries up to which products by rows take as long, and compile in a third of the time


@dataclass(frozen=True)
class Target:
    """Where a preconditioner is applied: in the library and on the device of A, in a dtype."""

    A: Operator
    dtype: np.dtype
    formats_of: Backend | None = None  # library that NumPy's arrays are moved to later: it decides the formats

    @property
    def bk(self) -> Backend:
        return self.A.bk

    @property
    def like(self) -> Array | None:
        """An array on the device, or None where the device does not matter."""
        return anchor(self.A) if isinstance(self.A, Matrix) else getattr(self.A, "like", None)

    @property
    def stored(self) -> np.dtype:
        return self.bk.stored_dtype(self.dtype)

    def moved(self, M: Operator) -> Operator:
        """Convert an operator on NumPy's arrays; one on those of the library is returned unchanged."""
        return M if M.bk is self.bk else from_host(M, self.A)  # type: ignore[arg-type]

    def dense(self, matrix: np.ndarray) -> Dense:
        known = matrix.astype(self.stored)
        return Dense(self.bk, self.bk.asarray(known, like=self.like), known)

    def array(self, values: np.ndarray) -> Array:
        """A constant array in the dtype: NumPy's inside compiled programs and in the NumPy backend."""
        return self.placed(values.astype(self.stored))

    def placed(self, array: Array) -> Array:
        """Likewise in its own dtype; arrays of the library are returned unchanged."""
        if self.bk.on_host or self.bk.compiled() or not isinstance(array, np.ndarray):
            return array
        return self.bk.asarray(array, like=self.like)

    def matrix(self, A: Any, format: str | None = None, copy: bool = True) -> SparseMatrix:
        """Convert SciPy's CSR to a format, by default the one that suits it in the library.

        Args:
            copy: False: the result may keep and sort A.
        """
        known, format = A.astype(self.dtype, copy=copy), format or suitable_format(self.formats_of or self.bk, A)
        return from_csr(self.bk, known, prune=False, like=self.like, format=format)


def suitable_format(bk: Backend, A: CsrStructure | sp.csr_array) -> str:
    """Format of a CSR matrix with the fastest products in a library, with regard to compile time.

    In PyTorch each diagonal is an operation of its own, so that short ones take longer than products by rows.
    """
    if bk.has_compiled_rows and not bk.on_host:
        return "csr"
    starts, cols = (A.starts, A.cols) if isinstance(A, CsrStructure) else (A.indptr, A.indices)
    return "csr" if len(cols) <= _SMALL else choose_format(bk, starts, cols, A.shape).format


def suited(A: Operator, bk: Backend, like: Array | None) -> Operator:
    """A sparse matrix in the format for a library, on the device of `like`; stencils and others are unchanged."""
    if not isinstance(A, SparseMatrix) or isinstance(A, Stencil):
        return A
    if isinstance(A, DIA) and A.shape[0] >= _LONG and bk.prefers_diagonals(like):
        return A
    rows: Any = A.to("csr")
    format = suitable_format(bk, rows.structure)
    return A if format == A.format else rows.to(format)
