"""Supernodes of the symmetrised pattern of L + U: columns whose entries lie in one dense block."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

_LEAF = 24  # columns of a subtree that becomes one supernode, whatever zeros that stores
_WASTE = 0.25  # of a supernode's block may be zeros that a merge of columns adds


class Supernodes(NamedTuple):
    """Supernode s has the columns `first[s] : first[s + 1]`, and the rows below them that `rows` lists.

    Attributes:
        first: `(count + 1,)`.
        rows: for each supernode the rows below its columns in its block, sorted.
        owner: `(n,)`, the supernode of each column.
        parents: `(count,)`, the supernode of the first of `rows`, -1 without any. It comes later.
    """

    first: np.ndarray
    rows: list[np.ndarray]
    owner: np.ndarray
    parents: np.ndarray

    def places(self, s: int) -> np.ndarray:
        """The indices of rows and columns of the block of supernode s, sorted."""
        return np.concatenate([np.arange(self.first[s], self.first[s + 1]), self.rows[s]])


def filled_pattern(L: Any, U: Any) -> Any:
    """The pattern of the strict lower triangle of L + Uᵀ, with the entries of which elimination needs the place.

    SuperLU drops what is exactly zero, and stores no union of both triangles. A column's rows but the first are rows of
    the column of that first one, its parent.
    """
    union = sp.tril(_ones(L) + _ones(U.T), -1, format="csc")
    union.sort_indices()
    return union if _is_closed(union) else _closed(union)


def _ones(A: Any) -> Any:
    A = sp.csc_array(A)
    return sp.csc_array((np.ones(A.nnz, np.int8), A.indices, A.indptr), A.shape)


def parents_of(pattern: Any) -> np.ndarray:
    """`(n,)`: the first row below the diagonal in each column, the parent in the elimination tree; -1 without any."""
    counts = np.diff(pattern.indptr)
    if not pattern.nnz:
        return np.full(len(counts), -1)
    return np.where(counts > 0, pattern.indices[np.minimum(pattern.indptr[:-1], pattern.nnz - 1)], -1)


def _is_closed(pattern: Any) -> bool:
    parents, n = parents_of(pattern), pattern.shape[0]
    columns = np.flatnonzero(parents >= 0)
    to_parent = sp.csc_array((np.ones(len(columns), np.int32), (columns, parents[columns])), (n, n))
    needed = sp.tril(pattern.astype(np.int32) @ to_parent, -1, format="csc")
    together = needed + pattern.astype(np.int32)
    return bool(together.nnz == pattern.nnz)


def _closed(pattern: Any) -> Any:
    """Column by column: the rows of a column go on to its parent."""
    n, starts, indices = pattern.shape[0], pattern.indptr, pattern.indices
    extra: list[list[np.ndarray]] = [[] for _ in range(n)]
    found = []
    for j in range(n):
        rows = indices[starts[j] : starts[j + 1]]
        if extra[j]:
            rows = np.unique(np.concatenate([rows, *extra[j]]))
            extra[j] = []
        found.append(rows)
        if len(rows) > 1:
            extra[rows[0]].append(rows[1:])
    counts = np.array([len(rows) for rows in found])
    indices = np.concatenate(found) if n else indices
    return sp.csc_array((np.ones(len(indices), np.int8), indices, np.append(0, np.cumsum(counts))), (n, n))


def postorder(pattern: Any) -> np.ndarray | None:
    """An order of the columns in which those of each subtree are neighbours, the root last; None: they are already."""
    parents = parents_of(pattern).tolist()
    first = list(range(len(parents)))
    size = [1] * len(parents)
    for j, parent in enumerate(parents):
        if parent >= 0:
            first[parent] = min(first[parent], first[j])
            size[parent] += size[j]
    if all(j - first[j] + 1 == size[j] for j in range(len(parents))):
        return None
    children: list[list[int]] = [[] for _ in parents]
    stack: list[int] = []
    for j, parent in enumerate(parents):
        (stack if parent < 0 else children[parent]).append(j)
    order = []
    while stack:  # roots first, then turned around
        j = stack.pop()
        order.append(j)
        stack += children[j]
    return np.array(order[::-1])


def supernodes(pattern: Any) -> Supernodes:
    """Supernodes of a closed pattern in postorder.

    Small subtrees are one each, and a column joins those before it, of which it is the parent, where that adds few
    zeros: blocks are multiplied faster than their loop goes round.

    Source: Ashcraft and Grimes, ACM TOMS 15 (1989), relaxed supernodes.
    """
    n, parents = pattern.shape[0], parents_of(pattern)
    first = _first_columns(parents.tolist(), np.diff(pattern.indptr).tolist())
    last = np.append(first[1:], n)
    starts = pattern.indptr
    rows = [pattern.indices[starts[end - 1] : starts[end]] for end in last]
    owner = np.repeat(np.arange(len(first)), last - first)
    above = np.array([owner[below[0]] if len(below) else -1 for below in rows], np.int64)
    return Supernodes(np.append(first, n), rows, owner, above)


def _first_columns(parents: list[int], counts: list[int]) -> np.ndarray:
    """The first column of each supernode."""
    n = len(parents)
    size = [1] * n
    for j, parent in enumerate(parents):
        if parent >= 0:
            size[parent] += size[j]
    found: list[int] = []
    start, zeros, j = 0, 0, 0
    while j < n:
        small = size[j] <= _LEAF
        root = j
        while small and parents[root] >= 0 and size[parents[root]] <= _LEAF:
            root = parents[root]
        width = root - j + 1 if small else 1  # j is the first leaf of its subtree
        before = j - start
        joins = bool(found) and not small and parents[j - 1] == j
        if joins:
            more = before * (counts[j] + 1 - counts[j - 1])
            joins = zeros + more <= _WASTE * (before + 1) * (before + 1 + counts[j])
            zeros += more if joins else 0
        if not joins:
            found.append(j)
            start, zeros = j, 0
        j += width
    return np.array(found, np.int64)
