"""Operator-dependent interpolation weights (black box multigrid).

Every axis is coarsened by a factor, 2 or 1: the coarse points are those whose indices are multiples of it. A fine point
`factor X + p`, with p below the factors, takes `W[p][c](X)` times the coarse value at `X + c`, for c from 0 to p.

Source: Alcouffe, Brandt, Dendy and Painter, The multi-grid method for the diffusion equation with strongly
discontinuous coefficients, SIAM J. Sci. Stat. Comput. 2 (1981); Dendy, Black box multigrid, J. Comput. Phys. 48 (1982).

Weakly coupled points show whether a coarser grid can represent the couplings of a matrix. A point between two coarse
ones along an axis interpolates by its couplings along that axis, collapsed over the others. If these are negligible
relative to its diagonal, the point belongs to structures that a coarser grid misses: thin lines and walls, channels,
coefficients that jump from cell to cell. A few such points are harmless. With many, coarse points have to be chosen by
the couplings, as algebraic multigrid does.

Each coupling may be negligible by itself, as next to a thin line, each point of which leaves an error that varies
slowly along it: conjugate gradients need an iteration or two for each. Or they cancel, as in a few points of Galerkin
products, which does no harm. On the finest grid, that of the user's stencil, a smaller share shows that coarser ones
will lose more.

Large blocks with jumps of any size have no such points, nor do smooth coefficients, or layers that are halved along
their strong axes only.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ....backends import Array, Backend
from ....sparse.operators.couplings import (
    Couplings,
    Shift,
    Stacked,
    accumulate,
    opposite,
    settled,
    shifted_array,
    sum_of_terms,
)
from ....sparse.operators.halo import Axes

Weights = Mapping[Shift, Mapping[Shift, Array]]  # W[p][c], each `(systems or 1, *coarse grid)`
_WEAK, _ISOLATED = 0.01, 0.001  # of the diagonal: the sum of the couplings, and that of their sizes
_MOST_WEAK = {True: 6e-4, False: 0.003}  # of all points between two coarse ones, on the finest grid and on others
_MOST_ISOLATED = 7  # points, and weak ones on small grids: so few are left to the smoother
_DOMINATED = 0.2  # of the diagonal not due to couplings: smoothing alone solves for such a point
_NONE = 1e-3  # of the diagonal: a point whose couplings sum to less gets no weights


def coarse_grid(grid: tuple[int, ...], factors: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the coarse grid: every `factor`-th point of each axis."""
    return tuple(-(-n // f) for n, f in zip(grid, factors))


def every(bk: Backend, u: Array, start: Shift, factors: tuple[int, ...]) -> Array:
    """The points `factor X + start` of `(rows, *grid)`, with zeros where the last one is off the grid."""
    n = tuple(map(int, u.shape[1:]))
    found = u[(slice(None), *(slice(p, None, f) for p, f in zip(start, factors)))]
    missing = [(0, c - int(k)) for c, k in zip(coarse_grid(n, factors), found.shape[1:])]
    return bk.pad(found, [(0, 0), *missing]) if any(map(any, missing)) else found


def parities(factors: tuple[int, ...]) -> list[Shift]:
    """All p, sorted by the number of non-zero components."""
    return sorted(itertools.product(*(range(f) for f in factors)), key=sum)


def weights_and_weakly_coupled(A: Couplings, factors: tuple[int, ...]) -> tuple[Weights, list[Array]]:
    """Interpolation weights of real couplings with a positive diagonal, so that A P vanishes nearly at fine points.

    A point between two coarse ones along an axis uses the couplings of its row, summed over the other axes. The points
    between four coarse ones then interpolate from points whose weights are known, and so on. If a row sums to almost
    nothing, the weights sum to one. A point without couplings, as in obstacles, is no part of the coarser grid, and no
    point interpolates from it.

    Returns:
        The weights; and for a single matrix in NumPy, for each coarsened axis, `weakly_coupled` of the points between
        two coarse ones along it, `(1, *coarse grid)`.
    """
    bk, here, live = A.bk, A.here, _live(A)
    first = bk.full_like(A.diagonal, 1) if live is None else live
    found: dict[Shift, Mapping[Shift, Array]] = {here: {here: bk.materialize(every(bk, first, here, factors))}}
    weak_points: list[Array] = []
    for p in parities(factors)[1:]:
        looks = sum(p) == 1 and bk.on_host and A.systems is None
        along, normaliser = _collapsed(A, p, factors, live, weak_points if looks else None)
        parts: dict[Shift, Array] = {}
        for t, coupling in along.items():
            between = tuple(k if not s else 0 for k, s in zip(p, t))  # the parity of the point at x + t
            origin = tuple(int(s > 0) for s in t)
            for c, w in found[between].items():
                at = tuple(a + b for a, b in zip(origin, c))
                accumulate(parts, at, coupling * shifted_array(bk, w, origin, A.periodic))
        found[p] = settled(bk, {c: normaliser * sums for c, sums in parts.items()})
    return found, weak_points


def without_rounding_residues(bk: Backend, diagonal: Array, W: Weights, periodic: Axes, rounding: float) -> Array:
    """The diagonal of `P^T A P`, for an A with rows of size one, changed so that rounding cannot make it indefinite.

    A closed region where A maps constants to zero leaves rounding of any sign, whose inverse is huge: a row of mere
    rounding, if it has shrunk to a point, or one small eigenvalue. The row gets the sum of the squares of its weights
    as diagonal, and the eigenvalue a shift. A point from which no other interpolates gets a one.

    Args:
        rounding: largest rounding, relative to the sum of the squares.
    """
    parts: dict[Shift, Array] = {}
    for own in W.values():
        for c, w in own.items():
            accumulate(parts, c, bk.real(w) ** 2)
    squares = sum_of_terms([shifted_array(bk, each, opposite(c), periodic) for c, each in parts.items()])
    dtype, limit = bk.dtype(diagonal), rounding * squares
    other = bk.astype(bk.where(squares > 0, squares, bk.full_like(squares, 1)), dtype)
    return bk.where(bk.abs(diagonal) <= limit, other, diagonal + bk.astype(limit, dtype))


def _live(A: Couplings) -> Array | None:
    """1 at points with a coupling, 0 at isolated ones; None where all are known to have one."""
    bk = A.bk
    one = bk.full_like(A.diagonal, 1)
    others = [bk.abs(a) for s, a in A.values.items() if s != A.here]
    sizes = sum_of_terms(others) if others else bk.zeros_like(one)
    if bk.on_host and np.all(sizes > 0):
        return None
    return bk.materialize(bk.where(sizes > 0, one, bk.zeros_like(one)))


def _rows(A: Couplings, p: Shift, factors: tuple[int, ...]) -> Mapping[Shift, Array]:
    """Stencil coefficients of the points `factor X + p`."""
    bk, values = A.bk, A.values
    if not isinstance(values, Stacked):
        return {s: every(bk, a, p, factors) for s, a in values.items()}
    count, systems, *grid = map(int, values.array.shape)
    taken = every(bk, bk.reshape(values.array, (count * systems, *grid)), p, factors)
    rows = bk.materialize(bk.reshape(taken, (count, systems, *coarse_grid(A.grid, factors))))
    return Stacked(list(values), rows)


def _collapsed(
    A: Couplings, p: Shift, factors: tuple[int, ...], live: Array | None, weak_points: list[Array] | None
) -> tuple[dict[Shift, Array], Array]:
    """Couplings of the points p, collapsed over the axes where p is 0, and the factor that normalises them.

    Args:
        weak_points: list to which `weakly_coupled` of p is appended, if given.
    """
    bk, rows = A.bk, _rows(A, p, factors)
    sums: dict[Shift, list[Array]] = {}
    for s, a in rows.items():
        t = tuple(k if q else 0 for k, q in zip(s, p))
        if any(t):
            sums.setdefault(t, []).append(a)
    along = {t: -sum_of_terms(terms) for t, terms in sums.items()}
    if live is not None:
        along = {t: coupling * _at_neighbour(A, live, p, t, factors) for t, coupling in along.items()}
    excess, diagonal = sum_of_terms(list(rows.values())), rows[A.here]
    zero = bk.zeros_like(diagonal)
    one = bk.full_like(diagonal, 1)
    safe = bk.where(diagonal > 0, diagonal, one)
    strength = sum_of_terms(list(along.values()))
    # The excess counts only if it is not small relative to the weakest side; otherwise it may be mere rounding.
    counts = diagonal > (1 + _weakest(bk, along, p) / safe) * (diagonal - excess)
    divisor = strength + bk.where(counts, excess, zero)
    good = (bk.abs(strength) > _NONE * safe) & (bk.abs(divisor) > _NONE * safe)
    if weak_points is not None:
        weak_points.append(
            weakly_coupled(diagonal, excess, strength, [term for terms in sums.values() for term in terms])
        )
    return along, bk.materialize(bk.where(good, 1 / bk.where(good, divisor, one), zero))


def _at_neighbour(A: Couplings, a: Array, p: Shift, t: Shift, factors: tuple[int, ...]) -> Array:
    """`a` at the points `factor X + p + t`, one of which is between coarse points along fewer axes."""
    between = tuple(k if not s else 0 for k, s in zip(p, t))
    return shifted_array(A.bk, every(A.bk, a, between, factors), tuple(int(s > 0) for s in t), A.periodic)


def _weakest(bk: Backend, along: dict[Shift, Array], p: Shift) -> Array:
    """Weakest coupling to a side along an axis of p."""
    found = None
    for axis in (axis for axis, q in enumerate(p) if q):
        for side in (-1, 1):
            terms = [a for t, a in along.items() if t[axis] == side]
            if terms:
                size = bk.abs(sum_of_terms(terms))
                found = size if found is None else bk.where(size < found, size, found)
    return found


def weakly_coupled(
    diagonal: np.ndarray, excess: np.ndarray, strength: np.ndarray, terms: list[np.ndarray]
) -> np.ndarray:
    """0 for points that are coupled to a coarser grid, 1 for weakly coupled, 2 for isolated ones; int8.

    Args:
        diagonal: diagonal of points between two coarse ones along an axis.
        excess: sums of their rows.
        strength: sums of their couplings along the axis, positive if their sign is opposite to that of the diagonal.
        terms: these couplings, one by one.
    """
    weak = (strength < _WEAK * diagonal) & (excess <= _DOMINATED * diagonal) & (diagonal > 0)
    found = weak.astype(np.int8)
    if weak.any():
        sizes = np.sum([np.abs(a[weak]) for a in terms], axis=0)
        found[weak] += sizes < _ISOLATED * diagonal[weak]
    return found


class WeaklyCoupled(NamedTuple):
    """Counts from one grid to the next, over all halved axes.

    Attributes:
        points: points between two coarse ones.
        weak: those whose couplings to these sum to less than 0.01 of the diagonal.
        isolated: those whose absolute couplings sum to less than 0.001 of it.
    """

    points: int = 0
    weak: int = 0
    isolated: int = 0

    @classmethod
    def of(cls, points: Sequence[np.ndarray], rows: slice) -> WeaklyCoupled:
        """Count `weakly_coupled` along each axis, in some rows of the coarser grid."""
        found = [each[:, rows] for each in points]
        return cls(
            sum(each.size for each in found),
            sum(int(np.count_nonzero(each)) for each in found),
            sum(int(np.count_nonzero(each == 2)) for each in found),
        )

    def plus(self, other: WeaklyCoupled) -> WeaklyCoupled:
        return WeaklyCoupled(*(a + b for a, b in zip(self, other)))

    def too_many(self, finest: bool, points: int) -> bool:
        """Are they too many for multigrid on grids?

        Args:
            finest: is this the finest grid?
            points: number of points of the whole grid, also of those not yet examined.
        """
        return self.isolated > _MOST_ISOLATED or self.weak > max(_MOST_WEAK[finest] * points, _MOST_ISOLATED)

    def __str__(self) -> str:
        return f"{self.weak} of {self.points} points that were examined"
