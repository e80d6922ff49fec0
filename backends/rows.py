"""CSR products by SciPy's compiled loops without its wrappers, in row blocks on all cores.

What SciPy does around a loop takes it as long as ten thousand entries do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp

from .cores import shared as cores
from .loops import csc_matvec, csr_matvec, csr_matvecs, takes

_BY_ROWS, _BY_COLUMNS = (sp.csr_array, sp.csr_matrix), (sp.csc_array, sp.csc_matrix)
_ENTRIES = 1 << 17  # of a block of rows; they take five times as long as to start a thread


def rows_times(A: Any, x: np.ndarray) -> Any:
    """`A @ x` of a SciPy matrix with `(m,)` or `(m, k)`, bitwise as SciPy's; CSR on all cores."""
    if type(A) is np.ndarray or not _fits_loops(A, x, 1):
        return A @ x
    if len(A.data) <= _ENTRIES:
        return _by_loop(csr_matvec, A.shape, A, x) if x.ndim == 1 else A @ x
    image, (n, m) = np.empty((A.shape[0], *x.shape[1:]), x.dtype), A.shape
    product, sizes = (csr_matvec, (m,)) if x.ndim == 1 else (csr_matvecs, (m, x.shape[1]))
    x = np.ascontiguousarray(x).reshape(-1)

    def work(start: int, end: int) -> None:
        own = image[start:end]
        own[...] = 0
        product(end - start, *sizes, A.indptr[start : end + 1], A.indices, A.data, x, own.reshape(-1))

    cores.in_blocks(work, n, max(_ENTRIES * n // len(A.data), 1))
    return image


def product_of(A: Any) -> Callable[[np.ndarray], Any]:
    """`v -> A @ v`, bitwise as SciPy's, for many vectors `(m,)`: the loop's arguments are prepared once."""
    loop = csr_matvec if isinstance(A, _BY_ROWS) else csc_matvec if isinstance(A, _BY_COLUMNS) else None
    if loop is None or not _suits_loops(A) or (loop is csr_matvec and len(A.data) > _ENTRIES):
        return partial(rows_times, A)
    (n, m), starts, cols, values, dtype = A.shape, A.indptr, A.indices, A.data, A.data.dtype

    def product(v: np.ndarray) -> Any:
        if v.dtype != dtype or v.shape != (m,):
            return A @ v
        image = np.zeros(n, dtype)
        loop(n, m, starts, cols, values, v, image)
        return image

    return product


def transposed_times(A: Any, v: np.ndarray) -> Any:
    """`A.T @ v` of a SciPy matrix with `(n,)`, bitwise as SciPy's; CSR without a transposed object."""
    if v.ndim != 1 or not _fits_loops(A, v, 0):
        return A.T @ v
    return _by_loop(csc_matvec, A.shape[::-1], A, v)


def _by_loop(loop: Any, shape: tuple[int, int], A: Any, v: np.ndarray) -> np.ndarray:
    image = np.zeros(shape[0], v.dtype)
    loop(*shape, A.indptr, A.indices, A.data, np.ascontiguousarray(v), image)
    return image


def _fits_loops(A: Any, x: Any, axis: int) -> bool:
    """Does the length of `x` match the matrix axis? SciPy's loops do not check."""
    if not isinstance(A, _BY_ROWS) or type(x) is not np.ndarray or not _suits_loops(A):
        return False
    return bool(A.shape[axis] == x.shape[0] and x.dtype == A.data.dtype)


def _suits_loops(A: Any) -> bool:
    return A.ndim == 2 and A.indptr.dtype == A.indices.dtype and takes(A.data.dtype)
