"""Rounding on the diagonal of coarse matrices: what is left of regions where A maps constants to zero."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .....backends import Array, Backend
from .....sparse.formats.compressed import CsrStructure

ROUNDING = 64.0  # times the rounding unit and the terms of the finest level, likewise
_RESIDUE = 0.75  # power of the rounding unit: sums of that size, of terms of one, are of rounding only


def without_rounding_residues(
    coarse: sp.csr_array, P: sp.csr_array, A: sp.csr_array, terms: np.ndarray | None = None
) -> sp.csr_array:
    """`P^T A P` without rows of rounding only, whose inverse is huge and of any sign; may write to `coarse`.

    A closed region that has shrunk to a point leaves one. It gets the diagonal that the point would have without
    neighbours.

    Args:
        terms: sizes of the terms that the diagonal of `coarse` is the sum of, see `sizes_of_terms`.
    """
    squares = _squared(P).T @ A.diagonal()
    eps, size = float(np.finfo(A.dtype).eps), np.abs(coarse.diagonal())
    few = size <= eps**_RESIDUE * np.abs(squares)
    alone = np.flatnonzero(few if terms is None else few | (size <= ROUNDING * eps * terms))
    if len(alone):
        coarse = sp.csr_array(coarse + sp.csr_array((squares[alone], (alone, alone)), coarse.shape))
    return coarse


def sizes_of_terms(terms: np.ndarray, P: sp.csr_array) -> np.ndarray:
    """Sizes of the terms on the diagonal of `P^T A P` from those of A; of the finest matrix |a_ii|.

    The rounding of a coarse matrix is relative to them: small entries of coarse matrices can be of rounding that
    finer levels have left.
    """
    return np.asarray(_squared(P).T @ terms)


def _squared(P: sp.csr_array) -> sp.csr_array:
    return sp.csr_array((np.abs(P.data) ** 2, P.indices, P.indptr), P.shape)


def values_without_rounding_residues(
    bk: Backend, structure: CsrStructure, values: Array, P: CsrStructure, p: Array, diagonal: Array, terms: Array
) -> tuple[Array, Array]:
    """`without_rounding_residues` for entries in row order, `(nnz,)` or `(systems, nnz)`, in any library, and `terms`.

    Args:
        structure: of the coarse matrix.
        P: the structure of the prolongation.
        p: its entries.
        diagonal: of the finer matrix, `(n,)` or `(systems, n)`.
        terms: of the finer matrix, likewise; real.
    """
    last = len(values.shape) - 1
    squares = bk.sum_entries(p * bk.conj(p) * bk.take_in_bounds(diagonal, P.rows, last), P.cols, P.shape[1])
    below = bk.sum_entries(bk.abs(p) ** 2 * bk.take_in_bounds(terms, P.rows, last), P.cols, P.shape[1])
    own = structure.diagonal(bk, (values,), None if last == 0 else int(values.shape[0]))
    eps = float(np.finfo(bk.dtype(values)).eps)
    alone = (bk.abs(own) <= eps**_RESIDUE * bk.abs(squares)) | (bk.abs(own) <= ROUNDING * eps * below)
    found = bk.where(alone, squares, own)
    on_diagonal = structure.rows == structure.cols
    places = bk.take_in_bounds(found, structure.rows, last)
    return bk.where(bk.asarray(on_diagonal, like=values), places, values), below
