"""Splitting of unknowns into coarse and fine ones."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .rows import gathered, reduced


def pmis(S: sp.csr_array, seed: int = 0) -> np.ndarray:
    """Mask of the coarse unknowns: a maximal independent set of the graph of S or S^T, `(n,)`.

    First those that most others depend on, ties at random. An unknown that no other depends on is fine.

    Args:
        S: `(n, n)`: i depends on j where it has an entry; none on its diagonal.

    Cost: some passes over the entries of S, over ever fewer of them.

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
    """Mask of the coarse unknowns, `(n,)`: one after the other the one on which most others depend, those that depend
    on fine ones counting twice.

    Coarse unknowns lie regularly: on a grid of five points they are those of one colour. Fine ones may depend on each
    other without a common coarse one, which distant interpolation takes care of.

    Args:
        S: `(n, n)`: i depends on j where it has an entry; none on its diagonal.

    Cost: some passes over the entries of S, by pyamg.

    Source: Ruge and Stuben, Algebraic multigrid, in McCormick (ed.), Multigrid methods, SIAM (1987).
    """
    from pyamg.amg_core import rs_cf_splitting

    transposed = sp.csr_array(S.T)
    parts = [part.astype(np.int32, copy=False) for M in (S, transposed) for part in (M.indptr, M.indices)]
    influence, found = np.zeros(S.shape[0], np.int32), np.empty(S.shape[0], np.int32)
    rs_cf_splitting(S.shape[0], *parts, influence, found)
    return found == 1
