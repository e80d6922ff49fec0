"""SciPy's sparse matrices: reading and making them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from ..interface.backend import Array
from ..interface.kernels import CooEntries, row_starts


class NumpySparse:
    """SciPy's sparse arrays and matrices, of every format."""

    to_dense = "{}.toarray()"  # how users call it

    def accepts(self, x: Any) -> bool:
        """Is `x` a sparse matrix of this library?"""
        return sp.issparse(x)

    def dtype(self, x: Any) -> np.dtype:
        """NumPy dtype of the values."""
        return x.dtype

    def entries(self, x: Any) -> CooEntries:
        """The entries of a SciPy sparse array or matrix of any format, explicit zeros and duplicates included."""
        coo = x.tocoo()
        return CooEntries(coo.data, coo.row, coo.col, tuple(x.shape))

    def native(self, values: Array, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
        """A `csr_array` of entries in the order of rows, then columns, without duplicates; shares their memory."""
        starts = row_starts(rows, shape[0])
        matrix = sp.csr_array((values, cols.astype(starts.dtype, copy=False), starts), shape)
        matrix.has_canonical_format = True
        return matrix
