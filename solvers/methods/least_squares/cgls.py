"""CGLS: conjugate gradients for least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....backends import Array, Backend
from ....sparse import NormalOperator, Operator
from ..method import Goal, apply
from ..shared import growth
from .base import LeastSquares, damp_of, of_normal


class CGLSState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1). A stands for A / size."""

    x: Array  # of the system divided by size
    r: Array  # b - A x of a square system, else the normal residual
    p: Array  # search direction
    gamma: Array  # |normal residual|^2
    rr: Array  # <r, r>
    size: Array  # power of two of the size of A: squares then neither overflow nor vanish
    broken: Array


@dataclass(frozen=True)
class CGLS(LeastSquares):
    """Least squares, `min |b - A x|^2 + damp^2 |x|^2`, by conjugate gradients on the normal equations, not formed.

    For any matrix, rectangular or square, of any rank; from a zero start it finds the solution of least norm. Cheaper
    per step than LSMR and with the same convergence, but the normal residual may rise now and then. A square system
    (damp = 0) is solved for the residual `b - A x` itself.

    Cost: 4 vectors of n numbers and 1 of m (m equations, n unknowns); per iteration 1 product with A and 1 with its
    adjoint, and 1 at the start of each round.

    Source: Hestenes and Stiefel, J. Res. NBS 49 (1952), section 10; Bjorck, Numerical Methods for Least Squares
    Problems (1996), Algorithm 7.4.1.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import CGLS
        >>> A, b = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]]), np.array([1.0, 3.0, 5.0])
        >>> np.round(linear_solve(A, b, method=CGLS()).x, 6)  # the line 1 + 2 t
        array([1., 2.])
    """

    products_at_start = 1

    @property
    def name(self) -> str:
        return "CGLS"

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> CGLSState:
        if isinstance(A, NormalOperator):
            s = bk.copy(r)
            size = growth(bk, A.inner.apply(s), s)
        else:
            s = apply(M, r)
            size = growth(bk, s, r)
            s = bk.times(1 / size, s)
        rr = bk.square_norm(r)
        return CGLSState(bk.zeros_like(s), r, s, bk.square_norm(s), rr, size, bk.full_like(rr, False, bool))

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: CGLSState) -> CGLSState:
        dtype, damp = bk.dtype(s.x), damp_of(A) / s.size
        q = bk.times(1 / s.size, of_normal(A).apply(s.p))
        square = bk.square_norm(q) + (damp * damp * bk.square_norm(s.p) if damp_of(A) else 0)
        alpha = bk.astype(bk.safe_divide(s.gamma, square), dtype)
        if isinstance(A, NormalOperator):
            x = bk.axpy(bk.astype(1 / s.size, dtype) * alpha, s.p, s.x)  # the square of size, in two steps
            image = bk.times(1 / s.size, apply(M, q))
            if A.damp:
                image = bk.axpy(bk.astype(damp * damp, dtype), s.p, image)
            r, rr = bk.axpy_norm(-alpha, image, s.r)
            normal, gamma, broken = r, rr, square == 0
        else:
            x = bk.axpy(alpha, s.p, s.x)
            r, rr = bk.axpy_norm(-alpha, q, s.r)
            normal = bk.times(1 / s.size, apply(M, r))
            gamma = bk.square_norm(normal)
            # Where only rounding noise is left of A^H r, and r is not small, there is no solution of A x = b.
            noise = float(np.finfo(bk.dtype(rr)).eps)
            broken = (square == 0) | (gamma <= noise * noise * rr)
        p = bk.xpay(normal, bk.astype(bk.safe_divide(gamma, s.gamma), dtype), s.p)
        return CGLSState(x, r, p, gamma, rr, s.size, broken)

    def solution(self, bk: Backend, M: Operator | None, state: CGLSState) -> Array:
        return bk.times(1 / state.size, state.x)
