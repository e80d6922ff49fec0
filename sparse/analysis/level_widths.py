"""How wide the graph of a matrix is: the levels of a breadth-first search, of which each separates those beside it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, connected_components

_LEVELS = 1000  # that are looked at one by one; those after them are taken to be as wide
_HUB = 10  # times the mean entries of a row (and as many more) make one that is near everything


class Levels(NamedTuple):
    """Levels of the largest connected part, from one of its ends.

    Attributes:
        widths: unknowns in each level, integers.
        within: share of the entries beside the diagonal that stay in their level; none on a grid without diagonals.
        hubs: full rows, which are in none.
    """

    widths: np.ndarray
    within: float
    hubs: int


def level_widths(A: sp.csr_array) -> Levels:
    """Levels of the graph of a square matrix; an entry couples both ways.

    Cost: two searches and a few passes over the entries.

    Source: George and Liu, ACM TOMS 5 (1979), for the end that the search begins with.

    Examples:
        >>> import scipy.sparse as sp
        >>> from krylix.sparse.analysis.level_widths import level_widths
        >>> line = sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(4, 4), format="csr")
        >>> level_widths(line)
        Levels(widths=array([1, 1, 1, 1]), within=0.0, hubs=0)
    """
    degrees = np.diff(A.indptr)
    full = degrees > _HUB * (1 + np.mean(degrees)) if len(degrees) else np.zeros(0, bool)
    graph = sp.csr_array((np.ones(A.nnz, np.int8), A.indices, A.indptr), A.shape)  # a search skips entries of zero
    hubs = int(np.count_nonzero(full))
    if hubs:
        few = np.flatnonzero(~full)
        graph = graph[few][:, few]
    if not graph.shape[0]:
        return Levels(np.zeros(0, np.int64), 0.0, hubs)
    order, before = _searched(graph)
    place = np.empty(graph.shape[0], np.int64)
    place[order] = np.arange(len(order))
    found_from = place[before[order[1:]]]  # which do not decrease
    starts = [0, 1]
    while starts[-1] < len(order) and len(starts) <= _LEVELS:
        starts.append(1 + int(np.searchsorted(found_from, starts[-1])))
    starts.extend(range(starts[-1] + max(starts[-1] // len(starts), 1), len(order), max(starts[-1] // len(starts), 1)))
    widths = np.diff(starts if starts[-1] == len(order) else [*starts, len(order)])
    return Levels(widths, _share_within(graph, order, widths), hubs)


def _searched(graph: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    """The unknowns of the largest part, as they are found from one of its ends, and from which each was found."""
    first, _ = breadth_first_order(graph, 0, directed=True)
    order, before = breadth_first_order(graph, int(first[-1]), directed=True)
    if len(order) >= max(len(first), graph.shape[0] / 2):
        return order, before
    first, _ = breadth_first_order(graph, _in_largest_part(graph), directed=False)  # which transposes it
    order, before = breadth_first_order(graph, int(first[-1]), directed=False)
    return order, before


def _share_within(graph: sp.csr_array, order: np.ndarray, widths: np.ndarray) -> float:
    level = np.full(graph.shape[0], -1)
    level[order] = np.repeat(np.arange(len(widths)), widths)
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    apart = rows != graph.indices
    same = level[rows] == level[graph.indices]
    return int(np.count_nonzero(same & apart)) / max(int(np.count_nonzero(apart)), 1)


def _in_largest_part(graph: sp.csr_array) -> int:
    _, part = connected_components(graph, directed=False)
    return int(np.argmax(part == np.argmax(np.bincount(part))))
