"""Rounding on the diagonal of coarse matrices: what is left of regions where A maps constants to zero."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

_DUST = 0.75  # power of the rounding unit: sums of that size, of terms of one, are of rounding only


def without_dust(coarse: sp.csr_array, P: sp.csr_array, A: sp.csr_array) -> sp.csr_array:
    """`P^T A P` without rows of rounding only, whose inverse is huge and of any sign; may write to `coarse`.

    A closed region that has shrunk to a point leaves one. It gets the diagonal that the point would have without
    neighbours.
    """
    squares = sp.csr_array((np.abs(P.data) ** 2, P.indices, P.indptr), P.shape).T @ A.diagonal()
    alone = np.flatnonzero(np.abs(coarse.diagonal()) <= np.finfo(A.dtype).eps ** _DUST * np.abs(squares))
    if len(alone):
        coarse = sp.csr_array(coarse + sp.csr_array((squares[alone], (alone, alone)), coarse.shape))
    return coarse
