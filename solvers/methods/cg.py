"""CG: conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...backends import Array, Backend
from ...sparse import Operator
from .method import Goal, Method


class CGState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array  # without the last step alpha p, which is added when p is read for the next one
    r: Array
    p: Array  # search direction
    alpha: Array
    rho: Array  # <r, M r> of the previous r
    rr: Array  # <r, r>
    broken: Array


@dataclass(frozen=True)
class CG(Method):
    """Conjugate gradients with an optional preconditioner.

    For symmetric (Hermitian) definite A, positive or negative, and semi-definite A with a consistent right-hand side.
    The same holds for M. Cost: 4 vectors (x, r, p and one product), and per step 1 product with A and 1 with M.

    Source: Hestenes and Stiefel, J. Res. NBS 49 (1952); Saad, Iterative Methods for Sparse Linear Systems, 2nd ed.,
    Algorithm 9.1.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import CG
        >>> A = np.array([[4.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=CG())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    keeps_grids = True
    applies_only = True
    takes_numbers = True
    combines_images = True
    needs_hermitian = True
    needs_definite = True

    @property
    def name(self) -> str:
        return "CG"

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> CGState:
        rr = bk.square_norm(r)
        none = bk.astype(bk.zeros_like(rr), bk.dtype(r))
        return CGState(bk.zeros_like(r), r, bk.zeros_like(r), none, bk.copy(none), rr, bk.full_like(rr, False, bool))

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: CGState) -> CGState:
        if M is None:
            z, rho = s.r, s.rr if s.rr.dtype == s.r.dtype else bk.astype(s.rr, bk.dtype(s.r))
        else:
            z = M.apply(s.r)
            rho = bk.dot(s.r, z)
        x, p = bk.axpy_xpay(s.alpha, s.p, s.x, z, bk.safe_divide(rho, s.rho))
        q = A.apply(p)
        pq = bk.dot(p, q)
        alpha = bk.safe_divide(rho, pq)
        r, rr = bk.axpy_norm(-alpha, q, s.r)
        return CGState(x, r, p, alpha, rho, rr, (pq == 0) | (rho == 0))

    def solution(self, bk: Backend, M: Operator | None, state: CGState) -> Array:
        return state.x + state.alpha * state.p
