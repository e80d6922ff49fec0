"""COCG: conjugate gradients for complex symmetric matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...backends import Array, Backend
from ...sparse import Operator
from .method import Goal, Method, apply
from .shared import bilinear


class COCGState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array
    r: Array
    p: Array  # search direction
    rho: Array  # r^T M r, of the r before this one
    rr: Array  # <r, r>
    broken: Array


@dataclass(frozen=True)
class COCG(Method):
    """Conjugate orthogonal conjugate gradients, for complex symmetric A (A^T = A, not A^H = A).

    As of Helmholtz problems with absorption. CG with products `u^T v` without conjugation, which is what it is for real
    symmetric A. M is symmetric likewise. It makes no residual small, so the norms go up and down; where `r^T M r`
    vanishes though r does not, it restarts. COCR is the smoother one.

    Cost: 4 vectors (x, r, p and one product), and per step 1 product with A and 1 with M.

    Source: van der Vorst and Melissen, IEEE Trans. Magn. 26 (1990), 706-708.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import COCG
        >>> A = np.array([[4 + 1j, 1, 0], [1, 4 + 1j, 1j], [0, 1j, 4]])
        >>> result = linear_solve(A, np.ones(3, complex), method=COCG())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    keeps_grids = True
    applies_only = True
    takes_numbers = True
    combines_images = True
    needs_symmetric = True
    may_break_down = True

    @property
    def name(self) -> str:
        return "COCG"

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> COCGState:
        rr = bk.square_norm(r)
        none = bk.astype(bk.zeros_like(rr), bk.dtype(r))
        return COCGState(bk.zeros_like(r), r, bk.zeros_like(r), none, rr, bk.full_like(rr, False, bool))

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: COCGState) -> COCGState:
        z = apply(M, s.r)
        rho = bilinear(bk, s.r, z)
        p = bk.xpay(z, bk.safe_divide(rho, s.rho), s.p)
        q = A.apply(p)
        pq = bilinear(bk, p, q)
        alpha = bk.safe_divide(rho, pq)
        x = bk.axpy(alpha, p, s.x)
        r, rr = bk.axpy_norm(-alpha, q, s.r)
        return COCGState(x, r, p, rho, rr, (pq == 0) | (rho == 0))
