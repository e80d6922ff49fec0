"""Selected inversion: only those entries of the inverse of a sparse matrix that lie in the pattern of its factors.

A supernode is a set of neighbouring columns whose entries in the symmetrised pattern of L + U form one dense block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg import get_blas_funcs

_LEAF = 24  # columns of a subtree that always becomes one supernode
_WASTE = 0.25  # largest fraction of zeros that merging columns adds to the block of a supernode


class SelectedInverse:
    """Entries of `(L U)^-1`, block by block from the last supernode to the first.

    With J the columns of a supernode and R the rows below them, `Z = (L U)^-1` fulfils

        Z_RJ = - Z_RR L_RJ L_JJ^-1,   Z_JR = - U_JJ^-1 U_JR Z_RR,   Z_JJ = U_JJ^-1 L_JJ^-1 - U_JJ^-1 U_JR Z_RJ,

    where Z_RR is part of the block of the parent in the elimination tree.

    Cost: about twice the operations of the factorisation; blocks that are still needed take up to as much memory as the
    factors.

    Attributes:
        size: number of entries in the pattern of L + U.

    Source: Takahashi, Fagan, Chen, PICA Proc. 8 (1973); Erisman and Tinney, Comm. ACM 18 (1975); Lin et al., SelInv,
    ACM TOMS 37 (2011).
    """

    def __init__(self, lu: Any, hermitian: bool) -> None:
        """`lu` is SciPy's `SuperLU`. If `hermitian`, `U = D Lᴴ` and L is enough."""
        L, U, self.rows, self.columns = sorted_columns(lu.L), sorted_columns(lu.U), lu.perm_r, lu.perm_c
        pattern = filled_pattern(L, U)
        order = postorder(pattern)
        if order is not None:
            position = np.argsort(order)
            L, U, pattern = (sorted_columns(sp.csc_array(A)[order][:, order]) for A in (L, U, pattern))
            self.rows, self.columns = position[self.rows], position[self.columns]
        self.L, self.D = L, U.diagonal()
        self.Ut = None if hermitian else sorted_columns(U.T)
        self.nodes = supernodes(pattern)
        self.size = 2 * pattern.nnz
        self.triangular = get_blas_funcs("trsm", dtype=L.dtype)

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`(A^-1)[rows, columns]`, and whether each one is missing, being outside the pattern of the factors."""
        i, j = self.columns[rows], self.rows[columns]
        owner = self.nodes.owner[np.minimum(i, j)]
        by_owner = np.argsort(owner, kind="stable")
        count = len(self.nodes.rows)
        ends = np.searchsorted(owner[by_owner], np.arange(count + 1))
        entries, missing = np.zeros(len(i), self.L.dtype), np.zeros(len(i), bool)
        for s, places, block in self._blocks():
            chosen = by_owner[ends[s] : ends[s + 1]]
            if len(chosen):
                at_i, at_j = (np.minimum(np.searchsorted(places, k[chosen]), len(places) - 1) for k in (i, j))
                entries[chosen] = block[at_i, at_j]
                missing[chosen] = (places[at_i] != i[chosen]) | (places[at_j] != j[chosen])
        return entries, missing

    def _blocks(self) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Yield each supernode from the last one, with its indices and its block of the inverse."""
        nodes = self.nodes
        waiting = np.bincount(nodes.parents[nodes.parents >= 0], minlength=len(nodes.rows))
        blocks: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for s in range(len(nodes.rows) - 1, -1, -1):
            parent, below, places = int(nodes.parents[s]), nodes.rows[s], nodes.places(s)
            inner = np.zeros((0, 0), self.L.dtype)
            if parent >= 0:
                above, full = blocks[parent]
                at = np.searchsorted(above, below)
                inner = full[at[:, None], at]
                waiting[parent] -= 1
                if not waiting[parent]:
                    del blocks[parent]
            block = self._block(s, places, inner)
            if waiting[s]:
                blocks[s] = places, block
            yield s, places, block

    def _block(self, s: int, places: np.ndarray, inner: np.ndarray) -> np.ndarray:
        start, end = self.nodes.first[s], self.nodes.first[s + 1]
        width, size = int(end - start), len(places)
        trsm, one = self.triangular, np.eye(width, dtype=self.L.dtype, order="F")
        lower = _dense_columns(self.L, start, end, places)
        Y = trsm(1.0, lower[:width], lower[width:], side=1, lower=1, diag=1)  # L_RJ L_JJ^-1
        inverse = trsm(1.0, lower[:width], one, lower=1, diag=1)
        block = np.empty((size, size), self.L.dtype)
        block[width:, width:] = inner
        left = block[width:, :width] = -(inner @ Y)
        if self.Ut is None:
            block[:width, width:] = left.conj().T
            block[:width, :width] = (inverse.conj().T / self.D[start:end]) @ inverse - Y.conj().T @ left
            return block
        upper = _dense_columns(self.Ut, start, end, places)
        W = trsm(1.0, upper[:width], upper[width:], side=1, lower=1)  # (U_JJ^-1 U_JR)^T
        block[:width, width:] = -(W.T @ inner)
        inverse_of_upper = trsm(1.0, upper[:width], one, lower=1).T
        block[:width, :width] = inverse_of_upper @ inverse - W.T @ left
        return block


def _dense_columns(A: Any, start: int, end: int, places: np.ndarray) -> np.ndarray:
    """Columns of a CSC matrix as a dense block in Fortran order; `places` are all rows with entries."""
    first, last = A.indptr[start], A.indptr[end]
    block = np.zeros((len(places), end - start), A.dtype, order="F")
    columns = np.repeat(np.arange(end - start), np.diff(A.indptr[start : end + 1]))
    block[np.searchsorted(places, A.indices[first:last]), columns] = A.data[first:last]
    return block


def sorted_columns(A: Any) -> Any:
    """`csc_array` with sorted indices."""
    columns = sp.csc_array(A)
    columns.sort_indices()
    return columns


class Supernodes(NamedTuple):
    """Supernodes: s has the columns `first[s] : first[s + 1]` and below them the rows `rows[s]`.

    Attributes:
        first: `(count + 1,)`.
        rows: for each supernode the sorted rows below its columns.
        owner: `(n,)`, the supernode of each column.
        parents: `(count,)`, the supernode of the first of `rows`, -1 if there are none.
    """

    first: np.ndarray
    rows: list[np.ndarray]
    owner: np.ndarray
    parents: np.ndarray

    def places(self, s: int) -> np.ndarray:
        """Sorted indices of the rows and columns of the block of supernode s."""
        return np.concatenate([np.arange(self.first[s], self.first[s + 1]), self.rows[s]])


def filled_pattern(L: Any, U: Any) -> Any:
    """Pattern of the strict lower triangle of L + Uᵀ, closed under elimination.

    In a closed pattern all rows of a column except the first, its parent, are also rows of the parent's column. SuperLU
    drops entries that are exactly zero, and does not store the union of both triangles.
    """
    lower, upper = (
        sp.csc_array((np.ones(A.nnz, np.int8), A.indices, A.indptr), A.shape) for A in (L, sp.csc_array(U.T))
    )
    union = sp.tril(lower + upper, -1, format="csc")
    union.sort_indices()
    return union if _is_closed(union) else _closed(union)


def parents_of(pattern: Any) -> np.ndarray:
    """`(n,)`: parent of each column in the elimination tree, its first row below the diagonal; -1 for roots."""
    counts = np.diff(pattern.indptr)
    if not pattern.nnz:
        return np.full(len(counts), -1)
    return np.where(counts > 0, pattern.indices[np.minimum(pattern.indptr[:-1], pattern.nnz - 1)], -1)


def _is_closed(pattern: Any) -> bool:
    parents, n = parents_of(pattern), pattern.shape[0]
    columns = np.flatnonzero(parents >= 0)
    to_parent = sp.csc_array((np.ones(len(columns), np.int32), (columns, parents[columns])), (n, n))
    needed = sp.tril(pattern.astype(np.int32) @ to_parent, -1, format="csc")
    return bool((needed + pattern.astype(np.int32)).nnz == pattern.nnz)


def _closed(pattern: Any) -> Any:
    """Close a pattern: each column adds its rows to that of its parent."""
    n, starts, indices = pattern.shape[0], pattern.indptr, pattern.indices
    extra: list[list[np.ndarray]] = [[] for _ in range(n)]
    closed = []
    for j in range(n):
        rows = indices[starts[j] : starts[j + 1]]
        if extra[j]:
            rows = np.unique(np.concatenate([rows, *extra[j]]))
            extra[j] = []
        closed.append(rows)
        if len(rows) > 1:
            extra[rows[0]].append(rows[1:])
    counts = np.array([len(rows) for rows in closed])
    indices = np.concatenate(closed) if n else indices
    return sp.csc_array((np.ones(len(indices), np.int8), indices, np.append(0, np.cumsum(counts))), (n, n))


def postorder(pattern: Any) -> np.ndarray | None:
    """Order of the columns in which each subtree is contiguous and its root last; None if they already are."""
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
    while stack:  # roots first, then reversed
        j = stack.pop()
        order.append(j)
        stack += children[j]
    return np.array(order[::-1])


def supernodes(pattern: Any) -> Supernodes:
    """Supernodes of a closed pattern in postorder.

    Each small subtree is one supernode. A column joins the previous ones, whose parent it is, if that adds few zeros,
    because products of blocks are faster than more iterations of the loop.

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
    n = len(parents)
    size = [1] * n
    for j, parent in enumerate(parents):
        if parent >= 0:
            size[parent] += size[j]
    starts: list[int] = []
    start, zeros, j = 0, 0, 0
    while j < n:
        small = size[j] <= _LEAF
        root = j
        while small and parents[root] >= 0 and size[parents[root]] <= _LEAF:
            root = parents[root]
        width = root - j + 1 if small else 1  # j is the first leaf of its subtree
        before = j - start
        joins = bool(starts) and not small and parents[j - 1] == j
        if joins:
            more = before * (counts[j] + 1 - counts[j - 1])
            joins = zeros + more <= _WASTE * (before + 1) * (before + 1 + counts[j])
            zeros += more if joins else 0
        if not joins:
            starts.append(j)
            start, zeros = j, 0
        j += width
    return np.array(starts, np.int64)
