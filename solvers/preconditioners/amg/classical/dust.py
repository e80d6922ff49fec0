"""Rounding on the diagonal of coarse matrices: what is left of regions where A maps constants to zero."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

_DUST = 0.75  # power of the rounding unit: sums of that size, of terms of one, are of rounding only


def without_dust(coarse: sp.csr_array, P: sp.csr_array, A: sp.csr_array) -> sp.csr_array:
    """`P^T A P` where rounding can no longer make it indefinite, or its inverse huge; writes to `coarse`.

    A closed region that has shrunk to a point leaves a row of rounding only, which gets the diagonal that its point
    would have without neighbours; one of a few points leaves a small eigenvalue of either sign, which a shift hides.
    """
    squares = sp.csr_array((np.abs(P.data) ** 2, P.indices, P.indptr), P.shape).T @ A.diagonal()
    diagonal, shift = coarse.diagonal(), np.finfo(A.dtype).eps ** _DUST * squares
    alone = np.abs(diagonal) <= np.abs(shift)
    coarse.setdiag(np.where(alone, squares, diagonal + shift))
    return coarse
