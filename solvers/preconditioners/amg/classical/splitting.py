"""Classical coarsening: which couplings of an unknown are strong, and which unknowns become coarse."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ..settings import AmgSettings
from .rows import gathered, on_diagonal, reduced, repeated

_HUB = 20  # times the mean number of entries of a row
_STRENGTH_OF_HUBS = 0.7  # for graphs with such rows: as many iterations as with 0.25, for four fifths of the memory
DOMINATED = 0.9  # of the diagonal entry, as in BoomerAMG: rows with a larger sum are solved by smoothing alone


def with_positive_diagonal(A: sp.csr_array, diagonal: np.ndarray) -> sp.csr_array:
    """A with rows multiplied by phases that make the diagonal positive."""
    size = np.abs(diagonal)
    if np.array_equal(diagonal, size):
        return A
    units = np.where(size > 0, np.conj(diagonal) / np.where(size > 0, size, 1), 1)
    return sp.csr_array((A.data * repeated(units, A), A.indices, A.indptr), A.shape)


def couplings(A: sp.csr_array, own: np.ndarray | None = None) -> np.ndarray:
    """The entries of rows with a positive diagonal as real numbers, negative for couplings that interpolate.

    For a real matrix they are its entries. For a complex one they are `-|a_ij|` and `a_ii`, so that a Hermitian matrix
    `D A D^H` with phases D is coarsened like A.

    Args:
        own: mask of the entries on the diagonal; default: those of a square matrix.
    """
    if A.dtype.kind != "c":
        return A.data
    return np.where(on_diagonal(A) if own is None else own, 1, -1) * np.abs(A.data)


def strong_entries(
    A: sp.csr_array, coupled: np.ndarray, sums: np.ndarray, diagonal: np.ndarray, theta: float
) -> np.ndarray:
    """Mask of the strong entries: `-a_ij >= theta max_k -a_ik`.

    Rows without a negative coupling, and those with a sum above 0.9 `a_ii`, have none.

    Args:
        A: rows of a matrix.
        coupled: their `couplings`; zeros are never strong.
        sums: sums of `coupled` in each row.
        diagonal: diagonal entries of these rows, positive.
    """
    least = theta * reduced(np.minimum, coupled, A.indptr, 0.0)
    least[(least >= 0) | (sums > DOMINATED * diagonal)] = -np.inf
    return np.asarray(coupled <= repeated(least, A))


def threshold_of(A: sp.csr_array, settings: AmgSettings) -> float:
    """The given strength threshold, or the default, which is higher for graphs with hubs."""
    lengths = np.diff(A.indptr)
    hubs = len(lengths) and lengths.max() > _HUB * max(lengths.mean(), 1)
    return _STRENGTH_OF_HUBS if hubs and settings.strength is None else settings.threshold


def pmis(S: sp.csr_array, seed: int = 0) -> np.ndarray:
    """Mask of the coarse unknowns: a maximal independent set of the graph of S or S^T, `(n,)`.

    Unknowns on which most others depend come first, ties at random. An unknown on which no other depends is fine.

    Args:
        S: `(n, n)`: i depends on j where it has an entry; none on its diagonal.

    Cost: some passes over ever fewer entries of S.

    Source: De Sterck, Yang and Heys, Reducing complexity in parallel algebraic multigrid preconditioners, SIAM J.
    Matrix Anal. Appl. 27 (2006).
    """
    transposed = sp.csr_array(S.T)
    dependents = np.diff(transposed.indptr)
    weight = dependents + np.random.default_rng(seed).random(S.shape[0])
    state = np.where(dependents == 0, -1, 0).astype(np.int8)  # -1 fine, 1 coarse, 0 not decided
    graphs, left = (S, transposed), np.arange(S.shape[0])  # weights of fine ones are below all that are not decided
    while len(left):
        own = weight[left]
        around = [reduced(np.maximum, gathered(own, g.indices), g.indptr, -1.0) for g in graphs]
        new = left[(own > np.maximum(*around)) & (state[left] == 0)]
        state[new] = 1
        near = transposed[new].indices
        state[near[state[near] == 0]] = -1
        open_ = np.flatnonzero(state[left] == 0)
        graphs, left = tuple(g[open_][:, open_] for g in graphs), left[open_]
    return state > 0


def first_pass(S: sp.csr_array) -> np.ndarray:
    """Mask of the coarse unknowns, `(n,)`, by the first pass of Ruge and Stuben.

    In turn the unknown becomes coarse on which most others depend, where dependents of fine unknowns count twice.
    Coarse unknowns lie regularly: for five-point stencils they are those of one colour. Fine ones may depend on each
    other without a common coarse one, which distance-two interpolation allows.

    Args:
        S: `(n, n)`: i depends on j where it has an entry; none on its diagonal.

    Cost: some passes over the entries of S, by pyamg.

    Source: Ruge and Stuben, Algebraic multigrid, in McCormick (ed.), Multigrid methods, SIAM (1987).
    """
    from pyamg.amg_core import rs_cf_splitting

    transposed = sp.csr_array(S.T)
    parts = [part.astype(np.int32, copy=False) for M in (S, transposed) for part in (M.indptr, M.indices)]
    influence, splitting = np.zeros(S.shape[0], np.int32), np.empty(S.shape[0], np.int32)
    rs_cf_splitting(S.shape[0], *parts, influence, splitting)
    return splitting == 1
