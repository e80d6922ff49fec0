"""Products with SciPy sparse matrices, on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from .base import Array
from .entries import Entries
from .shared import row_starts

_KEPT = ("csr", "csc", "dia", "bsr")  # formats with a fast product of their own


class NumpySparse:
    """A matrix here is a SciPy sparse array or matrix."""

    def accepts(self, x: Any) -> bool:
        """Is `x` a sparse matrix of this library?"""
        return sp.issparse(x)

    def entries(self, x: Any) -> Entries:
        """The entries of a SciPy sparse array or matrix of any format, explicit zeros and duplicates included."""
        coo = x.tocoo()
        return Entries(coo.data, coo.row, coo.col, tuple(x.shape))

    def native(self, values: Array, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
        """A `csr_array` of entries in the order of rows, then columns, without duplicates; shares their memory."""
        starts = row_starts(rows, shape[0])
        matrix = sp.csr_array((values, cols.astype(starts.dtype, copy=False), starts), shape)
        matrix.has_canonical_format = True
        return matrix

    def read(self, x: Any, dtype: np.dtype | None = None, like: Array | None = None) -> Any:
        """`x` in a format with a fast product, in `dtype`; never modifies `x`."""
        matrix = x if x.format in _KEPT else x.tocsr()
        return matrix if dtype is None or matrix.dtype == dtype else matrix.astype(dtype)

    from_scipy = read

    def dtype(self, matrix: Any) -> np.dtype:
        """NumPy dtype of the values."""
        return matrix.dtype

    def recast(self, matrix: Any, dtype: np.dtype) -> Any:
        """The same matrix with values of another dtype."""
        return matrix.astype(dtype)

    def product(self, matrix: Any, x: Array) -> Array:
        """`(n, m)` times each row of `(batch, m)` -> `(batch, n)`."""
        return (matrix @ x[0])[None] if x.shape[0] == 1 else (matrix @ x.T).T

    def transpose(self, matrix: Any) -> Any:
        """The transposed matrix (not conjugated)."""
        return matrix.T

    def conj(self, matrix: Any) -> Any:
        """The complex conjugate."""
        return matrix.conj() if matrix.dtype.kind == "c" else matrix

    def diagonal(self, matrix: Any) -> Array:
        """`(min(n, m),)`."""
        return matrix.diagonal()

    def to_dense(self, matrix: Any) -> Array:
        """`(n, m)`."""
        return matrix.toarray()

    def arrays(self, matrix: Any) -> tuple[Array, ...]:
        """The arrays that `to_scipy` needs."""
        return ()

    def to_scipy(self, matrix: Any, arrays: Sequence[np.ndarray]) -> Any:
        """The SciPy matrix, given the values of `arrays(matrix)` as NumPy arrays."""
        return matrix
