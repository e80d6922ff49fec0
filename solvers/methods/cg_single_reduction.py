"""Conjugate gradients whose dot products are computed together: one reduction in each step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...backends import Array, Backend
from ...sparse import Operator
from .method import Goal, Method, apply


class CGSingleReductionState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array
    r: Array
    p: Array  # search direction
    s: Array  # A p, by its own recurrence
    rho: Array  # <r, M r>
    alpha: Array  # length of the next step
    rr: Array  # <r, r>
    broken: Array


@dataclass(frozen=True)
class CGSingleReduction(Method):
    """Conjugate gradients with one reduction in each step, for many devices.

    The step length follows from <r, M r> and <A M r, M r>, which are computed together with <r, r>. On vectors that are
    distributed over devices, one all-reduce of three numbers replaces CG's two or three. That pays if messages take
    longer than computations, below about ten million unknowns per device. In exact arithmetic it is CG. A p is updated
    by recurrence, which costs a vector and loses slightly more accuracy. For symmetric (Hermitian) definite A, positive
    or negative, and semi-definite A with a consistent right-hand side. The same holds for M. Cost: 5 vectors, with M 6,
    per step 1 product with A and 1 with M, and 1 more product with A at the start.

    Source: Chronopoulos and Gear, s-step iterative methods for symmetric linear systems, J. Comput. Appl. Math. 25
    (1989), s = 1; D'Azevedo, Eijkhout and Romine, LAPACK Working Note 56 (1993).

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import CGSingleReduction
        >>> A = np.array([[4.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=CGSingleReduction())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    keeps_grids = True
    applies_only = True
    takes_numbers = True
    combines_images = True
    needs_hermitian = True
    needs_definite = True
    products_at_start = 1

    @property
    def name(self) -> str:
        return "CG-single-reduction"

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> CGSingleReductionState:
        u = _image(bk, M, r)
        w = A.apply(u)
        rho, mu, rr = _products(bk, M, r, u, w)
        none = bk.full_like(rr, False, bool)
        p, s = bk.copy(u), bk.copy(w)
        return CGSingleReductionState(bk.zeros_like(r), r, p, s, rho, bk.safe_divide(rho, mu), rr, none)

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: CGSingleReductionState) -> CGSingleReductionState:
        r = bk.axpy(-s.alpha, s.s, s.r)
        u = _image(bk, M, r)
        w = A.apply(u)
        rho, mu, rr = _products(bk, M, r, u, w)
        beta = bk.safe_divide(rho, s.rho)
        ps = mu - beta * bk.safe_divide(rho, s.alpha)  # <p, A p> of the next p
        x, p = bk.axpy_xpay(s.alpha, s.p, s.x, u, beta)
        return CGSingleReductionState(
            x, r, p, bk.xpay(w, beta, s.s), rho, bk.safe_divide(rho, ps), rr, (ps == 0) | (rho == 0)
        )


def _image(bk: Backend, M: Operator | None, r: Array) -> Array:
    """M r, copied because a function may overwrite what it returned."""
    return r if M is None else bk.copy(apply(M, r))


def _products(bk: Backend, M: Operator | None, r: Array, u: Array, w: Array) -> tuple[Array, Array, Array]:
    """<r, u>, <u, w> and the real <r, r>, for u = M r and w = A u."""
    if M is None:
        rho, mu = bk.dots((r, r), (u, w))
        return rho, mu, bk.real(rho)
    rho, mu, square = bk.dots((r, u), (u, w), (r, r))
    return rho, mu, bk.real(square)
