"""IDR(s): induced dimension reduction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...backends import Array, Backend
from ...sparse import Operator
from .method import Goal, Method, apply
from .shared import combination, components, identity, left_vectors, positions, span, to_unit_size

_KAPPA = 0.7  # cosine of the angle between r and A M r, below which the minimising step is lengthened


class IDRState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1), stacks flat: (batch, s n) and (batch, s s)."""

    x: Array
    r: Array
    P: Array  # shadow vectors
    G: Array  # A U, where g_k is orthogonal to p_0 ... p_(k-1)
    U: Array
    mu: Array  # P* G, lower triangle
    f: Array  # (batch, s), P* r, where the first k entries are zero
    omega: Array
    k: Array  # steps in this cycle of s + 1
    largest: Array  # largest |A u| / |u|
    rr: Array  # <r, r>
    broken: Array
    live: Array  # whether a system is running; all of these have the same k


@dataclass(frozen=True)
class IDR(Method):
    """IDR(s): residuals in a sequence of shrinking spaces, each of s dimensions less than the one before.

    For any square A. M preconditions from the right, so that the residual is the true one. In exact arithmetic it ends
    after at most n + n / s products, and unlike GMRES the work per step does not grow. IDR(1) is close to BiCGStab, and
    a larger s needs fewer products for hard problems. One iteration is one product: s of them make the residual
    orthogonal to the s shadow vectors, and one more leads to the next space. Its minimising step is lengthened if r and
    A M r are nearly orthogonal, which Sleijpen and van der Vorst recommend to maintain convergence. After a breakdown
    it restarts from the best x with other shadow vectors, which are pseudo-random but deterministic.

    Cost: 3 s + 5 vectors; per step 1 product with A and 1 with M, and about 8 s n operations.

    Source: van Gijzen and Sonneveld, ACM TOMS 38 (2011), Algorithm 913, "IDR(s)-biortho"; Sleijpen and van der Vorst,
    Numer. Algorithms 10 (1995), for omega.

    Raises:
        ValueError: `s` is no integer >= 1.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import IDR
        >>> A = np.array([[4.0, 1.0, 0.0], [2.0, 4.0, 1.0], [0.0, 3.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=IDR(s=4))
        >>> np.allclose(A @ result.x, 1)
        True
    """

    keeps_grids = True
    applies_only = True
    combines_images = True

    s: int = 4

    def __post_init__(self) -> None:
        if isinstance(self.s, bool) or not isinstance(self.s, int) or self.s < 1:
            raise ValueError(f"IDR(s) needs an integer s >= 1, the number of shadow vectors; got {self.s!r}.")

    @property
    def name(self) -> str:
        return f"IDR({self.s})"

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> IDRState:
        rows, kind, rr = min(self.s, bk.unknowns(r)), bk.dtype(r), bk.square_norm(r)
        P = left_vectors(bk, r, rows, goal.attempt)
        return IDRState(
            bk.zeros_like(r),
            r,
            P,
            bk.fold(bk.room_for(r, rows)),
            bk.fold(bk.room_for(r, rows)),
            identity(bk, rows, r),
            components(bk, bk.unfold(P, rows), r),
            bk.astype(bk.full_like(rr, 1), kind),
            0 * goal.attempt,
            bk.zeros_like(rr),
            rr,
            rr < 0,
            rr > 0,
        )

    def limited(self, bk: Backend, state: IDRState, left: Array) -> IDRState:
        return state._replace(live=left > 0)

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: IDRState) -> IDRState:
        """One product: for the next vector of G, or, after s of these, for the step to the next space."""
        rows, zero = int(s.f.shape[1]), 0 * s.f
        P, G, U, mu = (bk.unfold(stack, rows) for stack in (s.P, s.G, s.U, s.mu))
        at, last = positions(bk, rows, s.k), s.k == rows
        first, end = span(bk, s.k, s.live, rows)
        # u with A u = g in the present space: omega times r, without its components in the newest vectors of G.
        c = bk.linalg.solve_triangular(mu, s.f, lower=True)[:, first:]
        z = apply(M, s.r - combination(bk, G[:, first:, :], c))
        omega = bk.where(last, bk.astype(bk.full_like(s.rr, 1), bk.dtype(z)), s.omega)
        u = combination(bk, U[:, first:, :], c) + omega * z
        g = A.apply(u)
        gain = bk.safe_divide(bk.max_abs(g), bk.max_abs(u))
        g, size = to_unit_size(bk, g)
        u = bk.times(1 / size, u)
        square = bk.square_norm(g)
        # g orthogonal to p_0 ... p_(k-1), which takes the vectors of G before it
        before = (at < s.k) & ~last
        alpha = bk.linalg.solve_triangular(mu, bk.where(before, components(bk, P, g), zero), lower=True)
        alpha = bk.where(before, alpha, zero)[:, :end]
        g, u = g - combination(bk, G[:, :end, :], alpha), u - combination(bk, U[:, :end, :], alpha)
        new = bk.where(at >= s.k, components(bk, P, g), zero)
        largest = bk.maximum(s.largest, gain)
        eps = float(np.finfo(bk.dtype(gain)).eps)
        # A u may consist of rounding errors, and u may have any size.
        s = s._replace(largest=largest, broken=s.broken | (gain <= eps**1.5 * largest))
        return _moved(bk, s, P, u, g, size, square, new)


def _moved(bk: Backend, s: IDRState, P: Array, u: Array, g: Array, size: Array, before: Array, new: Array) -> IDRState:
    """Step along u, which makes r orthogonal to p_k, or smaller if it is orthogonal to all shadow vectors."""
    rows, kind = int(s.f.shape[1]), bk.dtype(g)
    at, last, zero = positions(bk, rows, s.k), s.k == rows, 0 * s.f
    here, square = at == s.k, bk.square_norm(g)
    pivot = bk.sum(bk.where(here, new, zero), 1, keepdims=True)
    noise = float(np.finfo(bk.dtype(square)).eps) * bk.sqrt(before)
    broken = s.broken | bk.where(last, square == 0, bk.abs(pivot) <= noise)
    length = bk.safe_divide(bk.sum(bk.where(here, s.f, zero), 1, keepdims=True), pivot)
    length = bk.where(last, _minimising(bk, g, s.r, square, s.rr), length)
    length = bk.where(broken, 0 * length, length)
    x = bk.axpy(length, u, s.x)
    r, rr = bk.axpy_norm(-length, g, s.r)
    f = bk.where(at > s.k, s.f - length * new, zero)
    f = bk.cond(bk.any(last & s.live), lambda: bk.where(last, components(bk, P, r), f), lambda: f)
    row = bk.where(broken, rows + 0 * s.k, s.k)  # past the end, nothing is stored
    U, G = (bk.fold(bk.put_row(bk.unfold(old, rows), row, v)) for old, v in ((s.U, u), (s.G, g)))
    stored = (at == row)[:, None, :]
    mu = bk.fold(bk.where(stored, new[:, :, None], bk.unfold(s.mu, rows)))
    omega = bk.where(last, bk.times(1 / size, length), s.omega)
    k = bk.where(last, 0 * s.k, s.k + 1)
    return IDRState(x, r, s.P, G, U, mu, bk.astype(f, kind), omega, k, s.largest, rr, broken, s.live)


def _minimising(bk: Backend, t: Array, r: Array, square: Array, rr: Array) -> Array:
    """<t, r> / <t, t>, lengthened if t and r are nearly orthogonal, and zero only if r is."""
    kind = bk.dtype(t)
    dot, norms = bk.dot(t, r), bk.sqrt(square) * bk.sqrt(rr)
    size = bk.abs(dot)
    phase = bk.where(size > 0, bk.safe_divide(dot, bk.astype(size, kind)), bk.astype(bk.full_like(size, 1), kind))
    return bk.times(bk.safe_divide(bk.maximum(size, _KAPPA * norms), square), phase)
