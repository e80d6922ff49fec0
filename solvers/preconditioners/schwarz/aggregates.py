"""Aggregates of unknowns, by repeated heavy-edge matching: each level joins pairs of those of the one before."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ....sparse.partition.graph import coarsened, graph_of, matched

_STALLED = 0.98  # a level that joins fewer changes nothing any more


def aggregates(n: int, rows: np.ndarray, cols: np.ndarray) -> Iterator[np.ndarray]:
    """Labels `(n,)` 0, 1, ... of connected sets of at most 1, 2, 4, ... unknowns, while they still grow.

    Cost: a few sorts of the entries in each level.
    """
    graph, labels = graph_of(rows, cols, n), np.arange(n)
    yield labels
    for level in range(64):
        pairs = matched(graph, level)
        if not n or int(pairs.max()) + 1 > _STALLED * len(pairs):
            return
        graph, labels = coarsened(graph, pairs), pairs[labels]
        yield labels


def subdomains_and_clusters(
    n: int, rows: np.ndarray, cols: np.ndarray, size: int, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Labels of subdomains of at most `size` unknowns, and of at most `most` clusters, of half that size or larger."""
    subdomains = clusters = np.arange(n)
    for level, labels in enumerate(aggregates(n, rows, cols)):
        if 2**level <= size:
            subdomains = labels
        clusters = labels
        if 2 ** (level + 1) >= size and int(labels.max(initial=-1)) < most:
            break
    count = int(clusters.max(initial=-1)) + 1
    return subdomains, clusters if count <= most else clusters * most // count
