"""Schur complements of block elimination, on the host with sparse couplings."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ...backends.lapack import batched_inverse, inverse_of_definite
from ...sparse.formats.entries.scipy_form import csr_array
from .planes import Blocks


def inverse_pivots(
    blocks: Blocks, flat: np.ndarray, regular: float, lower: np.ndarray, back: np.ndarray, hermitian: bool
) -> np.ndarray:
    """`(systems, count, m, m)`: inverses of `D_i - L_i (D_(i-1) - ...)^-1 U_(i-1)`; not finite where one is singular.

    Args:
        flat: the coefficients of all points `(systems, n)`, which `blocks.within` indexes.
        regular: factor of the diagonals of all D.
        lower: L, `(systems, count, width, m)` in the columns `blocks.lower`.
        back: the transpose of U, likewise.
        hermitian: is the matrix, so that the pivots of a definite one are inverted by Cholesky's factors?

    Cost: per block the inverse, and 2 width m^2 operations.
    """
    systems, m = len(flat), blocks.size
    found = np.empty((systems, blocks.count, m, m), flat.dtype)
    diagonal, spare = slice(None, None, m + 1), blocks.order.reshape(blocks.count, m) < 0
    for s in range(systems):
        for i, (places, sources) in enumerate(blocks.entries_within):
            D = np.zeros(m * m, flat.dtype)
            D[places] = flat[s, sources]
            D[diagonal] *= regular
            D[diagonal][spare[i]] = 1
            pivot = D.reshape(m, m)
            if i:
                left = _rows(lower[s, i], blocks.lower[i]) @ found[s, i - 1]
                pivot -= (_rows(back[s, i], blocks.lower[i]) @ left.T).T
            definite = inverse_of_definite(pivot) if hermitian else None
            found[s, i] = batched_inverse(pivot[None])[0] if definite is None else definite
    return found


def _rows(values: np.ndarray, columns: np.ndarray) -> sp.csr_array:
    """Split `(width, m)` into its rows."""
    width, m = columns.shape
    starts = np.arange(0, width * m + 1, width, dtype=np.int32)
    entries, cols = (np.ascontiguousarray(part.T).reshape(-1) for part in (values, columns))
    return csr_array(entries, cols, starts, (m, m))
