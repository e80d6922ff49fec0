"""Extended+i interpolation, exactly, by one product of sparse matrices.

With F and C for fine and coarse unknowns, A_FC and A_FF the strong entries of fine rows, and e the sums of whole rows:

    N = A_FC + F A_FC,   F_ik = a_ik / (beta_k + a_ki),   beta = A_FC 1,   W = -N / (e - t),   t = N 1 = beta + F beta.

The textbook's denominator, `a_ii + sum of weak a_ij + sum_k F_ik a_ki`, is `e - t`, in which nothing cancels: where
e = 0 the weights of a row add up to 1 for any contrast of the coefficients.

Source: De Sterck, Falgout, Nolting and Yang, Distance-two interpolation for parallel algebraic multigrid, Numer. Linear
Algebra Appl. 15 (2008); in products, with averages of a_ki: Li, Sjogreen and Yang, A new class of AMG interpolation
methods based on matrix-matrix multiplications, SIAM J. Sci. Comput. 43 (2021).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from .rows import largest_in_rows, reduced, repeated, selected

MOST = 4  # entries of a row of the prolongation
_LARGEST_SUM = 10.0  # of the weights of a row


class Rows(NamedTuple):
    """Rows of a matrix with a positive diagonal, sorted, no place twice.

    Attributes:
        A: the matrix.
        coupled: its entries as real numbers, see `couplings`.
        sums: of `coupled` in each row.
        strong: mask of the strong entries.
    """

    A: sp.csr_array
    coupled: np.ndarray
    sums: np.ndarray
    strong: np.ndarray


def prolongation(rows: Rows, coarse: np.ndarray, symmetric: bool, most: int = MOST) -> sp.csr_array:
    """`(n, coarse unknowns)`: rows of W at fine unknowns, of the identity at coarse ones.

    Args:
        rows: of the matrix.
        coarse: mask of the unknowns.
        symmetric: are `coupled` those of a symmetric matrix, `a_ki = a_ik`?
        most: entries of a row at most, the largest ones, scaled to the sum that the whole row has.
    """
    A, coupled = rows.A, rows.coupled
    fine = np.flatnonzero(~coarse)
    number = np.where(coarse, np.cumsum(coarse), np.cumsum(~coarse)).astype(A.indices.dtype) - 1
    taken, to_coarse = rows.strong & repeated(~coarse, A), coarse.take(A.indices)
    at_fc, at_ff = np.flatnonzero(taken & to_coarse), np.flatnonzero(taken & ~to_coarse)
    A_FC = _fine_rows(A, at_fc, fine, number, A.shape[0] - len(fine))
    A_FF = _fine_rows(A, at_ff, fine, number, len(fine))
    back = coupled.take(at_ff) if symmetric else np.minimum(_of_transpose(A, coupled, at_ff), 0)
    beta = reduced(np.add, coupled.take(at_fc), A_FC.indptr, 0.0)
    below = beta.take(A_FF.indices) + back
    below[below == 0] = -np.inf  # k takes from nobody: an entry that counts as weak
    F = sp.csr_array((A_FF.data / below, A_FF.indices, A_FF.indptr), A_FF.shape)
    N = sp.csr_array(F @ A_FC + A_FC)
    share = coupled.take(at_ff) / below  # of F, which has phases if A is complex
    total = beta + reduced(np.add, share * beta.take(A_FF.indices), A_FF.indptr, 0.0)
    return _with_coarse(_weights(N, total, rows.sums[fine], most), fine, coarse)


def _fine_rows(A: sp.csr_array, places: np.ndarray, fine: np.ndarray, number: np.ndarray, width: int) -> sp.csr_array:
    """The entries of A at places in fine rows, as a matrix of these rows."""
    found = selected(A, places)
    starts = found.indptr[np.append(fine, A.shape[0])]  # rows between are empty
    return sp.csr_array((found.data, number.take(found.indices), starts), (len(fine), width))


def _of_transpose(A: sp.csr_array, coupled: np.ndarray, places: np.ndarray) -> np.ndarray:
    """`a_ki` for the entries (i, k) at these places; 0 where there is none."""
    turned = sp.csr_array(sp.csr_array((coupled, A.indices, A.indptr), A.shape).T)
    if np.array_equal(turned.indptr, A.indptr) and np.array_equal(turned.indices, A.indices):
        return np.asarray(turned.data.take(places))
    n, rows = np.int64(A.shape[0]), repeated(np.arange(A.shape[0], dtype=np.int64), A)
    keys, wanted = rows * n + A.indices, A.indices.take(places) * n + rows.take(places)
    found = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys.take(found) == wanted, coupled.take(found), 0)


def _weights(N: sp.csr_array, total: np.ndarray, sums: np.ndarray, most: int) -> sp.csr_array:
    """`W = -N / (e - t)`: the largest entries of each row, with the sum of all.

    Where a row has so negative a sum that its weights would add up to more than 10, they add up to that.
    """
    sizes = np.abs(N.data)
    places = np.flatnonzero(largest_in_rows(sizes, N.indptr, most))
    W = selected(N, places)
    whole, kept = (reduced(np.add, x, starts, 0.0) for x, starts in ((sizes, N.indptr), (sizes.take(places), W.indptr)))
    below = kept * np.maximum(sums - total, -total / _LARGEST_SUM)
    factor = np.divide(-whole, below, out=np.zeros_like(below), where=below > 0)
    W.data *= repeated(factor, W)
    return W


def _with_coarse(W: sp.csr_array, fine: np.ndarray, coarse: np.ndarray) -> sp.csr_array:
    """Rows of W at fine unknowns, of the identity at coarse ones."""
    lengths = np.ones(len(coarse), W.indptr.dtype)
    lengths[fine] = np.diff(W.indptr)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(W.indptr.dtype)
    from_coarse = np.repeat(coarse, lengths)
    data, cols = np.ones(starts[-1], W.dtype), np.empty(starts[-1], W.indices.dtype)
    data[~from_coarse], cols[~from_coarse] = W.data, W.indices
    cols[from_coarse] = np.arange(W.shape[1])
    return sp.csr_array((data, cols, starts), (len(coarse), W.shape[1]))
