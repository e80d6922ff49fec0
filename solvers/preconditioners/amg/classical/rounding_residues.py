"""Rounding on the diagonal of coarse matrices: what is left of regions where A maps constants to zero."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .....backends import Array, Backend
from .....sparse.formats.compressed import CsrStructure

_RESIDUE = 0.75  # power of the rounding unit: sums of that size, of terms of one, are of rounding only


def without_rounding_residues(coarse: sp.csr_array, P: sp.csr_array, A: sp.csr_array) -> sp.csr_array:
    """`P^T A P` without rows of rounding only, whose inverse is huge and of any sign; may write to `coarse`.

    A closed region that has shrunk to a point leaves one. It gets the diagonal that the point would have without
    neighbours.
    """
    squares = sp.csr_array((np.abs(P.data) ** 2, P.indices, P.indptr), P.shape).T @ A.diagonal()
    alone = np.flatnonzero(np.abs(coarse.diagonal()) <= np.finfo(A.dtype).eps ** _RESIDUE * np.abs(squares))
    if len(alone):
        coarse = sp.csr_array(coarse + sp.csr_array((squares[alone], (alone, alone)), coarse.shape))
    return coarse


def values_without_rounding_residues(
    bk: Backend, structure: CsrStructure, values: Array, P: CsrStructure, p: Array, diagonal: Array
) -> Array:
    """`without_rounding_residues` for entries in row order, `(nnz,)` or `(systems, nnz)`, in any library.

    Args:
        structure: of the coarse matrix.
        P: the structure of the prolongation.
        p: its entries.
        diagonal: of the finer matrix, `(n,)` or `(systems, n)`.
    """
    last = len(values.shape) - 1
    terms = p * bk.conj(p) * bk.take_in_bounds(diagonal, P.rows, last)
    squares = bk.sum_entries(terms, P.cols, P.shape[1])
    own = structure.diagonal(bk, (values,), None if last == 0 else int(values.shape[0]))
    alone = bk.abs(own) <= float(np.finfo(bk.dtype(values)).eps) ** _RESIDUE * bk.abs(squares)
    found = bk.where(alone, squares, own)
    on_diagonal = structure.rows == structure.cols
    places = bk.take_in_bounds(found, structure.rows, last)
    return bk.where(bk.asarray(on_diagonal, like=values), places, values)
