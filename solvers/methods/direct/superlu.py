"""Sparse factorisation by SuperLU, on the host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....backends import Backend
from ....sparse import Operator, SparseMatrix
from .dense import factorise
from .factorisation import Factorisation, HostFactors
from .refinement import Refinement

_Solve = Callable[[np.ndarray, bool], np.ndarray]


@dataclass(frozen=True)
class ScipyDirect(Refinement):
    """LU of a sparse matrix with column ordering and partial pivoting (SuperLU); dense matrices by LAPACK.

    For any square matrix, real or complex. One factorisation serves all systems of a batch; a batch of matrices has
    one for each. A singular matrix is shifted a little and the solution refined, which solves consistent systems;
    others are reported. Works on the host: arrays of other libraries are copied there and back, in compiled functions
    by a callback.

    Cost: the numbers of the factors, with their fill, once per matrix; then per iteration 1 product with A and 2
    triangular solves; mostly 1 iteration.

    Source: Li, ACM TOMS 31 (2005), through scipy.sparse.linalg.splu.
    """

    on_host = True

    @property
    def name(self) -> str:
        return "scipy-direct"

    def factorise(self, bk: Backend, A: Operator) -> Factorisation:
        offset, inner = A.offset, A.without_offset
        if not isinstance(inner, SparseMatrix):  # a function of NumPy may have a sparse matrix
            arrays, make = inner.for_host()
            inner = make([bk.to_numpy(array) for array in arrays])
        if not isinstance(inner, SparseMatrix):
            return factorise(bk, A)
        count = 1 if inner.systems is None else inner.systems
        solvers = [_solver(sp.csc_array(inner.per_system(i), dtype=A.dtype), offset) for i in range(count)]
        if inner.systems is None:
            return HostFactors(bk, A.shape, A.dtype, solvers[0])
        return HostFactors(bk, A.shape, A.dtype, _one_by_one(solvers), systems=count)


def _one_by_one(solvers: Sequence[_Solve]) -> _Solve:
    """Each row with the factors of its own matrix."""

    def solve(b: np.ndarray, transposed: bool) -> np.ndarray:
        rows = zip(solvers, b, strict=True)
        return np.concatenate([np.zeros((0, b.shape[1]), b.dtype), *(one(row[None], transposed) for one, row in rows)])

    return solve


def _solver(matrix: Any, offset: complex) -> _Solve:
    n = matrix.shape[0]
    if not np.isfinite(matrix.data).all():
        return lambda b, transposed: np.full_like(b, np.nan)
    if offset:
        # A + c 1 1^T has no zeros left: solve for x and y = c 1^T x together; transposed, y is 1^T x.
        row = sp.csc_array(np.full((1, n), offset, matrix.dtype))
        column = sp.csc_array(np.ones((n, 1), matrix.dtype))
        bordered = sp.block_array([[matrix, column], [row, sp.csc_array([[-1.0]])]], format="csc", dtype=matrix.dtype)
        solve = _factorise(bordered)
        return lambda b, transposed: solve(np.concatenate([b, np.zeros((len(b), 1), b.dtype)], axis=1), transposed)[
            :, :n
        ]
    return _factorise(matrix)


def _factorise(matrix: Any) -> _Solve:
    from scipy.sparse.linalg import splu

    try:
        lu = splu(matrix)
    except RuntimeError:  # "Factor is exactly singular"
        lu = None
    if lu is None or _is_singular(matrix, lu):
        lu = splu(_shifted(matrix))

    def solve(b: np.ndarray, transposed: bool) -> np.ndarray:
        return np.ascontiguousarray(lu.solve(np.ascontiguousarray(b.T), "T" if transposed else "N").T)

    return solve


def _is_singular(matrix: Any, lu: Any) -> bool:
    """Does the inverse blow up a random vector as only rounding errors can?"""
    n = matrix.shape[0]
    rows = np.asarray(abs(matrix).max(axis=1).todense()).reshape(-1)
    v = np.random.default_rng(2).choice([-1.0, 1.0], n) * np.where(rows > 0, rows, 1)  # scaled as the rows are
    x = lu.solve(v.astype(matrix.dtype))
    return not bool(np.max(np.abs(x), initial=0) < 0.1 / np.finfo(matrix.dtype).eps)


def _shifted(matrix: Any) -> Any:
    rows = np.asarray(abs(matrix).max(axis=1).todense()).reshape(-1)
    amount = np.sqrt(np.finfo(matrix.dtype).eps) * np.where(rows > 0, rows, 1)
    return sp.csc_array(matrix + sp.dia_array((amount[None].astype(matrix.dtype), [0]), shape=matrix.shape))
