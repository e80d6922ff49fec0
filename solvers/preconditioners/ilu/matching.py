"""Row matching: the order of rows whose diagonal has the largest product, and the scaling that goes with it.

Incomplete factors without row exchanges need a diagonal that is large. Written as costs, `c_ij = log(max_k |a_kj|) -
log |a_ij|`, the order is an assignment of rows to columns of least cost. Its dual numbers, `u_i + v_j <= c_ij` with
equality in the assigned places, are the logarithms of a scaling after which the diagonal is 1 in size, and nothing is
larger.

SciPy's `min_weight_full_bipartite_matching` finds the same, but has no dual numbers, and cannot be stopped: for equal
numbers on a grid of 70 x 70 points in a random order it takes 12 s, for 100 x 100 minutes. Here most rows get their
column by NumPy, and paths for the others are looked for one entry at a time, up to a bound.

Source: Duff and Koster, On algorithms for permuting large entries to the diagonal of a sparse matrix, SIAM J. Matrix
Anal. Appl. 22 (2001): the product form, MC64 with job 5.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from ....sparse.analysis.matching import greedy_matching
from ....sparse.formats.entries.integers import starts_of

_MOST_SCANNED = 4_000_000  # entries that the search for paths looks at, in two to three seconds
_LARGEST = 80.0  # exponent of a scaling that is a finite number, in single precision too


class Matching(NamedTuple):
    """The rows that belong to the places of the diagonal.

    Attributes:
        rows: int32 `(n,)`: row `rows[k]` of A is number k of the matrix with the large diagonal.
        scale: `(n,)`, positive: columns multiplied by it, and rows by something, have no entry that is larger than that
            on the new diagonal.
    """

    rows: np.ndarray
    scale: np.ndarray


def row_matching(rows: np.ndarray, cols: np.ndarray, sizes: np.ndarray, n: int) -> Matching | None:
    """The order of rows with the largest product of sizes on the diagonal.

    None where every order has a zero there, or the search would take too long.

    Args:
        rows, cols: places of the entries of a square matrix, row by row, without repetition.
        sizes: |a_ij|, positive and finite.

    Cost: some passes over the entries, and up to three seconds for rows that have to make room for each other.
    """
    if not n or len(np.unique(rows)) < n or len(np.unique(cols)) < n:
        return None
    logs = np.log(sizes)
    largest = np.full(n, -np.inf)
    np.maximum.at(largest, cols, logs)
    costs, starts = largest[cols] - logs, starts_of(rows, n)
    u = np.minimum.reduceat(costs, starts[:-1])
    v = np.full(n, np.inf)
    np.minimum.at(v, cols, costs - u[rows])
    tight = costs - u[rows] <= v[cols]
    row_of = greedy_matching(rows[tight], cols[tight], n)
    found = _Paths(starts, cols, costs, u, v, row_of)
    if not found.completed():
        return None
    scale = np.exp(np.clip(np.array(found.v) - largest, -_LARGEST, _LARGEST))
    return Matching(np.array(found.row_of, np.int32), scale)


class _Paths:
    """Shortest augmenting paths from each row without a column; Python's lists, which are quick one by one."""

    def __init__(
        self, starts: np.ndarray, cols: np.ndarray, costs: np.ndarray, u: np.ndarray, v: np.ndarray, row_of: np.ndarray
    ) -> None:
        col_of = np.full(len(u), -1)
        col_of[row_of[row_of >= 0]] = np.flatnonzero(row_of >= 0)
        self.starts, self.cols, self.costs, self.u, self.v = (a.tolist() for a in (starts, cols, costs, u, v))
        self.row_of, self.col_of = row_of.tolist(), col_of.tolist()
        self.scanned = 0

    def completed(self) -> bool:
        """Give all rows a column. False: there is none for some row, or it takes too long."""
        free = [i for i, j in enumerate(self.col_of) if j < 0]
        return all(self._augmented(i) for i in free)

    def _augmented(self, first: int) -> bool:
        """Dijkstra's method by reduced costs, up to the nearest column that is free."""
        starts, row_of, v = self.starts, self.row_of, self.v
        distance: dict[int, float] = {}
        before: dict[int, int] = {}
        done: set[int] = set()
        heap: list[tuple[float, int]] = []
        row, base, best, end = first, 0.0, math.inf, -1
        while self.scanned <= _MOST_SCANNED:
            here = range(starts[row], starts[row + 1])
            self.scanned += len(here)
            offset = base - self.u[row]
            for k in here:
                j = self.cols[k]
                d = offset + self.costs[k] - v[j]
                if j not in done and d < best and d < distance.get(j, math.inf):
                    before[j] = row
                    if row_of[j] < 0:
                        best, end = d, j
                    else:
                        distance[j] = d
                        heappush(heap, (d, j))
            while heap and heap[0][1] in done:
                heappop(heap)
            if not heap or heap[0][0] >= best:
                break
            base, j = heappop(heap)
            done.add(j)
            row = row_of[j]
        else:
            return False
        if end < 0:
            return False
        for j in done:
            v[j] -= best - distance[j]
            self.u[row_of[j]] += best - distance[j]
        self.u[first] += best
        self._exchange(first, end, before)
        return True

    def _exchange(self, first: int, end: int, before: dict[int, int]) -> None:
        while True:
            row = before[end]
            after, self.col_of[row], self.row_of[end] = self.col_of[row], end, row
            if row == first:
                return
            end = after
