"""GMRES: generalised minimal residuals, restarted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend, select
from ...sparse import Operator
from .method import Goal, Method, apply
from .shared import combination, components, first_of_each, identity, positions, span, to_unit_size

_NOISE = 10  # rounding units relative to the original vector, below which a remainder is noise


class GMRESState(NamedTuple):
    """Vectors are (batch, n), scalars (batch, 1), stacks of m rows flat: (batch, m n) and (batch, m m)."""

    x: Array  # at the start of the cycle
    r: Array  # there
    v: Array  # row j of V
    V: Array  # orthonormal rows; those beyond row j are from the last cycle
    Z: Any  # M V if M may vary, else ()
    j: Array  # steps in this cycle
    Q: Array  # rows 0 ... j - 1 of the product of the rotations, with Q H = R; zero beyond
    q: Array  # (batch, m), row j of Q
    R: Array  # upper triangle, the identity beyond column j - 1
    g: Array  # (batch, m), Q beta e_1, zero beyond j - 1
    beta: Array  # |r|
    largest: Array  # |A M v| of the largest v so far
    rr: Array  # <r, r> of the newest x
    broken: Array
    live: Array  # whether a system is running; all of these have the same j


class _ArnoldiColumn(NamedTuple):
    """A M v = size (V h + after v_next)."""

    h: Array  # (batch, m)
    v: Array
    before: Array  # |A M v| / size
    after: Array
    size: Array


@dataclass(frozen=True)
class GMRES(Method):
    """GMRES(m): the smallest residual over the Krylov space of A M, started anew every m = `restart` steps.

    For any square A. M preconditions from the right, so that the residual is the true one. Consistent singular systems
    are solved, except for some whose null space and range have a common vector. With `flexible=True` M v is stored for
    every v, and M may change in every step (FGMRES), such as an inner iteration.

    Arnoldi's basis is orthogonalised twice by classical Gram-Schmidt. The second pass makes it orthogonal to working
    precision (Giraud, Langou, Rozloznik and van den Eshof 2005), unlike one pass of the modified process. Each pass is
    two products with the whole basis instead of 2 j successive vector operations. The product Q of the rotations of the
    Hessenberg matrix is stored instead of the rotations.

    Cost: m + 5 vectors (2 m + 5 if flexible); per step 1 product with A and 1 with M, and one more M per cycle if not
    flexible; 8 j n operations in step j of a cycle.

    Source: Saad and Schultz, SIAM J. Sci. Stat. Comput. 7 (1986); Saad, Iterative Methods for Sparse Linear Systems,
    2nd ed., Algorithms 9.5 and 9.6.

    Raises:
        ValueError: `restart` is no integer >= 1.

    Examples:
        >>> import numpy as np
        >>> from krylix import linear_solve
        >>> from krylix.solvers import GMRES
        >>> A = np.array([[4.0, 1.0, 0.0], [2.0, 4.0, 1.0], [0.0, 3.0, 4.0]])
        >>> result = linear_solve(A, np.ones(3), method=GMRES(restart=20))
        >>> np.allclose(A @ result.x, 1)
        True
    """

    keeps_grids = True
    applies_only = True
    minimises_residual = True

    restart: int = 30
    flexible: bool = False

    def __post_init__(self) -> None:
        if isinstance(self.restart, bool) or not isinstance(self.restart, int) or self.restart < 1:
            raise ValueError(f"GMRES(m) needs an integer m >= 1, the steps between restarts; got {self.restart!r}.")

    @property
    def name(self) -> str:
        name = "FGMRES" if self.flexible else "GMRES"
        return name if self.restart == 30 else f"{name}({self.restart})"

    @property
    def combines_images(self) -> bool:  # type: ignore[override]
        return self.flexible

    @property
    def summary(self) -> str:
        varying = ", with a preconditioner that may change in every step" if self.flexible else ""
        return super().summary.replace("m = restart steps", f"{self.restart} steps") + varying

    def init(self, bk: Backend, A: Operator, M: Operator | None, r: Array, goal: Goal) -> GMRESState:
        m = min(self.restart, bk.unknowns(r))
        s = _begin(bk, bk.zeros_like(r), r, 0 * goal.attempt, m)
        V = bk.put_row(bk.room_for(r, m), s.j, s.v)
        return s._replace(V=bk.fold(V), Z=bk.fold(bk.room_for(r, m)) if self.flexible else ())

    def step(self, bk: Backend, A: Operator, M: Operator | None, s: GMRESState) -> GMRESState:
        m = int(s.g.shape[1])
        z = apply(M, s.v)
        Z = bk.fold(bk.put_row(bk.unfold(s.Z, m), s.j, z)) if self.flexible else ()
        V = bk.unfold(s.V, m)
        new, tail = _rotate(bk, s, _orthogonalise(bk, V, s.j, s.live, A.apply(z)))
        new = new._replace(V=(), Z=())  # because a branch would copy them
        full = (new.j == m) & s.live
        new = bk.cond(bk.any(full), lambda: self._restarted(bk, M, new, V, Z, full, tail), lambda: new)
        return new._replace(V=bk.fold(bk.put_row(V, new.j, new.v)), Z=Z)

    def limited(self, bk: Backend, state: GMRESState, left: Array) -> GMRESState:
        return state._replace(live=left > 0)

    def solution(self, bk: Backend, M: Operator | None, state: GMRESState) -> Array:
        m = int(state.g.shape[1])
        return self._best(bk, M, state, bk.unfold(state.V, m), state.Z)

    def _best(self, bk: Backend, M: Operator | None, s: GMRESState, V: Array, Z: Any) -> Array:
        """x at the start of the cycle plus the combination of its directions that minimises the residual."""
        m = int(s.g.shape[1])
        y = bk.linalg.solve_triangular(bk.unfold(s.R, m), s.g, lower=False)
        if self.flexible:
            return s.x + first_of_each(bk, bk.unfold(Z, m), y, s.j)
        return s.x + apply(M, first_of_each(bk, V, y, s.j))

    def _restarted(
        self, bk: Backend, M: Operator | None, s: GMRESState, V: Array, Z: Any, full: Array, tail: Array
    ) -> GMRESState:
        """Start a new cycle from the newest x for systems whose cycle is full. Its residual takes no product."""
        # r = (V, v)(conj q, tail) times the last entry of Q beta e_1
        last = bk.astype(s.beta, bk.dtype(s.r)) * s.q[:, :1]
        r = last * (combination(bk, V, bk.conj(s.q)) + tail * s.v)
        new = _begin(bk, self._best(bk, M, s, V, Z), r, 0 * s.j, int(s.g.shape[1]))
        new = new._replace(V=(), Z=(), largest=s.largest, broken=s.broken, live=s.live)
        return new if int(full.shape[0]) == 1 else select(bk, full, new, s)


def _begin(bk: Backend, x: Array, r: Array, j: Array, m: int) -> GMRESState:
    """State at the start of a cycle, without its stacks V and Z."""
    beta, zero = bk.norm(r), bk.zeros((int(r.shape[0]), m), bk.dtype(r), r)
    v = bk.times(bk.safe_divide(bk.full_like(beta, 1), beta), r)
    Q, q = bk.zeros((int(r.shape[0]), m * m), bk.dtype(r), r), bk.where(positions(bk, m, j) == j, zero + 1, zero)
    return GMRESState(
        x, r, v, (), (), j, Q, q, identity(bk, m, r), zero, beta, bk.zeros_like(beta), beta * beta, beta < 0, beta > 0
    )


def _orthogonalise(bk: Backend, V: Array, j: Array, live: Array, w: Array) -> _ArnoldiColumn:
    """Express w in terms of v_0 ... v_j and a new vector."""
    batch, m = int(V.shape[0]), int(V.shape[1])
    w, size = to_unit_size(bk, w)
    before = bk.sqrt(bk.square_norm(w))
    used = min(span(bk, j, live, m)[1] + 1, m)
    V = V[:, :used, :]
    h = bk.zeros((batch, used), bk.dtype(w), w)
    for _ in range(2):
        part = bk.where(positions(bk, used, j) <= j, components(bk, V, w), 0 * h)
        w = w - combination(bk, V, part)
        h = h + part
    after = bk.sqrt(bk.square_norm(w))
    after = bk.where(after <= _noise(bk, after) * before, 0 * after, after)
    h = bk.concat([h, bk.zeros((batch, m - used), bk.dtype(w), w)], 1)
    return _ArnoldiColumn(h, bk.times(bk.safe_divide(bk.full_like(after, 1), after), w), before, after, size)


def _rotate(bk: Backend, s: GMRESState, new: _ArnoldiColumn) -> tuple[GMRESState, Array]:
    """Add a column to H = Q* R. Also return the entry of q for its vector v_j.

    The last rotation maps (a, after), the end of Q h, to (rho, 0). If rho is noise, the column depends on the others: A
    M is singular, and the residual minimal. The system is then broken, with its state unchanged.
    """
    m, kind = int(s.g.shape[1]), bk.dtype(s.g)
    here, below = positions(bk, m, s.j) == s.j, positions(bk, m, s.j) == s.j + 1
    Q, R, zero = bk.unfold(s.Q, m), bk.unfold(s.R, m), 0 * s.g
    a = bk.sum(s.q * new.h, 1, keepdims=True)
    rho = bk.sqrt(bk.real(bk.conj(a) * a) + new.after * new.after)
    largest = bk.maximum(s.largest, new.before * new.size)
    column = bk.product(Q, new.h)
    # A M maps the new direction, less its components in the others, of length |(1, shared)|, to length rho.
    part = bk.linalg.solve_triangular(R, bk.times(new.size, column), lower=False)
    shared = bk.sum(bk.real(bk.conj(part) * part), 1, keepdims=True)  # squared norm of the coefficients
    dead = rho * new.size <= _noise(bk, rho) * largest * bk.sqrt(1 + shared)
    c, sine = bk.safe_divide(a, bk.astype(rho, kind)), bk.astype(bk.safe_divide(new.after, rho), kind)
    row = bk.conj(c) * s.q + bk.where(below, sine, zero)
    q = bk.where(below, c, zero) - sine * s.q
    column = column + bk.where(here, bk.astype(rho, kind), zero)
    g = bk.where(here, bk.times(s.beta, row[:, :1]), s.g)
    R = bk.where(here[:, None, :], bk.times(new.size, column)[:, :, None], R)
    Q = bk.where(here[:, :, None], row[:, None, :], Q)
    norm = s.beta * bk.abs(q[:, :1])
    moved = s._replace(
        v=new.v, V=(), Z=(), j=s.j + 1, Q=bk.fold(Q), q=q, R=bk.fold(R), g=g, largest=largest, rr=norm * norm
    )
    moved = select(bk, dead, s._replace(V=(), Z=()), moved)
    return moved._replace(broken=s.broken | dead), bk.conj(c)


def _noise(bk: Backend, scalar: Array) -> float:
    return _NOISE * float(np.finfo(bk.dtype(scalar)).eps)
