"""Levels without an approximation: unknowns of one of two colours are eliminated.

Where couplings are only between unknowns of different colours, as with 5 points in two dimensions and 7 in three, those
of one colour are known once the others are: with F for them,

    A^-1 = P S^-1 R + D_F^-1,   P = [I; -D_F^-1 A_FC],   R = [I, -A_CF D_F^-1],   S = R A P = A_CC - A_CF D_F^-1 A_FC.

This takes one product to set up and half of a product with A to apply, instead of interpolation and smoothing.

Source: Saad, Iterative Methods for Sparse Linear Systems, 2nd ed., section 12.4.1 (red-black ordering); Ruge and
Stuben, Algebraic multigrid (1987), section 4.1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from .....sparse.formats.entries.some_rows import evenly_spread
from ..hierarchy import HostLevel
from .interpolation import with_coarse
from .products import product
from .rounding_residues import without_rounding_residues
from .rows import gathered, numbered, on_diagonal, repeated, selected, submatrix
from .rule import ClassicalRule

_MEAN = 7.5  # entries of a row: with more, matrices have triangles
_MOST_PATHS = 3  # over eliminated unknowns, for each entry of A
_FEWEST = 0.25  # of the unknowns are eliminated at least
_SAMPLE = 64  # rows in which triangles are looked for first


def red_black_splitting(A: sp.csr_array) -> np.ndarray | None:
    """Mask of the unknowns that stay when those of one colour are eliminated, `(n,)`; None where that does not pay.

    Two colours there are where the graph of A, doubled, falls into two parts.

    Cost: some passes over the entries of A, if rows are short.
    """
    n = A.shape[0]
    if A.nnz > _MEAN * n or not np.all(A.diagonal()) or _has_triangles(A):
        return None
    off = selected(A, ~on_diagonal(A), np.ones(A.nnz, np.int8))
    starts = np.concatenate([off.indptr, np.full(n, off.indptr[-1], off.indptr.dtype)])
    doubled = sp.csr_array((off.data, off.indices + off.indices.dtype.type(n), starts), (2 * n, 2 * n))
    labels = connected_components(doubled, directed=False)[1]
    colour = labels[:n] < labels[n:]
    if np.any(repeated(colour, off) == gathered(colour, off.indices)):
        return None
    lengths = np.diff(off.indptr).astype(np.int64)
    paths = {key: int(np.sum(lengths[colour == key] ** 2)) for key in (True, False)}
    for key in sorted(paths, key=lambda key: paths[key]):
        if paths[key] <= _MOST_PATHS * A.nnz and np.count_nonzero(colour == key) >= _FEWEST * n:
            return np.asarray(colour != key)
    return None


def _has_triangles(A: sp.csr_array) -> bool:
    """Is an unknown of a sample coupled to two that are coupled to each other? Then two colours are not enough.

    Args:
        A: with its whole diagonal stored.
    """
    rows = evenly_spread(A.shape[0], _SAMPLE)
    ones = sp.csr_array((np.ones(A.nnz, np.int8), A.indices, A.indptr), A.shape)
    some = ones[rows]
    off = selected(some, some.indices != repeated(rows, some))
    paths = off @ ones  # to each neighbour one over its own diagonal; 8 bits may hide triangles, and make none
    return bool(np.any(off.multiply(paths).data > 1))


def eliminated(
    A: sp.csr_array, coarse: np.ndarray, hermitian: bool, components: np.ndarray | None = None
) -> tuple[HostLevel, sp.csr_array] | None:
    """The level that eliminates the unknowns outside of `coarse`, and S; None if these are coupled to each other.

    Args:
        A: with sorted rows and no zeros on its diagonal.
        components: labels that an update needs.
    """
    fine, own, from_coarse = ~coarse, on_diagonal(A), gathered(coarse, A.indices)
    in_fine = repeated(fine, A)
    if np.any(in_fine & ~from_coarse & ~own):
        return None
    n, m = A.shape[0], int(np.count_nonzero(coarse))
    numbers, places, kept = numbered(coarse, A.indices.dtype), np.flatnonzero(fine), np.flatnonzero(coarse)
    diagonal, sums = A.diagonal(), A @ np.ones(A.shape[1])
    W = submatrix(selected(A, in_fine & ~own, A.data * repeated(-1 / diagonal, A)), places, numbers, m)
    CF = submatrix(selected(A, ~in_fine & ~from_coarse), kept, numbers, n - m)
    CC = submatrix(selected(A, ~in_fine & from_coarse), kept, numbers, m)
    left = sums[coarse] - CF @ (sums / diagonal)[fine]
    S = _with_exact_sums(sp.csr_array(CC + product(CF, W)), CC, left)
    P = with_coarse(W, places, coarse)
    if hermitian:
        R = sp.csr_array(P.conj().T)
    else:
        weights = sp.csr_array(CF.T)
        weights.data *= repeated(-1 / diagonal[fine], weights)
        R = sp.csr_array(with_coarse(weights, places, coarse).T)
    rule = replace(ClassicalRule.of(A, P, coarse, ~own, components), eliminates=hermitian)
    level = HostLevel(A, P, R, rule, splitting=coarse, exact=True)
    S.sort_indices()
    return level, without_rounding_residues(S, P, A)


def _with_exact_sums(S: sp.csr_array, CC: sp.csr_array, sums: np.ndarray) -> sp.csr_array:
    """S with the diagonal that its rows have by their sums, where less cancels in these.

    An unknown that is coupled to an eliminated one much more than to all others has a small diagonal entry, the
    difference of two large numbers.
    """
    own, diagonal = on_diagonal(S), S.diagonal()
    off = selected(S, ~own)
    sizes = np.abs(sums) + np.abs(off) @ np.ones(off.shape[1])
    better = sizes < np.abs(CC.diagonal())
    S.data[own] = np.where(better, sums - off @ np.ones(off.shape[1]), diagonal)[S.indices[own]]
    return S
