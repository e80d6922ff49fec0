"""Operator-dependent interpolation (black box multigrid): weights, the operator, and points that a coarser grid misses.

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
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from ....backends import Array, Backend
from ....backends.host_math import cores
from ....sparse import Composed, storable
from ....sparse.operators.couplings import (
    Couplings,
    Shift,
    Stacked,
    accumulate,
    are_flat,
    opposite,
    settled,
    shifted_array,
    shifted_arrays,
    sum_of_terms,
)
from ....sparse.operators.halo import Axes, added_halo, are_cut

Weights = Mapping[Shift, Mapping[Shift, Array]]  # W[p][c], each `(systems or 1, *coarse grid)`
_PART, _LEAST = 32768, 4  # points of the coarser grid in a block of NumPy, and its fewest rows
_SHARED = 4  # times as many points, with several threads
_WEAK, _ISOLATED = 0.01, 0.001  # of the diagonal: the sum of the couplings, and that of their sizes
_MOST_WEAK = {True: 6e-4, False: 0.003}  # of all points between two coarse ones, on the finest grid and on others
_MOST_ISOLATED = 7  # points, and weak ones on small grids: so few are left to the smoother
_DOMINATED = 0.2  # of the diagonal not due to couplings: smoothing alone solves for such a point
_NONE = 1e-3  # of the diagonal: a point whose couplings sum to less gets no weights


def coarse_grid(grid: tuple[int, ...], factors: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the coarse grid: every `factor`-th point of each axis."""
    return tuple(-(-n // f) for n, f in zip(grid, factors))


def subgrid(bk: Backend, u: Array, start: Shift, factors: tuple[int, ...]) -> Array:
    """The points `factor X + start` of `(rows, *grid)`, with zeros where the last one is off the grid."""
    n = tuple(map(int, u.shape[1:]))
    points = u[(slice(None), *(slice(p, None, f) for p, f in zip(start, factors)))]
    missing = [(0, c - int(k)) for c, k in zip(coarse_grid(n, factors), points.shape[1:])]
    return bk.pad(points, [(0, 0), *missing]) if any(map(any, missing)) else points


def parities(factors: tuple[int, ...]) -> list[Shift]:
    """All p, sorted by the number of non-zero components."""
    return sorted(_box(factors), key=sum)


def _box(lengths: tuple[int, ...]) -> list[Shift]:
    return [*itertools.product(*map(range, lengths))]


def interpolation_places(factors: tuple[int, ...]) -> list[tuple[Shift, Shift]]:
    """All (p, c) for which a fine point `factor X + p` interpolates from the coarse point X + c."""
    return [(p, c) for p in _box(factors) for c in _box(tuple(k + 1 for k in p))]


# --- weights ---


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
    injection = bk.full_like(A.diagonal, 1) if live is None else live
    W: dict[Shift, Mapping[Shift, Array]] = {here: {here: bk.materialize(subgrid(bk, injection, here, factors))}}
    weak_points: list[Array] = []
    for p in parities(factors)[1:]:
        examined = sum(p) == 1 and bk.on_host and A.systems is None
        along, normaliser = _collapsed(A, p, factors, live, weak_points if examined else None)
        parts: dict[Shift, Array] = {}
        for t, coupling in along.items():
            parity, origin = _neighbour(p, t)
            for c, w in W[parity].items():
                at = tuple(a + b for a, b in zip(origin, c))
                accumulate(parts, at, coupling * shifted_array(bk, w, origin, A.periodic))
        W[p] = settled(bk, {c: normaliser * sums for c, sums in parts.items()})
    return W, weak_points


def _neighbour(p: Shift, t: Shift) -> tuple[Shift, Shift]:
    """q and o with `p + t = factor o + q`, for a step t of -1 or 1 along axes of p only."""
    return tuple(k if not s else 0 for k, s in zip(p, t)), tuple(int(s > 0) for s in t)


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
        return {s: subgrid(bk, a, p, factors) for s, a in values.items()}
    count, systems, *grid = map(int, values.array.shape)
    rows = subgrid(bk, bk.reshape(values.array, (count * systems, *grid)), p, factors)
    return Stacked(list(values), bk.materialize(bk.reshape(rows, (count, systems, *coarse_grid(A.grid, factors)))))


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
        for t in along:
            parity, origin = _neighbour(p, t)
            along[t] = along[t] * shifted_array(bk, subgrid(bk, live, parity, factors), origin, A.periodic)
    excess, diagonal = sum_of_terms(list(rows.values())), rows[A.here]
    zero = bk.zeros_like(diagonal)
    one = bk.full_like(diagonal, 1)
    safe = bk.where(diagonal > 0, diagonal, one)
    strength = sum_of_terms(list(along.values()))
    sides = [
        bk.abs(sum_of_terms(terms))
        for axis in (axis for axis, q in enumerate(p) if q)
        for side in (-1, 1)
        if (terms := [a for t, a in along.items() if t[axis] == side])
    ]
    weakest = reduce(lambda least, size: bk.where(size < least, size, least), sides)
    # The excess counts only if it is not small relative to the weakest side; otherwise it may be mere rounding.
    counts = diagonal > (1 + weakest / safe) * (diagonal - excess)
    divisor = strength + bk.where(counts, excess, zero)
    good = (bk.abs(strength) > _NONE * safe) & (bk.abs(divisor) > _NONE * safe)
    if weak_points is not None:
        weak_points.append(
            weakly_coupled(diagonal, excess, strength, [term for terms in sums.values() for term in terms])
        )
    return along, bk.materialize(bk.where(good, 1 / bk.where(good, divisor, one), zero))


def without_rounding_residues(bk: Backend, diagonal: Array, W: Weights, periodic: Axes, rounding: float) -> Array:
    """The diagonal of `P^T A P`, for an A with rows of size one, changed so that rounding cannot make it indefinite.

    A closed region where A maps constants to zero leaves rounding of any sign, whose inverse is huge: a row of mere
    rounding, if it has shrunk to a point, or one small eigenvalue. The row gets the sum of the squares of its weights
    as diagonal, and the eigenvalue a shift. A point from which no other interpolates gets a one.

    Args:
        rounding: largest rounding, relative to the sum of the squares.
    """
    parts: dict[Shift, Array] = {}
    for weights in W.values():
        for c, w in weights.items():
            accumulate(parts, c, bk.real(w) ** 2)
    squares = sum_of_terms([shifted_array(bk, each, opposite(c), periodic) for c, each in parts.items()])
    dtype, limit = bk.dtype(diagonal), rounding * squares
    other = bk.astype(bk.where(squares > 0, squares, bk.full_like(squares, 1)), dtype)
    return bk.where(bk.abs(diagonal) <= limit, other, diagonal + bk.astype(limit, dtype))


# --- weakly coupled points ---


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
    kinds = weak.astype(np.int8)
    if weak.any():
        sizes = np.sum([np.abs(a[weak]) for a in terms], axis=0)
        kinds[weak] += sizes < _ISOLATED * diagonal[weak]
    return kinds


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
        kinds = [each[:, rows] for each in points]
        return cls(
            sum(each.size for each in kinds),
            sum(int(np.count_nonzero(each)) for each in kinds),
            sum(int(np.count_nonzero(each == 2)) for each in kinds),
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


# --- operator ---


def stacked_weights(bk: Backend, W: Weights, factors: tuple[int, ...]) -> Array:
    """Weights by p and c as one array `(places, systems or 1, *coarse grid)`, zero where there is none."""
    here = (0,) * len(factors)
    zero = bk.zeros_like(W[here][here])
    return bk.stack_materialized([W[p].get(c, zero) for p, c in interpolation_places(factors)])


@storable("interpolation on a grid")
@dataclass(eq=False, repr=False)
class Interpolation(Composed):
    """Interpolation from a coarser grid, or its transpose, the restriction.

    Attributes:
        weights: `(places, systems or 1, *coarse grid)`, in the order of `interpolation_places`; zero where one of
            the two points is off the grid.
        grid: the finer grid.
        factors: coarsening factor of each axis.
        periodic: which axes are rings, or how they are cut: then the grids are blocks, inside of `map_parts`.
        batch: is there one matrix for each system?
        transposed: from the finer to the coarser grid?
    """

    parts = cut = ("weights",)
    is_container = materializes_input = True

    bk: Backend
    weights: Array
    grid: tuple[int, ...]
    factors: tuple[int, ...]
    periodic: Axes
    batch: bool = False
    transposed: bool = False

    def __post_init__(self) -> None:
        shape, _ = self._form("weights")
        axes = {len(self.grid), len(self.factors), len(self.periodic), len(shape) - 2}
        if len(axes) > 1 or min(self.grid, default=1) < 1 or set(self.factors) - {1, 2}:
            raise ValueError(f"An interpolation on the grid {self.grid} by the factors {self.factors} does not fit.")
        expected = (len(interpolation_places(self.factors)), *self.coarse)
        stored = shape[:1] + shape[2:]
        if stored != expected or (shape[1] != 1 and not self.batch):
            raise ValueError(f"The weights of an interpolation have the shape {stored}; expected {expected}.")
        super().__post_init__()

    @property
    def coarse(self) -> tuple[int, ...]:
        return coarse_grid(self.grid, self.factors)

    @property
    def by_place(self) -> Weights:
        """Weights by p and c."""
        W: dict[Shift, dict[Shift, Array]] = {}
        for k, (p, c) in enumerate(interpolation_places(self.factors)):
            W.setdefault(p, {})[c] = self.weights[k]
        return W

    def scaled(self, scale: Array) -> Interpolation:
        """Interpolation of the coarser unknowns divided by `scale`, `(systems or 1, *coarse grid)`."""
        bk, weights, near = self.bk, self.weights, _box(self.factors)
        scale = bk.astype(scale, bk.dtype(weights))
        scales = bk.stack([shifted_array(bk, scale, c, self.periodic) for c in near])
        at = np.array([near.index(c) for _, c in interpolation_places(self.factors)], np.int32)
        return replace(self, weights=bk.materialize(weights * bk.take_in_bounds(scales, at, 0)))

    def _settle(self) -> None:
        sizes = math.prod(self.grid), math.prod(self.coarse)
        self.shape = (sizes[1], sizes[0]) if self.transposed else sizes
        (_, systems, *_), self.dtype = self._form("weights")
        self.systems = systems if self.batch else None

    def transpose(self) -> Interpolation:
        return replace(self, transposed=not self.transposed)

    def apply(self, x: Array) -> Array:
        bk, weights, count = self.bk, self.array("weights"), int(x.shape[0])
        W = {place: weights[k] for k, place in enumerate(interpolation_places(self.factors))}
        u = bk.reshape(x, (count, *(self.grid if self.transposed else self.coarse)))
        if bk.on_host:
            image = self._in_blocks(W, u)
        else:
            image = self._restricted(W, u) if self.transposed else self._interpolated(W, u)
        return bk.reshape(image, (count, self.shape[0]))

    def _in_blocks(self, W: dict[tuple[Shift, Shift], np.ndarray], u: np.ndarray) -> np.ndarray:
        """Apply by blocks of coarse rows, which stay in the cache; all rows of a periodic axis are one block."""
        factor, dtype = self.factors[0], np.result_type(u, self.dtype)
        image = np.empty((len(u), *(self.coarse if self.transposed else self.grid)), dtype)

        def restrict(start: int, end: int) -> None:
            halo = max(start - 1, 0)
            rows = {place: w[:, halo:end] for place, w in W.items()}
            image[:, start:end] = self._restricted(rows, u[:, factor * halo : factor * end])[:, start - halo :]

        def interpolate(start: int, end: int) -> None:
            near = self._near(u[:, start : end + 1])
            near = {c: a[:, : end - start] for c, a in near.items()}
            rows = {place: w[:, start:end] for place, w in W.items()}
            fine = image[:, start * factor : end * factor]
            for p in _box(self.factors):
                to: Any = fine[(slice(None), *(slice(k, None, f) for k, f in zip(p, self.factors)))]
                to[:] = _from_near(rows, near, p)[(slice(None), *map(slice, to.shape[1:]))]

        size = _PART if cores.count == 1 else _SHARED * _PART
        rows = self.coarse[0] if self.periodic[0] else max(size // math.prod(self.coarse[1:]), _LEAST)
        cores.in_blocks(restrict if self.transposed else interpolate, self.coarse[0], rows)
        return image

    def _near(self, u: Array) -> dict[Shift, Array]:
        """`u[X + c]` by c."""
        return shifted_arrays(self.bk, u, _box(self.factors), self.periodic)

    def _interpolated(self, W: dict[tuple[Shift, Shift], Array], u: Array) -> Array:
        bk, axes, near = self.bk, len(self.grid), self._near(u)
        parts = [_from_near(W, near, p) for p in _box(self.factors)]
        split = bk.reshape(bk.stack(parts), (*self.factors, *map(int, u.shape)))
        order = [axes, *(k for axis in range(axes) for k in (axes + 1 + axis, axis))]
        whole = (int(u.shape[0]), *(n * f for n, f in zip(self.coarse, self.factors)))
        return bk.reshape(bk.permute_dims(split, order), whole)[(slice(None), *map(slice, self.grid))]

    def _restricted(self, W: dict[tuple[Shift, Shift], Array], u: Array) -> Array:
        bk, count = self.bk, int(u.shape[0])
        rows = {p: subgrid(bk, u, p, self.factors) for p in _box(self.factors)}
        if bk.on_host:  # each is read up to four times
            rows = {p: np.ascontiguousarray(a) for p, a in rows.items()}
        sums = {c: sum_of_terms([W[p, c] * rows[p] for p in rows if (p, c) in W]) for c in _box(self.factors)}
        if are_cut(self.periodic):  # One message for each cut axis.
            upper = [f - 1 for f in self.factors]
            if any(upper):
                sums = {c: bk.pad(a, [(0, 0), *((k, n - k) for k, n in zip(c, upper))]) for c, a in sums.items()}
            return added_halo(bk, sum_of_terms([*sums.values()]), upper, self.periodic)
        if not are_flat(bk, self.periodic):
            return sum_of_terms([shifted_array(bk, a, opposite(c), self.periodic) for c, a in sums.items()])
        moved = shifted_arrays(bk, bk.concat([*sums.values()], 0), map(opposite, sums), self.periodic)
        return sum_of_terms([moved[opposite(c)][k * count : (k + 1) * count] for k, c in enumerate(sums)])


def _from_near(W: dict[tuple[Shift, Shift], Array], near: dict[Shift, Array], p: Shift) -> Array:
    """Interpolated values at the points `factor X + p`."""
    return sum_of_terms([W[p, c] * near[c] for c in _box(tuple(k + 1 for k in p))])
