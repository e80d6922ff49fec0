"""Conjugate gradients with the step length and direction computed explicitly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...backends import Array, Backend
from ...sparse import Operator
from .method import Goal, Method, apply


class CGAdaptiveState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array
    r: Array
    p: Array  # search direction
    rr: Array  # <r, r>
    broken: Array


@dataclass(frozen=True)
class CGAdaptive(Method):
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

    keeps_grids = True
    applies_only = True
    takes_numbers = True
    combines_images = True
    needs_hermitian = True
    needs_definite = True

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
