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

import numpy as np
import scipy.sparse as sp

from .rows import (
    gathered,
    largest_in_rows,
    numbered,
    on_diagonal,
    product,
    reduced,
    repeated,
    row_counts,
    selected,
    submatrix,
    transposed_entries,
)

MOST = 4
"""Entries of a row of the prolongation, as in BoomerAMG. On grids, media and a mesh of 6 000 to 10 000 unknowns these
take as many iterations as all entries (5 to 9); 3 take one more, and 16 in place of 9 for a rotated anisotropy."""
LARGEST_SUM = 10.0  # of the weights of a row
_MOST_PATHS = 20  # over two strong couplings, for each entry of A
STRONGEST = 10  # couplings to fine unknowns of a row, where there are more paths


def prolongation(
    A: sp.csr_array,
    coupled: np.ndarray,
    sums: np.ndarray,
    strong: np.ndarray,
    coarse: np.ndarray,
    symmetric: bool,
    most: int = MOST,
) -> sp.csr_array:
    """`(n, coarse unknowns)`: rows of W at fine unknowns, of the identity at coarse ones.

    Args:
        A: with a positive diagonal, sorted rows and no duplicates.
        coupled: its entries as real numbers, see `couplings`.
        sums: of `coupled` in each row.
        strong: mask of the strong entries.
        coarse: mask of the coarse unknowns.
        symmetric: are `coupled` those of a symmetric matrix, `a_ki = a_ik`?
        most: number of largest entries kept in a row, scaled to the sum of the whole row.
    """
    fine = np.flatnonzero(~coarse)
    numbers = numbered(coarse, A.indices.dtype)
    to_coarse, of_fine = gathered(coarse, A.indices), repeated(~coarse, A)
    strong = strong & of_fine
    fc, ff = strong & to_coarse, strong & ~to_coarse
    A_FC = submatrix(selected(A, fc), fine, numbers, A.shape[0] - len(fine))
    beta = reduced(np.add, A_FC.data if coupled is A.data else coupled[fc], A_FC.indptr, 0.0)
    places = np.flatnonzero(ff)
    own, of_k = coupled.take(places), gathered(beta, numbers.take(A.indices.take(places)))
    below = of_k + (own if symmetric else np.minimum(_of_transpose(A, coupled, places), 0))
    below[below == 0] = -np.inf  # k does not interpolate: the entry counts as weak.
    values = np.ones(len(A.data), A.dtype)  # ones on the diagonal: one product then makes A_FC + F A_FC
    values[places] = A.data.take(places) / below
    N = product(submatrix(selected(A, ff | (on_diagonal(A) & of_fine), values), fine, numbers, len(fine)), A_FC)
    total = None
    if coupled is not A.data:  # N has phases
        through = np.zeros(len(coupled))
        through[places] = own / below * of_k
        total = beta + reduced(np.add, through, A.indptr, 0.0)[fine]
    return with_coarse(_weights(N, total, sums[fine], most), fine, coarse)


def without_explosion(A: sp.csr_array, strong: np.ndarray, coarse: np.ndarray, coupled: np.ndarray) -> np.ndarray:
    """`strong`, but with only the 10 strongest couplings between fine unknowns in a row if there are too many paths.

    Otherwise A_FF A_FC could have many times the entries of A, as with hubs. Omitted couplings count as weak.
    """
    if np.diff(A.indptr).max() <= _MOST_PATHS:
        return strong
    to_coarse = strong & gathered(coarse, A.indices)
    between = strong & ~to_coarse & repeated(~coarse, A)
    if gathered(row_counts(to_coarse, A), A.indices[between]).sum(dtype=np.int64) <= _MOST_PATHS * A.nnz:
        return strong
    kept = largest_in_rows(np.where(between, -coupled, 0), A.indptr, STRONGEST)
    return strong & (kept | ~between)


def _of_transpose(A: sp.csr_array, coupled: np.ndarray, places: np.ndarray) -> np.ndarray:
    """`a_ki` for the entries (i, k) at these places; 0 where there is none."""
    back = transposed_entries(A, places, repeated(np.arange(A.shape[0], dtype=np.int64), A).take(places))
    return np.where(back >= 0, coupled.take(back), 0)


def _weights(N: sp.csr_array, total: np.ndarray | None, sums: np.ndarray, most: int) -> sp.csr_array:
    """`W = -N / (e - t)`: the largest entries of each row, with the sum of all.

    If the sum of a row of A is so negative that its weights would add up to more than 10, they add up to 10.
    """
    sizes = np.abs(N.data)
    W = selected(N, largest_in_rows(sizes, N.indptr, most))
    total = -reduced(np.add, sizes, N.indptr, 0.0) if total is None else total  # no entry of N is positive
    kept, below = reduced(np.add, np.abs(W.data), W.indptr, 0.0), np.maximum(sums - total, -total / LARGEST_SUM)
    factor = np.divide(total, -kept, out=np.zeros_like(below), where=kept > 0)  # kept * below may underflow
    np.divide(-factor, below, out=factor, where=below > 0)
    W.data *= repeated(factor, W)
    return W


def with_coarse(W: sp.csr_array, fine: np.ndarray, coarse: np.ndarray) -> sp.csr_array:
    """Rows of W at fine unknowns, of the identity at coarse ones."""
    lengths = np.ones(len(coarse), W.indptr.dtype)
    lengths[fine] = np.diff(W.indptr)
    starts = np.zeros(len(coarse) + 1, W.indptr.dtype)
    np.cumsum(lengths, out=starts[1:])
    data, cols = np.ones(starts[-1], W.dtype), np.empty(starts[-1], W.indices.dtype)
    places = np.flatnonzero(np.repeat(~coarse, lengths))
    data[places], cols[places] = W.data, W.indices
    cols[starts[:-1][coarse]] = np.arange(W.shape[1])
    return sp.csr_array((data, cols, starts), (len(coarse), W.shape[1]))
