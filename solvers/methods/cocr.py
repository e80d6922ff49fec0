"""COCR: conjugate residuals for complex symmetric matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...backends import Array, Backend
from ...sparse import Operator
from .method import Goal, Method, apply
from .shared import bilinear


class COCRState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array
    r: Array
    z: Array  # M r; r itself without a preconditioner
    p: Array  # search direction
    q: Array  # A p
    rho: Array  # z^T A z of the previous z
    rr: Array  # <r, r>
    broken: Array


@dataclass(frozen=True)
class COCR(Method):
    """Conjugate A-orthogonal conjugate residuals, for complex symmetric A (A^T = A, not A^H = A).

    Conjugate residuals with products `u^T v` without conjugation, for example for Helmholtz problems with absorption. M
    must be complex symmetric, too. For real symmetric A the method is conjugate residuals, which minimise the residual.
    It restarts if a product vanishes although the residual does not.

    Cost: 6 vectors (with M 7), and per step 1 product with A and 1 with M, and per round 1 with M.

    Source: Sogabe and Zhang, J. Comput. Appl. Math. 199 (2007), 297-303, Algorithm 2.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import COCR
        >>> A = np.array([[4 + 1j, 1, 0], [1, 4 + 1j, 1j], [0, 1j, 4]])
        >>> result = linear_solve(A, np.ones(3, complex), method=COCR())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    keeps_grids = True
    applies_only = True
    takes_numbers = True
    needs_symmetric = True
    may_break_down = True

    @property
    def name(self) -> str:
        return "COCR"

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> COCRState:
        rr = bk.square_norm(r)
        none = bk.astype(bk.zeros_like(rr), bk.dtype(r))
        z = r if M is None else bk.copy(apply(M, r))  # a function may overwrite what it returned
        p, q = bk.zeros_like(r), bk.zeros_like(r)
        return COCRState(bk.zeros_like(r), r, z, p, q, none, rr, bk.full_like(rr, False, bool))

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: COCRState) -> COCRState:
        z = s.r if M is None else s.z
        w = A.apply(z)
        rho = bilinear(bk, z, w)
        beta = bk.safe_divide(rho, s.rho)
        p, q = bk.xpay(z, beta, s.p), bk.xpay(w, beta, s.q)
        t = apply(M, q)
        qt = bilinear(bk, q, t)
        alpha = bk.safe_divide(rho, qt)
        x = bk.axpy(alpha, p, s.x)
        r, rr = bk.axpy_norm(-alpha, q, s.r)
        z = r if M is None else bk.axpy(-alpha, t, z)
        return COCRState(x, r, z, p, q, rho, rr, (qt == 0) | (rho == 0))
