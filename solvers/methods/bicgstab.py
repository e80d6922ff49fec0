"""Stabilised bi-conjugate gradients with residual minimisation of any degree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...backends import Array, Backend, real_dtype
from ...sparse import Operator
from ..iteration.method import Goal, Method, apply
from .shared.scaling import growth, scaled_product
from .shared.shadow import left_vector


class BiCGStabState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1). Solves K y = r with K = A M / size; `x` holds y."""

    x: Array
    r: Array
    u: Array  # search direction
    shadow: Array  # r~, the left vector
    rho: Array  # <r~, r_j> of the last half step
    alpha: Array
    omega: Array
    rr: Array  # <r, r>
    size: Array  # power of two of the size of A M: powers of K then neither overflow nor vanish
    done: Array  # <r, r> at which a system needs no further half step
    broken: Array


class _Cycle(NamedTuple):
    """The bi-conjugate half of a step: r[j] = K^j r and u[j] = K^j u."""

    y: Array
    r: tuple[Array, ...]
    u: tuple[Array, ...]
    rho: Array
    alpha: Array
    rr: Array
    live: Array
    broken: Array


@dataclass(frozen=True)
class BiCGStab(Method):
    """BiCGStab(l): l steps of bi-conjugate gradients, then a minimisation over l powers of A M.

    For any square A; M preconditions from the right, so the residual is the true one. `l=1` is van der Vorst's
    BiCGStab; `l=2` also copes with eigenvalues near the imaginary axis, larger l with harder spectra. One iteration is
    one such cycle. A breakdown restarts from the best x with another left vector.

    Cost: 2 l + 6 vectors; per iteration 2 l products with A and 2 l with M, and per round one more of each at the start
    and one more M at the end.

    Source: Sleijpen and Fokkema, ETNA 1 (1993), Algorithm 3.1; van der Vorst, SIAM J. Sci. Stat. Comput. 13 (1992).
    """

    keeps_grids = True
    products_at_start = 1

    l: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.l, bool) or not isinstance(self.l, int) or self.l < 1:
            raise ValueError(f"BiCGStab(l) needs an integer l >= 1; got {self.l!r}.")

    @property
    def name(self) -> str:
        return "biCG-stab" if self.l == 1 else f"biCG-stab({self.l})"

    @property
    def steps_per_iteration(self) -> int:  # type: ignore[override]
        return self.l

    @property
    def products_per_step(self) -> int:  # type: ignore[override]
        return 2 * self.l

    def solution(self, bk: Backend, M: Operator | None, state: BiCGStabState) -> Array:
        return apply(M, bk.times(1 / state.size, state.x))

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> BiCGStabState:
        rr = bk.square_norm(r)
        one = bk.astype(bk.full_like(rr, 1), bk.dtype(r))
        size = growth(bk, A.apply(apply(M, r)), r)
        shadow = left_vector(bk, r, goal.attempt)
        return BiCGStabState(
            bk.zeros_like(r),
            r,
            bk.zeros_like(r),
            shadow,
            one,
            bk.zeros_like(one),
            one,
            rr,
            size,
            goal.norm * goal.norm,
            bk.full_like(rr, False, bool),
        )

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: BiCGStabState) -> BiCGStabState:
        def product(v: Array) -> Array:
            return scaled_product(bk, A, M, v, s.size)

        broken = bk.full_like(s.rr, False, bool)
        cycle = _Cycle(s.x, (s.r,), (s.u,), -s.omega * s.rho, s.alpha, s.rr, s.rr > s.done, broken)
        for j in range(self.l):
            cycle = _half_step(bk, product, s.shadow, s.done, cycle, j)
        return _minimise(bk, s, cycle)


def _half_step(bk: Backend, product: Callable[[Array], Array], shadow: Array, done: Array, c: _Cycle, j: int) -> _Cycle:
    """One step of bi-conjugate gradients, on r[0..j] and u[0..j]; systems that are done or broken stand still."""
    zero = bk.zeros_like(c.alpha)
    rho = bk.dot(shadow, c.r[j])
    beta = bk.where(c.live, bk.safe_divide(c.alpha * rho, c.rho), zero)
    u = tuple(bk.xpay(c.r[i], -beta, c.u[i]) for i in range(j + 1))
    u = (*u, product(u[j]))
    gamma = bk.dot(shadow, u[j + 1])
    # Where gamma is rounding noise, alpha would be noise too, and of any size.
    noise = np.finfo(real_dtype(bk.dtype(c.rr))).eps * bk.sqrt(bk.square_norm(u[j + 1]) * bk.square_norm(shadow))
    broken = c.live & ((bk.abs(gamma) <= noise) | (rho == 0))
    live = c.live & ~broken
    alpha = bk.where(live, bk.safe_divide(rho, gamma), zero)
    y = bk.axpy(alpha, u[0], c.y)
    r = tuple(bk.axpy(-alpha, u[i + 1], c.r[i]) for i in range(j + 1))
    rr = bk.square_norm(r[0])
    r = (*r, product(r[j]))
    return _Cycle(y, r, u, rho, alpha, rr, live & (rr > done), c.broken | broken)


def _minimise(bk: Backend, s: BiCGStabState, c: _Cycle) -> BiCGStabState:
    """Subtract from r[0] its best approximation by r[1..l], found by modified Gram-Schmidt."""
    degree, zero = len(c.r) - 1, bk.zeros_like(c.alpha)
    # Systems that reached their goal in a half step leave the minimisation out: r[1..l] is noise to them.
    live = c.rr > s.done
    r, tau, first = list(c.r), {}, {}
    for j in range(1, degree + 1):
        for i in range(1, j):
            tau[i, j] = bk.safe_divide(bk.dot(r[i], r[j]), bk.astype(bk.square_norm(r[i]), bk.dtype(r[i])))
            r[j] = bk.axpy(-tau[i, j], r[i], r[j])
        square = bk.astype(bk.square_norm(r[j]), bk.dtype(r[j]))
        first[j] = bk.where(live, bk.safe_divide(bk.dot(r[j], r[0]), square), zero)
    gamma = dict(first)
    for j in range(degree - 1, 0, -1):
        for i in range(j + 1, degree + 1):
            gamma[j] = gamma[j] - tau[j, i] * gamma[i]
    y, u = bk.axpy(gamma[1], r[0], c.y), c.u[0]
    for j in range(1, degree):
        second = gamma[j + 1]
        for i in range(j + 1, degree):
            second = second + tau[j, i] * gamma[i + 1]
        y = bk.axpy(second, r[j], y)
    for j in range(1, degree + 1):
        r[0] = bk.axpy(-first[j], r[j], r[0])
        u = bk.axpy(-gamma[j], c.u[j], u)
    rr, omega = bk.square_norm(r[0]), gamma[degree]
    broken = c.broken | (live & (omega == 0))
    return BiCGStabState(y, r[0], u, s.shadow, c.rho, c.alpha, omega, rr, s.size, s.done, broken)
