"""Partition of the unknowns into clusters: boxes of a grid, or connected sets of about equal size in the graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra

from ..block_jacobi.blocks import components_per_node, given_labels
from ..checks import check_integer

_SWEEPS = 4  # in which centres move: more change little
_SHORT = 3  # unknowns along an axis whose unknowns stay apart: components of vectors rather than neighbours
_FULL = 0.25  # of all entries, from which a pattern says nothing of who is near


def labels_of_clusters(
    n: int, clusters: Any, grid: Sequence[int], pattern: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """`(n,)`: cluster label of each unknown, 0, 1, ..., or -1 for none.

    Args:
        n: number of unknowns.
        clusters: about how many; the number of boxes along each axis of the grid, as a tuple; or labels.
        grid: shape of the grid of the unknowns, last axis fastest; of one axis: the graph decides.
        pattern: rows and columns of the entries, in row order.

    Raises:
        ValueError: none of these.
    """
    if isinstance(clusters, tuple):
        return _boxes(grid, clusters)
    if np.ndim(clusters):
        return given_labels("clusters", clusters, n)
    count = min(check_integer("clusters", clusters, 1), n)
    if len(grid) > 1:
        return _boxes(grid, boxes_per_axis(grid, count))
    return _of_graph(n, *pattern, count)


def boxes_per_axis(grid: Sequence[int], count: int) -> tuple[int, ...]:
    """Boxes per axis: about `count` nearly cubic boxes."""
    found = {axis: size for axis, size in enumerate(grid) if size <= _SHORT}
    rest = [axis for axis in range(len(grid)) if axis not in found]
    left = count / math.prod(found.values())
    for axis in sorted(rest, key=lambda axis: grid[axis]):  # the shorter ones, which may be shorter than an edge
        others = [grid[a] for a in rest if a not in found]
        edge = (math.prod(others) / max(left, 1)) ** (1 / len(others))
        found[axis] = min(max(round(grid[axis] / edge), 1), grid[axis])
        left /= found[axis]
    return tuple(found[axis] for axis in range(len(grid)))


def _boxes(grid: Sequence[int], boxes: Sequence[Any]) -> np.ndarray:
    if len(boxes) != len(grid):
        raise ValueError(
            f"clusters={tuple(boxes)} was given for a grid of the shape {tuple(grid)}; expected the number of boxes "
            "along each axis. Give grid=shape too if A does not know the shape, or the number of all clusters."
        )
    counts = [min(check_integer("clusters", k, 1), size) for k, size in zip(boxes, grid, strict=True)]
    along = [np.arange(size) * k // size for size, k in zip(grid, counts, strict=True)]
    return np.ravel_multi_index(np.ix_(*along), counts).reshape(-1)


def _of_graph(n: int, rows: np.ndarray, cols: np.ndarray, count: int) -> np.ndarray:
    """Clusters of nodes with equally many unknowns, one set of clusters per component."""
    if len(rows) > _FULL * n * n:
        return np.arange(n) * count // n
    k = components_per_node(n, rows, cols)
    if k > 1:
        nodes = connected_clusters(n // k, rows // k, cols // k, -(-count // k))
        each = k * nodes[:, None] + np.arange(k)
        return np.where(nodes[:, None] < 0, -1, each).reshape(-1)
    return connected_clusters(n, rows, cols, count)


def connected_clusters(n: int, rows: np.ndarray, cols: np.ndarray, count: int) -> np.ndarray:
    """`(n,)`: nearest of `count` centres in the graph, -1 where none is connected (Lloyd aggregation).

    Centres start at random and move to where it is farthest to other clusters, as in Lloyd's algorithm: Bell, Algebraic
    Multigrid for Discrete Differential Forms, 2008, section 4.3.
    """
    graph = sp.csr_array((np.ones(len(rows)), (rows, cols)), (n, n))
    centres = np.random.default_rng(0).choice(n, count, replace=False)
    labels = _nearest(graph, centres)
    for _ in range(_SWEEPS):
        border = np.unique(rows[labels[rows] != labels[cols]])
        if not len(border):
            break
        distance = dijkstra(graph, directed=False, indices=border, unweighted=True, min_only=True)
        inside = np.flatnonzero(labels >= 0)
        order = inside[np.lexsort((np.where(np.isfinite(distance), distance, 0)[inside], labels[inside]))]
        centres = order[np.append(np.flatnonzero(np.diff(labels[order])), len(order) - 1)]
        labels = _nearest(graph, centres)
    return labels


def _nearest(graph: sp.csr_array, centres: np.ndarray) -> np.ndarray:
    _, _, sources = dijkstra(
        graph, directed=False, indices=centres, unweighted=True, min_only=True, return_predecessors=True
    )
    numbers = np.full(graph.shape[0], -1)
    numbers[centres] = np.arange(len(centres))
    return np.where(sources >= 0, numbers[np.maximum(sources, 0)], -1)
