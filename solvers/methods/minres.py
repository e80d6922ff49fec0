"""MINRES: minimal residuals for symmetric systems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...backends import Array, Backend
from ...sparse import Operator
from .method import Goal, Method, apply
from .shared import to_unit_size

_NOISE = 10  # rounding units relative to the terms of a sum, below which it is noise


class MINRESState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1) and real."""

    x: Array
    r: Array
    p: Array  # Lanczos vector, <p, M p> = 1
    p_old: Array
    v: Array  # M p
    w: Array  # direction of the last step, times gamma
    w_old: Array
    beta: Array  # off-diagonal entry of the tridiagonal matrix between its last and next column
    epsilon: Array  # entry two above the diagonal of the next column, after the previous rotations
    delta: Array  # entry one above the diagonal
    c: Array  # last rotation
    s: Array
    gamma: Array  # diagonal of the last column after the rotations
    gamma_old: Array
    ww: Array  # squared norm of w in the inverse of M, by orthogonality of the Lanczos vectors
    ww_old: Array
    cross: Array  # <w, w_old> there
    phi: Array  # norm of the residual in M, with a sign
    least: Array  # smallest phi: below, a residual that is not small lies in the null space of M
    largest: Array  # norm of the largest column so far
    rr: Array  # <r, r>
    broken: Array


@dataclass(frozen=True)
class MINRES(Method):
    """MINRES: the smallest residual over the Krylov space, from the three-term recurrence of Lanczos.

    For symmetric (Hermitian) A, definite or not, also singular with a consistent right-hand side. With an inconsistent
    one it breaks down at a least-squares solution. M must be symmetric (Hermitian) and positive definite even if A is
    not; other M break down. With M the residual is minimised in the norm of M. r is the residual itself, updated with
    the next Lanczos vector, so that its 2-norm is known without a product.

    Cost: 8 vectors (x, r, 2 of Lanczos, M p, 2 directions and one product; 7 without M), and per step 1 product with A
    and 1 with M; one more M per round at the start.

    Source: Paige and Saunders, SIAM J. Numer. Anal. 12 (1975); Choi, Paige and Saunders, SIAM J. Sci. Comput. 33
    (2011), for the recurrence of r and for preconditioning. In addition, the length of each direction is computed by
    recurrence, and a direction that A M maps to rounding noise ends the round.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import MINRES
        >>> A = np.array([[1.0, 2.0, 0.0], [2.0, -1.0, 1.0], [0.0, 1.0, 3.0]])
        >>> result = linear_solve(A, np.ones(3), method=MINRES())
        >>> np.allclose(A @ result.x, 1)
        True
    """

    keeps_grids = True
    applies_only = True
    takes_numbers = True
    needs_hermitian = True
    minimises_residual = True

    @property
    def name(self) -> str:
        return "MINRES"

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> MINRESState:
        z, rr = apply(M, r), bk.square_norm(r)
        square = bk.real(bk.dot(r, z))
        norm = bk.sqrt(bk.maximum(square, 0 * square))
        inverse, zero, one = bk.safe_divide(bk.full_like(norm, 1), norm), bk.zeros_like(norm), bk.full_like(norm, 1)
        p = bk.times(inverse, r)
        v = p if M is None else bk.times(inverse, z)
        empty = [bk.zeros_like(r) for _ in range(4)]
        return MINRESState(
            empty[0], r, p, empty[1], v, empty[2], empty[3],
            beta=zero, epsilon=zero, delta=zero, c=one, s=zero, gamma=one, gamma_old=one,
            ww=zero, ww_old=zero, cross=zero, phi=norm, largest=zero,
            least=norm * float(np.finfo(bk.dtype(norm)).eps), rr=rr, broken=(square <= 0) & (rr > 0),
        )  # fmt: skip

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: MINRESState) -> MINRESState:
        # Lanczos: A v = size (beta_old p_old + alpha p + u), everything divided by a power of two
        u, size = to_unit_size(bk, A.apply(s.v))
        alpha, beta_old = bk.real(bk.dot(s.v, u)), s.beta / size
        u = bk.axpy(bk.astype(-alpha, bk.dtype(u)), s.p, u)
        u = bk.axpy(bk.astype(-beta_old, bk.dtype(u)), s.p_old, u)
        z = apply(M, u)
        square, rest = bk.real(bk.dot(u, z)), alpha * alpha + beta_old * beta_old
        noise = _NOISE * float(np.finfo(bk.dtype(rest)).eps)
        square = bk.where(bk.abs(square) <= noise * noise * rest, 0 * square, square)
        beta = bk.sqrt(bk.maximum(square, 0 * square))
        # QR of the tridiagonal matrix: the last rotation on its new column, and the next one
        delta, low = s.c * s.delta / size + s.s * alpha, s.c * alpha - s.s * s.delta / size
        gamma = bk.sqrt(low * low + beta * beta)
        largest = bk.maximum(s.largest, size * bk.sqrt(rest + beta * beta))
        # w = v - d w_1 - e w_2, and |A w| = gamma, which is noise if A is singular and the residual minimal.
        d, e = delta * (size / s.gamma), s.epsilon / s.gamma_old
        ww = 1 + d * d * s.ww + e * e * s.ww_old + 2 * d * e * s.cross
        dead = (square < 0) | (gamma * size <= noise * largest * bk.sqrt(bk.maximum(ww, 0 * ww)))
        c, sine = bk.where(dead, 0 * low, bk.safe_divide(low, gamma)), bk.safe_divide(beta, gamma)
        # the step along w
        kind = bk.dtype(s.r)
        diagonal = gamma * size
        w = bk.axpy(bk.astype(-d, kind), s.w, bk.xpay(s.v, bk.astype(-e, kind), s.w_old))
        x = bk.axpy(bk.astype(bk.safe_divide(c * s.phi, diagonal), kind), w, s.x)
        # There is no step if M is not definite, or A is singular and the residual minimal.
        shrink = bk.where(dead, bk.full_like(sine, 1), sine * sine)
        r = bk.times(shrink, s.r)
        r, rr = bk.axpy_norm(bk.astype(-bk.safe_divide(c * s.phi, gamma), kind), u, r)
        # the next Lanczos vector
        inverse = bk.safe_divide(bk.full_like(beta, 1), beta)
        p = bk.times(inverse, u)
        v = p if M is None else bk.times(inverse, z)
        beta, phi = beta * size, -sine * s.phi
        return MINRESState(
            x, r, p, s.p, v, w, s.w,
            beta=beta, epsilon=s.s * beta, delta=s.c * beta, c=c, s=sine,
            gamma=bk.where(diagonal > 0, diagonal, bk.full_like(diagonal, 1)), gamma_old=s.gamma,
            ww=ww, ww_old=s.ww, cross=-d * s.ww - e * s.cross, phi=phi, least=s.least, largest=largest, rr=rr,
            broken=s.broken | dead | (bk.abs(phi) <= s.least),
        )  # fmt: skip
