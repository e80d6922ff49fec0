"""Conjugate gradients, with the step length computed explicitly, and with one reduction in each step.

In exact arithmetic the three are one method. They need a symmetric (Hermitian) definite A, positive or negative, or a
semi-definite one with a consistent right-hand side; the same holds for M.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...backends import Array, Backend
from ...sparse import Operator
from .method import Goal, Method, apply


class ConjugateGradients(Method):
    """Facts that the variants of conjugate gradients share."""

    keeps_grids = True
    applies_only = True
    takes_numbers = True
    combines_images = True
    needs_hermitian = True
    needs_definite = True


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
class CG(ConjugateGradients):
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


class CGAdaptiveState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array
    r: Array
    p: Array  # search direction
    rr: Array  # <r, r>
    broken: Array


@dataclass(frozen=True)
class CGAdaptive(ConjugateGradients):
    """Conjugate gradients by Hestenes and Stiefel with explicitly computed step length and direction.

    alpha = <p, r> / <p, A p> minimises along any p, and each direction is made A-orthogonal to the last one explicitly.
    In exact arithmetic it is CG. It is less sensitive to rounding errors, a slightly non-symmetric A or a slightly
    varying M. For symmetric (Hermitian) definite A. Cost: 4 vectors, and per step 1 product with A and 1 with M; one
    dot product more than CG.

    Source: Hestenes and Stiefel, J. Res. NBS 49 (1952), equations 3:2a-b.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import CGAdaptive
        >>> A = np.array([[4.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=CGAdaptive())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    @property
    def name(self) -> str:
        return "CG-adaptive"

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> CGAdaptiveState:
        rr = bk.square_norm(r)
        return CGAdaptiveState(bk.zeros_like(r), r, bk.copy(apply(M, r)), rr, bk.full_like(rr, False, bool))

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: CGAdaptiveState) -> CGAdaptiveState:
        q = A.apply(s.p)
        pq = bk.dot(s.p, q)
        alpha = bk.safe_divide(bk.dot(s.p, s.r), pq)
        r, rr = bk.axpy_norm(-alpha, q, s.r)
        z = apply(M, r)
        beta = -bk.safe_divide(bk.dot(q, z), pq)
        x, p = bk.axpy_xpay(alpha, s.p, s.x, z, beta)
        return CGAdaptiveState(x, r, p, rr, pq == 0)


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
class CGSingleReduction(ConjugateGradients):
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
