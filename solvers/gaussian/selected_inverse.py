"""Entries of the inverse of a sparse matrix at the places of its factors, without the others."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import get_blas_funcs

from .sparse_factors import SparseFactors
from .supernodes import Supernodes, filled_pattern, postorder, supernodes


class SelectedInverse:
    """Entries of `(L U)^-1`, block by block from the last supernode to the first.

    With J the columns of a supernode and R the rows below them, `Z = B^-1` fulfils

        Z_RJ = - Z_RR L_RJ L_JJ^-1,   Z_JR = - U_JJ^-1 U_JR Z_RR,   Z_JJ = U_JJ^-1 L_JJ^-1 - U_JJ^-1 U_JR Z_RJ,

    where Z_RR is part of the block of the next supernode up the elimination tree.

    Cost: about twice the operations of the factorisation; the blocks that wait for others need up to as many numbers as
    the factors.

    Attributes:
        size: entries of the pattern of L + U, in which entries of the inverse are found.

    Source: Takahashi, Fagan, Chen, PICA Proc. 8 (1973); Erisman and Tinney, Comm. ACM 18 (1975); Lin et al., SelInv,
    ACM TOMS 37 (2011).
    """

    def __init__(self, factors: SparseFactors, hermitian: bool) -> None:
        """`hermitian`: is `U = D Lᴴ`? Then L is enough."""
        pattern = filled_pattern(factors.L, factors.U)
        order = postorder(pattern)
        L, U, self.rows, self.columns, _ = factors
        if order is not None:
            place = np.argsort(order)
            L, U, pattern = (_reordered(A, order) for A in (L, U, pattern))
            self.rows, self.columns = place[self.rows], place[self.columns]
        self.L, self.D = L, U.diagonal()
        self.Ut = None if hermitian else _sorted(U.T)
        self.nodes: Supernodes = supernodes(pattern)
        self.size = 2 * pattern.nnz
        self.triangular = get_blas_funcs("trsm", dtype=L.dtype)

    def entries(self, rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """`(A^-1)[rows, columns]`, and where these are not found as they lie outside of the pattern of the factors."""
        i, j = self.columns[rows], self.rows[columns]
        owner = self.nodes.owner[np.minimum(i, j)]
        by_owner = np.argsort(owner, kind="stable")
        count = len(self.nodes.rows)
        ends = np.searchsorted(owner[by_owner], np.arange(count + 1))
        found, missing = np.zeros(len(i), self.L.dtype), np.zeros(len(i), bool)
        for s, places, block in self._blocks():
            asked = by_owner[ends[s] : ends[s + 1]]
            if len(asked):
                at_i, at_j = (np.minimum(np.searchsorted(places, k[asked]), len(places) - 1) for k in (i, j))
                found[asked] = block[at_i, at_j]
                missing[asked] = (places[at_i] != i[asked]) | (places[at_j] != j[asked])
        return found, missing

    def _blocks(self) -> Any:
        """(supernode, its places, the inverse there) from the last one."""
        nodes = self.nodes
        waiting = np.bincount(nodes.parents[nodes.parents >= 0], minlength=len(nodes.rows))
        kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for s in range(len(nodes.rows) - 1, -1, -1):
            parent, below, places = int(nodes.parents[s]), nodes.rows[s], nodes.places(s)
            inner = np.zeros((0, 0), self.L.dtype)
            if parent >= 0:
                above, full = kept[parent]
                at = np.searchsorted(above, below)
                inner = full[at[:, None], at]
                waiting[parent] -= 1
                if not waiting[parent]:
                    del kept[parent]
            block = self._block(s, places, inner)
            if waiting[s]:
                kept[s] = places, block
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
    """Columns of a CSC matrix in Fortran order, with the rows `places`, which hold all that they have."""
    first, last = A.indptr[start], A.indptr[end]
    found = np.zeros((len(places), end - start), A.dtype, order="F")
    columns = np.repeat(np.arange(end - start), np.diff(A.indptr[start : end + 1]))
    found[np.searchsorted(places, A.indices[first:last]), columns] = A.data[first:last]
    return found


def _reordered(A: Any, order: np.ndarray) -> Any:
    return _sorted(sp.csc_array(A)[order][:, order])


def _sorted(A: Any) -> Any:
    found = sp.csc_array(A)
    found.sort_indices()
    return found
