"""Graph of a sparse matrix: fill of its factors, orders of elimination, widths of its levels, and matchings.

Only positions of entries count here, not their values.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, connected_components


class RangeMinimum:
    """Minima of an array over all ranges whose length is a power of two, of which any range has two.

    Memory: the array times the logarithm of its length.

    Source: Bender and Farach-Colton, The LCA problem revisited, LATIN 2000.
    """

    def __init__(self, values: np.ndarray) -> None:
        self.rows, width = [values], 1
        while 2 * width <= len(values):
            before = self.rows[-1]
            self.rows.append(np.minimum(before[:-width], before[width:]))
            width *= 2

    def between(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """The least value in `first`..`last`, both included, arrays of one length."""
        powers = np.frexp((last - first + 1).astype(np.float64))[1] - 1
        found = np.empty(len(first), self.rows[0].dtype)
        by_power = np.argsort(powers, kind="stable")
        ends = np.searchsorted(powers[by_power], np.arange(len(self.rows) + 1))
        for power, row in enumerate(self.rows):
            which = by_power[ends[power] : ends[power + 1]]
            found[which] = np.minimum(row[first[which]], row[last[which] - 2**power + 1])
        return found


# --- Fill: entries of the triangular factors, counted without any arithmetic on values ---


def column_counts(rows: np.ndarray, cols: np.ndarray, n: int) -> np.ndarray:
    """Entries below the diagonal in each column of the Cholesky factor of a symmetric pattern, in the given order.

    Args:
        rows: rows of the entries, integers; an entry on one side of the diagonal stands for both, duplicates are fine.
        cols: their columns.
        n: number of rows.

    Returns:
        An array (n,) of integers.

    Cost: two passes of Python over the entries and the rows, and some of NumPy.

    Source: Gilbert, Ng and Peyton, SIAM J. Matrix Anal. Appl. 15 (1994); the elimination tree: Liu, ibid. 11 (1990).

    Examples:
        >>> import numpy as np
        >>> from krylix.sparse.analysis.graph import column_counts
        >>> column_counts(np.array([3, 3, 3]), np.array([0, 1, 2]), 4)  # an arrow, its tip last: no fill
        array([1, 1, 1, 0])
        >>> column_counts(np.array([1, 2, 3]), np.array([0, 0, 0]), 4)  # its tip first
        array([3, 2, 1, 0])
    """
    low, high = _below_diagonal(rows, cols, n)
    places, first = _postorder(_parents(low, high, n))
    found = np.empty(n, np.int64)
    found[:] = _in_postorder(*_below_diagonal(places[low], places[high], n), first)[places]
    return found


def _below_diagonal(rows: np.ndarray, cols: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Each coupling once: the smaller and the larger number, sorted by the larger one first."""
    low, high = np.minimum(rows, cols).astype(np.int64), np.maximum(rows, cols).astype(np.int64)
    apart = low != high
    key = np.sort(high[apart] * n + low[apart])
    key = key[np.concatenate([[True], key[1:] != key[:-1]])] if len(key) else key
    high = key // max(n, 1)
    return key - high * n, high


def _parents(low: np.ndarray, high: np.ndarray, n: int) -> list[int]:
    """The elimination tree: the parent of each column, n where it has none."""
    parent, ancestor = [n] * n, [n] * n
    for i, k in zip(high.tolist(), low.tolist(), strict=True):
        while k != i:  # the path to i, shortened for later ones
            after = ancestor[k]
            ancestor[k] = i
            if after == n:
                parent[k] = i
                break
            k = after
    return parent


def _postorder(parent: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """A place for each column, the columns of each subtree in a row; and by place, the first one of its subtree."""
    n = len(parent)
    size = [1] * (n + 1)
    for j, p in enumerate(parent):
        size[p] += size[j]
    free, start = [0] * (n + 1), [0] * n  # where the next child of a column goes, and where its subtree begins
    for j in range(n - 1, -1, -1):
        p = parent[j]
        at = start[j] = free[j] = free[p]
        free[p] = at + size[j]
    first = np.array(start, np.int64)
    places = first + np.array(size[:n], np.int64) - 1
    by_place = np.empty(n, np.int64)
    by_place[places] = first
    return places, by_place


def _in_postorder(low: np.ndarray, high: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Counts of a postordered pattern.

    Row i of the factor has the columns on the paths from its entries to i: each entry starts one, which ends where it
    meets the path of the entry before, or at i.
    """
    n = len(first)
    if not n:
        return np.zeros(0, np.int64)
    weights = np.bincount(low, minlength=n) - (np.bincount(high, minlength=n) > 0)
    same_row = high[1:] == high[:-1]
    before, entry = low[:-1][same_row], low[1:][same_row]
    above = first[entry] <= before
    weights -= np.bincount(entry[above], minlength=n)
    before, entry = before[~above], entry[~above]
    if len(entry):
        weights -= np.bincount(_common_ancestors(before, entry, first), minlength=n)
    sums = np.concatenate([[0], np.cumsum(weights)])
    return sums[1:] - sums[first]


def _common_ancestors(left: np.ndarray, right: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The lowest common ancestor of pairs of postordered columns, left < right, none of them above the other."""
    n = len(first)
    numbers = np.arange(n)
    depth = np.cumsum(np.bincount(first, minlength=n)) - numbers
    wanted = RangeMinimum(depth).between(left, right) - 1
    by_depth = np.sort(depth * n + numbers)
    return by_depth[np.searchsorted(by_depth, wanted * n + right)] - wanted * n


# --- Levels of a breadth-first search, each of which separates those before and after it ---

_LEVELS = 1000  # that are looked at one by one; those after them are taken to be as wide
_HUB_OF_LEVELS = 10  # times the mean entries of a row (and as many more) make one that is near everything


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
    """
    degrees = np.diff(A.indptr)
    full = degrees > _HUB_OF_LEVELS * (1 + np.mean(degrees)) if len(degrees) else np.zeros(0, bool)
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
    _, part = connected_components(graph, directed=False)
    largest = int(np.argmax(part == np.argmax(np.bincount(part))))
    first, _ = breadth_first_order(graph, largest, directed=False)  # which transposes it
    order, before = breadth_first_order(graph, int(first[-1]), directed=False)
    return order, before


def _share_within(graph: sp.csr_array, order: np.ndarray, widths: np.ndarray) -> float:
    level = np.full(graph.shape[0], -1)
    level[order] = np.repeat(np.arange(len(widths)), widths)
    rows = np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))
    apart = rows != graph.indices
    same = level[rows] == level[graph.indices]
    return int(np.count_nonzero(same & apart)) / max(int(np.count_nonzero(apart)), 1)


# --- Minimum degree order of elimination ---

_TINY = 1e-30  # beside ones on the diagonal: an incomplete factorisation drops it
_HUB = 10  # times sqrt(n) entries make a row that takes long to order, and is eliminated last


def minimum_degree(A: sp.csr_array) -> np.ndarray:
    """The place of each unknown in a minimum degree order of the pattern of A + Aᵀ, full rows last.

    SuperLU finds it before it factorises a matrix without exchanging rows; of an incomplete factorisation that drops
    all but the diagonal little else is left to do.

    Cost: on grids and meshes a quarter of SuperLU's factors in two dimensions, a few hundredths in three; on large
        random graphs, whose factors are nearly full, a third.

    Source: Liu, ACM TOMS 11 (1985), through scipy.sparse.linalg.spilu.
    """
    from scipy.sparse.linalg import spilu

    n = A.shape[0]
    pattern = sp.csr_array((np.full(A.nnz, _TINY), A.indices, A.indptr), A.shape)
    pattern = sp.csr_array(pattern + pattern.T)
    full = np.diff(pattern.indptr) > _HUB * np.sqrt(n) + 2
    places, few = np.empty(n, np.int64), np.flatnonzero(~full)
    places[full] = np.arange(len(few), n)
    if len(few) < n:
        pattern = pattern[few][:, few]
    if len(few):
        pattern = sp.csc_array(pattern + sp.eye_array(len(few)))
        settings = {"SymmetricMode": True}
        found = spilu(
            pattern, drop_tol=1.0, fill_factor=1.0, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=settings
        )
        places[few] = found.perm_c
    return places


# --- Maximum matching of rows with columns ---
# SciPy's `maximum_bipartite_matching` and `structural_rank` take minutes for some matrices of a thousand rows, and
# cannot be stopped.
#
# Source: Hopcroft and Karp, An n^5/2 algorithm for maximum matchings in bipartite graphs, SIAM J. Comput. 2 (1973).

_MOST_SCANNED = 4_000_000  # entries that are looked at one by one, in one to two seconds
_ROUNDS = 30  # of the greedy start: later ones find next to nothing


def maximum_matching(indptr: np.ndarray, indices: np.ndarray, n: int) -> np.ndarray | None:
    """The column of each row of a square CSR pattern, int64 `(n,)`, -1 for rows that are left over.

    None where the search would take too long. The pattern of a CSC matrix gives the row of each column.
    """
    rows = np.repeat(np.arange(n), np.diff(indptr))
    row_of = greedy_matching(rows, indices, n)
    if np.all(row_of >= 0):
        return np.argsort(row_of)
    return _augmented(indptr.tolist(), indices.tolist(), row_of.tolist(), n)


def greedy_matching(rows: np.ndarray, cols: np.ndarray, n: int) -> np.ndarray:
    """Row of each column, or -1: as many disjoint entries as a few rounds find, those of the diagonal first."""
    row_of, taken = np.full(n, -1), np.zeros(n, bool)
    here = rows == cols
    row_of[cols[here]], taken[rows[here]] = rows[here], True
    left = np.arange(len(rows))
    for _ in range(_ROUNDS):
        left = left[~taken[rows[left]] & (row_of[cols[left]] < 0)]
        if not len(left):
            break
        chosen = left[np.unique(rows[left], return_index=True)[1]]
        chosen = chosen[np.unique(cols[chosen], return_index=True)[1]]
        row_of[cols[chosen]], taken[rows[chosen]] = rows[chosen], True
    return row_of


def _augmented(starts: list[int], columns: list[int], row_of: list[int], n: int) -> np.ndarray | None:
    """Augment along shortest paths, as many disjoint ones in each phase as there are."""
    col_of = [-1] * n
    for column, row in enumerate(row_of):
        if row >= 0:
            col_of[row] = column
    scanned = 0
    while True:
        layer, queue, is_reached = [-1] * n, [row for row in range(n) if col_of[row] < 0], False
        free = list(queue)
        for row in queue:
            layer[row] = 0
        for row in queue:  # which grows: breadth first
            scanned += starts[row + 1] - starts[row]
            for column in columns[starts[row] : starts[row + 1]]:
                owner = row_of[column]
                if owner < 0:
                    is_reached = True
                elif layer[owner] < 0:
                    layer[owner] = layer[row] + 1
                    queue.append(owner)
        if not is_reached:
            return np.array(col_of, np.int64)
        position = list(starts)
        for first in free:  # depth first, each entry once
            path = [first]
            while path:
                row = path[-1]
                if position[row] == starts[row + 1]:
                    path.pop()
                    continue
                scanned += 1
                owner = row_of[columns[position[row]]]
                position[row] += 1
                if owner < 0:
                    for row in path:
                        column = columns[position[row] - 1]
                        row_of[column], col_of[row], layer[row] = row, column, -1
                    break
                if layer[owner] == layer[row] + 1:
                    path.append(owner)
        if scanned > _MOST_SCANNED:
            return None
