"""BiCGStab(l): stabilised bi-conjugate gradients with residual minimisation of degree l."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, real_dtype
from ...sparse import Operator
from .method import Goal, Method, apply
from .shared import growth, left_vector, square_norm_and_dots


class BiCGStabState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1). Solves K y = r with K = A M / size, for x = M y / size."""

    x: Array
    r: Array
    u: Array  # search direction
    shadow: Array  # r~, the left vector
    rho: Array  # <r~, r_j> of the last half step
    alpha: Array
    omega: Array
    rr: Array  # <r, r>
    size: Array  # power of two near the size of A M, which keeps powers of K in range
    done: Array  # <r, r> at which a system needs no further half step
    broken: Array


class _Image(NamedTuple):
    """Images of a vector v."""

    M: Any  # M v, which is added to x; v itself without M
    K: Array  # A M v / size, new memory


class _BiCGPart(NamedTuple):
    """Bi-conjugate half of a step: r[j] = K^j r and u[j] = K^j u.

    Mr[j] and Mu[j] are the images of r[j] and u[j] under M, except for the last ones; () without M. They follow the
    same recurrences, so that x is a combination of vectors to which A was applied, and M may have low precision.
    """

    x: Array
    r: tuple[Array, ...]
    u: tuple[Array, ...]
    Mr: tuple[Array, ...]
    Mu: tuple[Array, ...]
    rho: Array
    alpha: Array
    rr: Array
    live: Array
    broken: Array


@dataclass(frozen=True)
class BiCGStab(Method):
    """BiCGStab(l): l steps of bi-conjugate gradients, then a minimisation over l powers of A M.

    For any square A. M preconditions from the right, so that the residual is the true one. `l=1` is van der Vorst's
    BiCGStab, `l=2` also handles eigenvalues near the imaginary axis, and larger l harder spectra. One iteration is
    one such cycle. After a breakdown it restarts from the best x with another left vector.

    Cost: 2 l + 6 vectors, with M 2 l more; per iteration 2 l products with A and 2 l with M, and per round one more of
    each at the start.

    Source: Sleijpen and Fokkema, ETNA 1 (1993), Algorithm 3.1; van der Vorst, SIAM J. Sci. Stat. Comput. 13 (1992).

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import BiCGStab
        >>> A = np.array([[4.0, 1.0, 0.0], [2.0, 4.0, 1.0], [0.0, 3.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=BiCGStab(l=2))
        >>> np.allclose(A @ result.x, 1)
        True
    """

    keeps_grids = True
    applies_only = True
    takes_numbers = True
    combines_images = True
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
        broken = bk.full_like(s.rr, False, bool)
        cycle = _BiCGPart(s.x, (s.r,), (s.u,), (), (), -s.omega * s.rho, s.alpha, s.rr, s.rr > s.done, broken)
        products = _Products(bk, A, M, s.size)
        for j in range(self.l):
            cycle = _half_step(products, s, cycle, j)
        return _minimise(products, s, cycle)


class _Products(NamedTuple):
    """Products with A M."""

    bk: Backend
    A: Operator
    M: Operator | None
    size: Array

    def image(self, v: Array) -> _Image:
        bk, A, M, size = self.bk, self.A, self.M, self.size
        if bk.updates_in_place:  # Scaling afterwards makes new memory, even if a function returns its own buffer.
            z = apply(M, v)
            z = z if M is None else bk.copy(z)  # needed after a function may have overwritten its buffer
            return _Image(z, bk.times(1 / size, A.apply(z)))
        z = apply(M, bk.times(1 / size, v))  # otherwise XLA would compute the product again for each use
        return _Image(v if M is None else z, A.apply(z))

    def corrected(self, x: Array, factor: Array, image: Array) -> Array:
        """x plus a multiple of M v."""
        scaled = not self.bk.updates_in_place and self.M is not None
        return self.bk.axpy(factor if scaled else factor / self.bk.astype(self.size, self.bk.dtype(factor)), image, x)


def _half_step(products: _Products, s: BiCGStabState, c: _BiCGPart, j: int) -> _BiCGPart:
    """One step of bi-conjugate gradients, on r[0..j] and u[0..j]. Converged and broken systems are unchanged."""
    bk, zero, shadow = products.bk, products.bk.zeros_like(c.alpha), s.shadow
    rho = bk.dot(shadow, c.r[j])
    beta = bk.where(c.live, bk.safe_divide(c.alpha * rho, c.rho), zero)
    u = tuple(bk.xpay(c.r[i], -beta, c.u[i]) for i in range(j + 1))
    Mu = tuple(bk.xpay(Mr, -beta, before) for Mr, before in zip(c.Mr, c.Mu))
    image = products.image(u[j])
    u, Mu = (*u, image.K), (*Mu, image.M) if products.M is not None else ()
    left, gamma, uu = _shadow_products(bk, shadow, u[j + 1])
    # Where gamma is rounding noise, alpha would be noise too, and of any size.
    noise = float(np.finfo(real_dtype(bk.dtype(c.rr))).eps) * bk.sqrt(uu * left)
    broken = c.live & ((bk.abs(gamma) <= noise) | (rho == 0))
    live = c.live & ~broken
    alpha = bk.where(live, bk.safe_divide(rho, gamma), zero)
    x = products.corrected(c.x, alpha, (Mu or u)[0])
    r = tuple(bk.axpy(-alpha, u[i + 1], c.r[i]) for i in range(j + 1))
    Mr = tuple(bk.axpy(-alpha, Mu[i + 1], c.Mr[i]) for i in range(len(c.Mr)))
    rr = bk.square_norm(r[0])
    image = products.image(r[j])
    r, Mr = (*r, image.K), (*Mr, image.M) if products.M is not None else ()
    return _BiCGPart(x, r, u, Mr, Mu, rho, alpha, rr, live & (rr > s.done), c.broken | broken)


def _shadow_products(bk: Backend, shadow: Array, u: Array) -> tuple[Array, Array, Array]:
    """`<shadow, shadow>`, `<shadow, u>` and `<u, u>`; over a communicator in one message."""
    if bk.communicator is None:
        gamma, uu = bk.dot(shadow, u), bk.square_norm(u)
        return bk.square_norm(shadow), gamma, uu
    left, gamma, uu = bk.dots((shadow, shadow), (shadow, u), (u, u))
    return bk.real(left), gamma, bk.real(uu)


def _minimise(products: _Products, s: BiCGStabState, c: _BiCGPart) -> BiCGStabState:
    """Subtract from r[0] its best approximation by r[1..l], by modified Gram-Schmidt."""
    bk, degree, zero = products.bk, len(c.r) - 1, products.bk.zeros_like(c.alpha)
    # Systems that converged in a half step skip the minimisation, because their r[1..l] is noise.
    live = c.rr > s.done
    r, Mr, tau, first = list(c.r), list(c.Mr), {}, {}
    squares: dict[int, Array] = {}
    for j in range(1, degree + 1):
        for i in range(1, j):
            tau[i, j] = bk.safe_divide(bk.dot(r[i], r[j]), squares[i])
            r[j] = bk.axpy(-tau[i, j], r[i], r[j])
            if j < len(Mr):
                Mr[j] = bk.axpy(-tau[i, j], Mr[i], Mr[j])
        square, dot = square_norm_and_dots(bk, r[j], r[0])
        squares[j] = bk.astype(square, bk.dtype(r[j]))
        first[j] = bk.where(live, bk.safe_divide(dot, squares[j]), zero)
    gamma = dict(first)
    for j in range(degree - 1, 0, -1):
        for i in range(j + 1, degree + 1):
            gamma[j] = gamma[j] - tau[j, i] * gamma[i]
    directions, u = Mr or r, c.u[0]
    x = products.corrected(c.x, gamma[1], directions[0])
    for j in range(1, degree):
        second = gamma[j + 1]
        for i in range(j + 1, degree):
            second = second + tau[j, i] * gamma[i + 1]
        x = products.corrected(x, second, directions[j])
    for j in range(1, degree + 1):
        r[0] = bk.axpy(-first[j], r[j], r[0])
        u = bk.axpy(-gamma[j], c.u[j], u)
    rr, omega = bk.square_norm(r[0]), gamma[degree]
    broken = c.broken | (live & (omega == 0))
    return BiCGStabState(x, r[0], u, s.shadow, c.rho, c.alpha, omega, rr, s.size, s.done, broken)
