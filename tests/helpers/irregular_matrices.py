"""Sparse matrices without a grid: triangulations of random points, and graphs with hubs."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.spatial import Delaunay


def triangulated(n: int, axes: int = 2, seed: int = 0, wind: float = 0.0) -> tuple[sp.csr_array, np.ndarray]:
    """Graph Laplacian plus 0.01 of a Delaunay mesh of random points, and these; with `wind` it is not symmetric."""
    points = np.random.default_rng(seed).random((n, axes))
    simplices = Delaunay(points).simplices
    ends = np.concatenate([simplices[:, [i, j]] for i in range(axes + 1) for j in range(i)])
    i, j = np.unique(np.sort(ends, axis=1), axis=0).T
    ahead = wind * (points[j, 0] > points[i, 0])
    weights = np.concatenate([1 + ahead, 1 + wind - ahead])
    G = sp.coo_array((weights, (np.concatenate([i, j]), np.concatenate([j, i]))), (n, n))
    diagonal = np.asarray(G.sum(axis=1)).ravel() + 0.01
    return sp.csr_array(sp.diags_array(diagonal) - G), points


def with_hubs(n: int, hubs: int, seed: int = 0) -> sp.csr_array:
    """A triangulation in which some unknowns are coupled to all others."""
    A, _ = triangulated(n, seed=seed)
    dense = sp.lil_array((n, n))
    for hub in np.random.default_rng(seed).choice(n, hubs, replace=False):
        dense[hub, :] = dense[:, hub] = -0.01
    G = sp.csr_array(dense)
    return sp.csr_array(A + G + sp.diags_array(np.asarray(abs(G).sum(axis=1)).ravel()))
