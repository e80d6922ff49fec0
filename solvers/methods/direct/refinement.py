"""Direct methods as an iteration: apply a factorisation to the residual until the tolerance is met."""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from ....backends import Array, Backend
from ....sparse import Operator
from ..method import Goal, Method, apply
from .factorisation import MatrixToFactorise, Solves

_SMALL_CORRECTION = 0.25  # of x


class RefinementState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1)."""

    x: Array
    r: Array
    rr: Array
    dd: Array  # squared norm of the last correction
    broken: Array


class Refinement(Method):
    """x <- x + F (b - A x) with F the inverse by factorisation: one step, or a few where rounding left something.

    Source: Wilkinson's iterative refinement; Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., ch. 12.
    """

    takes_preconditioner = False
    factorises = True
    keeps_setup = True
    steps_per_iteration = float("inf")

    @abstractmethod
    def factorise(self, bk: Backend, A: Operator) -> Operator:
        """The factorisation, as an operator that solves."""

    def setup(self, bk: Backend, A: Operator, M: Operator | None) -> Operator:
        return M if isinstance(M, Solves) else self.factorise(bk, M.inner if isinstance(M, MatrixToFactorise) else A)

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> RefinementState:
        rr = bk.square_norm(r)
        return RefinementState(bk.zeros_like(r), r, rr, bk.zeros_like(rr), bk.full_like(rr, False, bool))

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: RefinementState) -> RefinementState:
        d = apply(M, s.r)
        r = s.r - A.apply(d)
        rr = bk.square_norm(r)
        return RefinementState(s.x + d, r, rr, bk.square_norm(d), rr > 0.25 * s.rr)

    def is_settled(self, bk: Backend, state: RefinementState, x: Array, scale: Array) -> Array:
        """Corrections as large as x reveal factors of a singular matrix whose zero pivots are hidden by rounding."""
        return bk.sqrt(state.dd) <= _SMALL_CORRECTION * bk.norm(x) / scale
