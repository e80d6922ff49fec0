"""Spectral bisection of a graph: sort by the Fiedler vector, found on coarser and coarser graphs."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components

from .bisection import Split
from .graph import Graph, coarsened, matched
from .refined import refined

_SMALL = 96  # vertices whose eigenvectors are found by a dense method
_STALLED = 0.95  # a coarser graph with more than that part of the vertices is no help
_STEPS = 12  # of smoothing on each graph
_VECTORS = 3  # that are smoothed together, of which the lowest counts


def by_graph(graph: Graph) -> Split:
    """Split the graph in two where few edges are cut.

    Source: Barnard & Simon, Fast multilevel implementation of recursive spectral bisection, 1994; refined as by
    Fiduccia & Mattheyses, 1982.
    """

    def split(places: np.ndarray, size: int) -> np.ndarray:
        own = graph.of(places)
        count, component = connected_components(own.edges, directed=False)
        order = np.arange(len(places)) if count == 1 else _largest_first(component, count)
        sizes = np.bincount(component)
        ends = np.cumsum(np.sort(sizes)[::-1])
        cut = int(np.searchsorted(ends, size))  # the component that is divided
        start, end = int(ends[cut] - np.sort(sizes)[::-1][cut]), int(ends[cut])
        if size < end:
            inside = order[start:end]
            order[start:end] = inside[_halved(own.of(inside), size - start)]
        return places[order]

    return split


def _largest_first(component: np.ndarray, count: int) -> np.ndarray:
    sizes = np.bincount(component, minlength=count)
    return np.lexsort((component, -sizes[component]))


def _halved(graph: Graph, size: int) -> np.ndarray:
    """Order of the vertices of a connected graph: the `size` of the first half in front."""
    if len(graph.weights) < 3:
        return np.arange(len(graph.weights))
    value = fiedler_vector(graph)
    left = np.zeros(len(value), bool)
    left[np.argpartition(value, size - 1)[:size]] = True
    return np.argsort(~refined(graph.edges, left), kind="stable")


def fiedler_vector(graph: Graph) -> np.ndarray:
    """Approximate eigenvector of the smallest eigenvalue > 0 of the Laplacian of a connected graph."""
    return _lowest(graph, 0)[:, 0]


def _lowest(graph: Graph, depth: int) -> np.ndarray:
    """`(n, up to 3)`: the lowest eigenvectors but the constant one, the lowest first."""
    n = graph.edges.shape[0]
    if n > _SMALL:
        pairs = matched(graph, depth)
        coarse = int(pairs.max()) + 1
        if coarse < _STALLED * n:
            return _smoothed(graph, _lowest(coarsened(graph, pairs), depth + 1)[pairs])
    if n <= 16 * _SMALL:
        L = np.diag(_degrees(graph.edges)) - graph.edges.toarray()
        last = min(_VECTORS, n - 1)
        return scipy.linalg.eigh(L, np.diag(graph.weights), subset_by_index=[1, last])[1]
    start = np.random.default_rng(0).normal(size=(n, _VECTORS))  # as of a star, which has no matching
    return _smoothed(graph, start)


def _smoothed(graph: Graph, V: np.ndarray) -> np.ndarray:
    """Damped Jacobi steps on L v = 0, then the eigenvectors within the span of what they give."""
    edges, degree = graph.edges, _degrees(graph.edges)
    scale = (2 / 3) / np.where(degree > 0, degree, 1)[:, None]
    for _ in range(_STEPS):
        V = V - scale * (degree[:, None] * V - edges @ V)
    V = np.column_stack([np.ones(len(V)), V])
    W = graph.weights[:, None]
    V = V / np.sqrt((W * V * V).sum(0))
    mass = V.T @ (W * V)
    stiff = V.T @ (degree[:, None] * V - edges @ V)
    size = 1e-12 * np.trace(mass)
    _, own = scipy.linalg.eigh((stiff + stiff.T) / 2, (mass + mass.T) / 2 + size * np.eye(len(mass)))
    return V @ own[:, 1:]


def _degrees(edges: sp.csr_array) -> np.ndarray:
    return np.asarray(edges.sum(axis=1)).reshape(-1)
