"""Conjugate gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...backends import Array, Backend
from ...sparse import Operator
from ..iteration.method import Goal, Method, apply


class CGState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array
    r: Array
    p: Array  # search direction
    rho: Array  # <r, M r>
    rr: Array  # <r, r>
    broken: Array


@dataclass(frozen=True)
class CG(Method):
    """Conjugate gradients with an optional preconditioner.

    For symmetric (Hermitian) definite A, positive or negative, and semi-definite A with a consistent right-hand side;
    M likewise. Cost: 4 vectors (x, r, p and one product), and per step 1 product with A and 1 with M.

    Source: Hestenes and Stiefel, J. Res. NBS 49 (1952); Saad, Iterative Methods for Sparse Linear Systems, 2nd ed.,
    Algorithm 9.1.
    """

    needs_hermitian = True
    needs_definite = True

    @property
    def name(self) -> str:
        return "CG"

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> CGState:
        z = apply(M, r)
        rr = bk.square_norm(r)
        rho = bk.dot(r, z)
        return CGState(bk.zeros_like(r), r, bk.copy(z), rho, rr, bk.full_like(rr, False, bool))

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: CGState) -> CGState:
        q = A.apply(s.p)
        pq = bk.dot(s.p, q)
        alpha = bk.safe_divide(s.rho, pq)
        r, rr = bk.axpy_norm(-alpha, q, s.r)
        z = apply(M, r)
        rho = bk.dot(r, z) if M is not None else rr if rr.dtype == r.dtype else bk.astype(rr, bk.dtype(r))
        beta = bk.safe_divide(rho, s.rho)
        x, p = bk.axpy_xpay(alpha, s.p, s.x, z, beta)
        return CGState(x, r, p, rho, rr, (pq == 0) | (rho == 0))
