"""Iterative refinement: corrections in single precision, residuals in double."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...backends import Array, Backend
from ...sparse import Operator, in_precision
from ..run.loop import Loop, Unit
from .cg import CG
from .method import Goal, Method, declare

_CG = CG()
_INHERITED = (
    "needs_hermitian", "needs_symmetric", "needs_definite", "needs_transpose", "keeps_grids", "takes_preconditioner",
    "takes_complex", "may_break_down", "amplifies_rounding", "steps_per_iteration",
)  # fmt: skip
_SINGLE = {"f": np.dtype(np.float32), "c": np.dtype(np.complex64)}


class MixedPrecisionState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1); in the precision of the system."""

    x: Array
    r: Array
    rr: Array  # <r, r>
    goal: Array  # residual norm at which a system has converged
    attempt: Array
    left: Array  # remaining iterations of each system
    taken: Array  # iterations and products of the last step
    products: Array
    broken: Array


@dataclass(frozen=True)
class MixedPrecision(Method):
    """x <- x + d with A d = r solved by `inner` in single precision, and r <- r - A d in double, to a double tolerance.

    Single precision moves half the bytes, so that an iteration takes about half the time if memory traffic dominates.
    Each correction restarts `inner`, which costs some iterations. It reduces the residual by the factor `inner_rtol`,
    and the last one reduces it to the tolerance. For systems that the inner method can solve, with condition numbers
    below about 1e7; beyond, corrections are noise, and the status reports that. Entries of A and M, and their products
    with residuals a million times smaller than b, must lie in the range of single precision (1e-38 to 3e38), as entries
    of 1e-25 do. Otherwise the solve breaks down or reaches its limit. A system in single precision is solved by `inner`
    in that precision.

    A and M are applied to single-precision arrays, even if they are functions. A function that does not accept
    these, or computes in double precision because of arrays that it closes over, is still correct, but no faster.

    One iteration is one of `inner`; `history` has an entry after each correction. Cost: the vectors of `inner` in
    single precision and 3 in double; per iteration the cost of `inner` in single precision, per correction 1 product in
    double.

    Raises ValueError for an inner method that is direct, minimises |b - A x|, couples systems or runs on the host.

    Source: Buttari et al., ACM Trans. Math. Softw. 34 (2008), Algorithm 3; Carson and Higham, SIAM J. Sci. Comput. 40
    (2018), Algorithm 1.1.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import CG, MixedPrecision
        >>> A = np.array([[4.0, 1.0, 0.0], [1.0, 4.0, 1.0], [0.0, 1.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=MixedPrecision(CG()), rtol=1e-12)
        >>> np.allclose(A @ result.x, 1, rtol=1e-11)
        True
    """

    inner: Method = _CG
    inner_rtol: float = 1e-5

    can_pause = False
    lower_precision = True
    combines_images = True  # A and M are in single precision

    def __post_init__(self) -> None:
        m = self.inner
        unfit = not isinstance(m, Method) or m.lower_precision or m.factorises
        if unfit or m.on_host or m.couples_systems or m.least_squares:
            raise ValueError(
                f"MixedPrecision needs an inner method of the library that iterates on each system separately, such as "
                f"CG() or BiCGStab(2); got {getattr(m, 'name', m)!r}. Use that method directly."
            )
        if not 0 < self.inner_rtol < 1:
            raise ValueError(f"inner_rtol must lie between 0 and 1; got {self.inner_rtol!r}.")
        declare(self, {fact: getattr(m, fact) for fact in _INHERITED})

    @property
    def name(self) -> str:
        return f"mixed-{self.inner.name}"

    @property
    def summary(self) -> str:
        return f"{self.inner.name} in single precision, corrected to a tolerance of double precision"

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> MixedPrecisionState:
        rr = bk.square_norm(r)
        none = bk.zeros(tuple(rr.shape), np.dtype(np.int32), rr)
        x, broken = bk.zeros_like(r), bk.full_like(rr, False, bool)
        return MixedPrecisionState(x, r, rr, goal.norm + 0 * rr, goal.attempt, none, none, none, broken)

    def limited(self, bk: Backend, state: MixedPrecisionState, left: Array) -> MixedPrecisionState:
        return state._replace(left=left)

    def steps_taken(self, state: MixedPrecisionState) -> Array:
        return state.taken

    def products_made(self, state: MixedPrecisionState) -> Array:
        return state.products

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: MixedPrecisionState) -> MixedPrecisionState:
        d, taken, products = self._correction(bk, A, M, s)
        r = s.r - A.apply(d)
        rr = bk.square_norm(r)
        better = bk.isfinite(rr) & (rr < s.rr)
        broken = bk.negated(rr <= 0.25 * s.rr)
        x, r = bk.where(better, s.x + d, s.x), bk.where(better, r, s.r)
        rr = bk.where(better, rr, s.rr)
        return MixedPrecisionState(x, r, rr, s.goal, s.attempt, s.left, taken, products + A.products, broken)

    def _correction(
        self, bk: Backend, A: Operator, M: Operator | None, s: MixedPrecisionState
    ) -> tuple[Array, Array, Array]:
        """One round of the inner method on the residuals of running systems: correction, iterations, products."""
        wide = bk.dtype(s.r)
        single = _SINGLE[wide.kind]
        norm = bk.sqrt(s.rr)
        part = s.goal / bk.where(norm > 0, norm, bk.full_like(norm, 1))
        if wide != single:  # half of the tolerance is for rounding of the last correction
            part = bk.maximum(0.5 * part, bk.full_like(part, self.inner_rtol))
        scale = bk.binary_scale(s.r)
        r = bk.astype(bk.where(s.left > 0, bk.times(1 / scale, s.r), bk.zeros_like(s.r)), single)
        narrow = in_precision(A, single)
        inverse = self.inner.setup(bk, narrow, None if M is None else in_precision(M, single))
        size = bk.norm(r)
        goal = bk.astype(part, bk.dtype(size)) * size
        inner = Loop(bk, self.inner, narrow, inverse, r, size=size, unit=Unit(bk), asked=goal, limit=s.left)
        d, taken, products = inner.correction(s.attempt)
        return bk.times(scale, bk.astype(d, wide)), bk.where(taken > 0, taken, 0 * taken + 1), products
