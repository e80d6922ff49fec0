"""Products of SciPy's matrices in rows, block by block on all cores."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from .cores import shared as cores
from .loops import csr_matvec, csr_matvecs, takes

_ENTRIES = 1 << 17  # of a block of rows; they take five times as long as to start a thread


def rows_times(A: Any, x: np.ndarray) -> Any:
    """`A @ x` of a SciPy matrix in any format with `(m,)` or `(m, k)`, to the last digit; one in rows on all cores."""
    if not _is_large(A, x):
        return A @ x
    image, (n, m) = np.empty((A.shape[0], *x.shape[1:]), x.dtype), A.shape
    product, sizes = (csr_matvec, (m,)) if x.ndim == 1 else (csr_matvecs, (m, x.shape[1]))
    x = np.ascontiguousarray(x).reshape(-1)

    def work(start: int, end: int) -> None:
        own = image[start:end]
        own[...] = 0
        product(end - start, *sizes, A.indptr[start : end + 1], A.indices, A.data, x, own.reshape(-1))

    cores.in_blocks(work, n, max(_ENTRIES * n // len(A.data), 1))
    return image


def _is_large(A: Any, x: Any) -> bool:
    """Has it several blocks, and do all arrays fit each other, as SciPy's loops trust that they do?"""
    if not isinstance(A, (sp.csr_array, sp.csr_matrix)) or type(x) is not np.ndarray or len(A.data) <= _ENTRIES:
        return False
    fits = A.ndim == 2 and A.shape[1] == x.shape[0] and A.indptr.dtype == A.indices.dtype
    return fits and takes(x.dtype, A.dtype)
