"""Splitting of unknowns into coarse and fine ones."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .rows import reduced


def pmis(S: sp.csr_array, seed: int = 0) -> np.ndarray:
    """Mask of the coarse unknowns: a maximal independent set of the graph of S or S^T, `(n,)`.

    First those that most others depend on, ties at random. An unknown that no other depends on is fine.

    Args:
        S: `(n, n)`: i depends on j where it has an entry; none on its diagonal.

    Cost: some passes over the entries of S, over ever fewer of them.

    Source: De Sterck, Yang and Heys, Reducing complexity in parallel algebraic multigrid preconditioners, SIAM J.
    Matrix Anal. Appl. 27 (2006).
    """
    n = S.shape[0]
    turned = sp.csr_array(S.T)
    dependents = np.diff(turned.indptr)
    weight = dependents + np.random.default_rng(seed).random(n)
    state = np.where(dependents == 0, -1, 0).astype(np.int8)  # -1 fine, 1 coarse, 0 not decided
    graph, open_ = sp.csr_array(S + turned), np.flatnonzero(state == 0)
    if len(open_) < n:
        graph = graph[open_][:, open_]
    while len(open_):
        own = weight[open_]
        new = open_[own > reduced(np.maximum, own.take(graph.indices), graph.indptr, -1.0)]
        state[new] = 1
        near = turned[new].indices
        state[near[state[near] == 0]] = -1
        left = np.flatnonzero(state[open_] == 0)
        graph, open_ = graph[left][:, left], open_[left]
    return state > 0
