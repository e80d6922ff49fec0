"""Incomplete factors of a matrix whose rows are permuted to a large diagonal.

Incomplete factors without row exchanges need a large diagonal. Written as costs, `c_ij = log(max_k |a_kj|) -
log |a_ij|`, the order is an assignment of rows to columns of least cost. Its dual numbers, `u_i + v_j <= c_ij` with
equality in the assigned entries, are the logarithms of a scaling after which the diagonal is 1 in size, and nothing is
larger.

SciPy's `min_weight_full_bipartite_matching` finds the same, but returns no dual numbers, and cannot be stopped: for
equal values on a grid of 70 x 70 points in a random order it takes 12 s, for 100 x 100 minutes. Here NumPy assigns most
columns, and paths for the other rows are searched one entry at a time, up to a bound.

Source: Duff and Koster, On algorithms for permuting large entries to the diagonal of a sparse matrix, SIAM J. Matrix
Anal. Appl. 22 (2001): the product form, MC64 with job 5.
"""

from __future__ import annotations

import math
from dataclasses import replace
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ....sparse import Matrix, UnsupportedOperation
from ....sparse.analysis.graph import greedy_matching
from ....sparse.formats import from_entries
from ....sparse.formats.entries.integers import starts_of
from ....sparse.operators.concrete import nonzero_entries
from ..operators import DiagonallyScaled, Preconditioner, Reordered
from ..pipeline import Target
from .factors import factored, incomplete_factors
from .unit_diagonal import UnitDiagonalMatrix

_SMALL = 0.5  # of the largest entry of its row and of its column: factors are tested if a diagonal entry is smaller
_POOR = 1.0  # relative size of A M z - z above which M is worse than no preconditioner for random vectors
_MOST_SCANNED = 4_000_000  # entries scanned in the search for paths, in two to three seconds
_LARGEST = 80.0  # largest exponent of a scaling, finite in single precision too
_NOTE = "rows put into an order with a large diagonal"


def has_small_diagonal(own: Matrix) -> bool:
    """Is a diagonal entry of a known matrix 0, or below half of the largest entries of its row and of its column?"""
    bk, rows, cols, values = nonzero_entries(own)
    if not bk.on_host:
        return False
    n = own.shape[0]
    for sizes in np.abs(values):
        in_row, in_col, diagonal = np.zeros(n), np.zeros(n), np.zeros(n)
        np.maximum.at(in_row, rows, sizes)
        np.maximum.at(in_col, cols, sizes)
        here = rows == cols
        diagonal[rows[here]] = sizes[here]
        if np.any(diagonal < _SMALL * np.minimum(in_row, in_col)):
            return True
    return False


def is_poor(A: UnitDiagonalMatrix, shift: float) -> bool:
    """Do exact solves with the factors make a random vector larger, or are there no factors?

    Useful factors leave |A M z - z| < |z|, with rows scaled as in A; with small pivots it is 1e2 to 1e100 times |z|.

    Cost: the factors, two triangular solves and a product.
    """
    try:
        factors, pivots, _ = incomplete_factors(A, shift, False)
    except ValueError:
        return True
    V = A.part(A.host, slice(None), A.values)
    M, _ = factored(replace(A, target=Target(V, V.dtype)), factors, pivots, None)
    z = np.random.default_rng(5).choice([-1.0, 1.0], (A.systems, A.pattern.n)).astype(V.dtype)
    with np.errstate(all="ignore"):
        left = V.apply(M.apply(A.units * z)) - z
        return not bool(np.all(np.linalg.norm(left, axis=1) <= _POOR * np.sqrt(A.pattern.n)))


class Ordered(NamedTuple):
    """A with rows and columns permuted so that the diagonal is large.

    Attributes:
        matrix: row k is row `rows[k]` of A, column k is column `cols[k]` of A times `scale[k]`.
    """

    matrix: Matrix
    rows: np.ndarray
    cols: np.ndarray
    scale: np.ndarray

    @classmethod
    def of(cls, own: Matrix) -> Ordered:
        """Match rows to columns, then reduce the bandwidth, because the given order means nothing once rows have moved.

        A batch is matched by geometric means, of entries that are not zero in any of its matrices.
        """
        bk, rows, cols, values = nonzero_entries(own)
        if not bk.on_host:
            raise UnsupportedOperation(
                "A matching of rows was asked for, of a matrix whose values are not known before the compiled function "
                "runs; expected values that are known. Leave matching out."
            )
        n, sizes = own.shape[0], np.abs(values)
        whole = (sizes > 0).all(axis=0) & np.isfinite(sizes).all(axis=0)
        with np.errstate(all="ignore"):
            product = np.exp(np.log(sizes[:, whole]).mean(axis=0)) if len(sizes) > 1 else sizes[0, whole]
        matching = row_matching(rows[whole], cols[whole], product.astype(np.float64), n)
        if matching is None:
            raise ValueError(
                "No order of the rows with entries on all of the diagonal was found: the matrix is singular by its "
                "pattern, or too large to search further. Use 'ilu' with drop_tolerance=1e-3, or a direct method."
            )
        order, scale = matching
        position = np.argsort(order)
        pattern = sp.csr_array((np.ones(len(rows)), (position[rows], cols)), (n, n))
        narrow = reverse_cuthill_mckee(sp.csr_array(pattern + pattern.T), symmetric_mode=True).astype(np.int32)
        back = np.argsort(narrow)
        scaled = values * scale[cols].astype(values.real.dtype)
        matrix = from_entries(
            bk, back[position[rows]], back[cols], scaled if own.systems is not None else scaled[0], (n, n),
            sum_duplicates=False,
        )  # fmt: skip
        return cls(matrix, order[narrow], narrow, scale[narrow])

    def restored(self, M: Preconditioner, target: Target) -> Preconditioner:
        """Preconditioner of A, from that of `matrix`."""
        scale = np.empty(len(self.scale))
        scale[self.cols] = self.scale
        left, right = (target.array(row[None]) for row in (scale, np.ones(len(scale))))
        inner = DiagonallyScaled(Reordered.of(M.inner, self.rows, self.cols, target.like), left, right)
        note, settings = "; ".join(filter(None, (_NOTE, M.note))), (*M.settings, ("matching", True))
        return replace(M, inner=inner, hermitian=False, settings=settings, note=note)


def row_matching(rows: np.ndarray, cols: np.ndarray, sizes: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray] | None:
    """Order of the rows with the largest product of the diagonal, and a scaling of the columns.

    Args:
        rows, cols: positions of the entries of a square matrix, row by row, without repetition.
        sizes: |a_ij|, positive and finite.

    Returns:
        `order`, int32 `(n,)`: row `order[k]` of A is row k of the matrix with the large diagonal; and `scale`, `(n,)`,
        positive: with columns multiplied by it, and rows suitably scaled, no entry is larger than those on the new
        diagonal. None if every order has a zero there, or the search would take too long.

    Cost: some passes over the entries, and up to three seconds for the augmenting paths.
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
    row_of, dual = greedy_matching(rows[tight], cols[tight], n).tolist(), v.tolist()
    if not _augment(starts.tolist(), cols.tolist(), costs.tolist(), u.tolist(), dual, row_of):
        return None
    return np.array(row_of, np.int32), np.exp(np.clip(np.array(dual) - largest, -_LARGEST, _LARGEST))


def _augment(
    starts: list[int], cols: list[int], costs: list[float], u: list[float], v: list[float], row_of: list[int]
) -> bool:
    """Give each row without a column one, along the shortest augmenting path; changes u, v and `row_of`.

    Dijkstra's method with reduced costs, up to the nearest free column, on Python's lists, which are fast for single
    entries. False if there is no column for some row, or the search takes too long.
    """
    col_of = [-1] * len(u)
    for j, row in enumerate(row_of):
        if row >= 0:
            col_of[row] = j
    scanned = 0
    for first in [row for row, j in enumerate(col_of) if j < 0]:
        distance: dict[int, float] = {}
        before: dict[int, int] = {}
        done: set[int] = set()
        heap: list[tuple[float, int]] = []
        row, base, best, end = first, 0.0, math.inf, -1
        while True:
            if scanned > _MOST_SCANNED:
                return False
            here = range(starts[row], starts[row + 1])
            scanned += len(here)
            offset = base - u[row]
            for k in here:
                j = cols[k]
                d = offset + costs[k] - v[j]
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
        if end < 0:
            return False
        for j in done:
            v[j] -= best - distance[j]
            u[row_of[j]] += best - distance[j]
        u[first] += best
        while end >= 0:  # each row of the path gets the next column, and its own goes to the row before
            row = before[end]
            row_of[end], col_of[row], end = row, end, col_of[row]
    return True
