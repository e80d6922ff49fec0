"""Products of sparse matrices in one pass."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .....backends.loops import csr_matmat
from .rows import gathered

_ROOM = 6  # times the entries of both factors: where a product could have more, they are counted beforehand


def product(A: sp.csr_array, B: sp.csr_array) -> sp.csr_array:
    """A B, rows not sorted; both of one dtype and with indices of one dtype.

    SciPy counts the entries of a product before it makes them, which is a third of the time. Here they get as much room
    as there can be, where that is not much: what is not used of it is never touched.
    """
    lengths = np.diff(B.indptr)
    room = int(gathered(lengths, A.indices).sum(dtype=np.int64))
    index = A.indices.dtype
    dtypes = {A.indptr.dtype, B.indices.dtype, B.indptr.dtype, index}
    fits = room <= _ROOM * (A.nnz + B.nnz) and room <= np.iinfo(index).max
    if csr_matmat is None or not fits or len(dtypes) > 1 or A.dtype != B.dtype:
        return sp.csr_array(A @ B)
    starts = np.empty(A.shape[0] + 1, index)
    cols, data = np.empty(room, index), np.empty(room, A.dtype)
    csr_matmat(A.shape[0], B.shape[1], A.indptr, A.indices, A.data, B.indptr, B.indices, B.data, starts, cols, data)
    used = int(starts[-1])
    return sp.csr_array((data[:used].copy(), cols[:used].copy(), starts), (A.shape[0], B.shape[1]))


def sorted_rows(A: sp.csr_array, hermitian: bool) -> sp.csr_array:
    """A product with sorted rows: transposing sorts in two passes, and a Hermitian matrix is its own adjoint."""
    return sp.csr_array(A.conj().T) if hermitian else sp.csr_array(A.tocsc().tocsr())
