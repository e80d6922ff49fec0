"""Graph of a sparse matrix, and its coarsening by heavy-edge matching."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

_ROUNDS = 4  # of proposals, after which few vertices with unmatched neighbours are left


class Graph(NamedTuple):
    """Symmetric edge weights without loops, and the number of unknowns that a vertex stands for."""

    edges: sp.csr_array
    weights: np.ndarray

    def of(self, places: np.ndarray) -> Graph:
        """The subgraph of some vertices."""
        return Graph(self.edges[places][:, places], self.weights[places])


def graph_of(rows: np.ndarray, cols: np.ndarray, n: int) -> Graph:
    """The undirected graph of a pattern: two unknowns that share an entry are an edge of weight 1."""
    apart = rows != cols
    i, j = rows[apart].astype(np.int32), cols[apart].astype(np.int32)
    edges = sp.csr_array((np.ones(2 * len(i)), (np.concatenate([i, j]), np.concatenate([j, i]))), (n, n))
    edges.sum_duplicates()
    edges.data[:] = 1
    return Graph(edges, np.ones(n))


def matched(graph: Graph, seed: int = 0) -> np.ndarray:
    """`(n,)`: number of the pair of each vertex, or of the vertex alone, 0, 1, ...

    Each vertex proposes to the unmatched neighbour to which its edge is heaviest, ties at random; mutual proposals are
    pairs. What remains alone joins nobody.

    Source: Karypis & Kumar, A fast and high quality multilevel scheme for partitioning irregular graphs, 1998.
    """
    edges, n = graph.edges, graph.edges.shape[0]
    rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(edges.indptr))
    cols, data, random = edges.indices, edges.data, np.random.default_rng(seed)
    mate = np.full(n, -1, np.int32)
    for _ in range(_ROUNDS):
        free = (mate[rows] < 0) & (mate[cols] < 0)
        rows, cols, data = rows[free], cols[free], data[free]
        if not len(rows):
            break
        rank = random.permutation(n)
        low, high = np.minimum(rank[rows], rank[cols]), np.maximum(rank[rows], rank[cols])
        tie = (low * 40503 + high * 30011) % 65537  # alike from both ends
        order = np.lexsort((tie, data / np.maximum(graph.weights[rows] * graph.weights[cols], 1), rows))
        last = order[np.append(np.flatnonzero(np.diff(rows[order])), len(order) - 1)]
        wish = np.full(n, -1, np.int32)
        wish[rows[last]] = cols[last]
        mutual = np.flatnonzero((wish >= 0) & (wish[np.maximum(wish, 0)] == np.arange(n)))
        mate[mutual] = wish[mutual]
    first = np.where(mate < 0, np.arange(n), np.minimum(mate, np.arange(n)))
    return np.unique(first, return_inverse=True)[1].reshape(-1)


def coarsened(graph: Graph, pairs: np.ndarray) -> Graph:
    """The graph whose vertices are the pairs; parallel edges add up."""
    count = int(pairs.max(initial=-1)) + 1
    n = len(pairs)
    P = sp.csr_array((np.ones(n), (np.arange(n), pairs)), (n, count))
    edges = sp.coo_array(P.T @ graph.edges @ P)
    keep = edges.row != edges.col
    found = sp.csr_array((edges.data[keep], (edges.row[keep], edges.col[keep])), (count, count))
    return Graph(found, np.bincount(pairs, graph.weights, count))
