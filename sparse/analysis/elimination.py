"""Entries of the triangular factors of a sparse matrix, counted without any arithmetic on values."""

from __future__ import annotations

import numpy as np

from .range_minimum import RangeMinimum


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
        >>> from krylix.sparse.analysis.elimination import column_counts
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
