"""Levels of structured multigrid, scaled to unit absolute row sums: grids, Galerkin products, set-up in blocks.

Galerkin products are computed by shifts of whole arrays, or in compiled programs by probing: products with vectors of
ones in every third point, of the whole grid if it is cut. There a loop over a few vectors compiles in half a second,
and the hundred products of arrays in ten.

On the host large levels are set up in blocks of rows of the grid, which stay in the cache: 0.85 of the time for a grid
of 1000 x 1000 points. The values at a point of the coarser grid depend only on nearby points. A block therefore has
halo rows on each side, and its values are the same to the last digit as without blocks. Threads would not help, because
each of some hundred short operations waits for the interpreter.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ....backends import Array, Backend
from ....sparse import Operator
from ....sparse.formats.entries.some_rows import evenly_spread
from ....sparse.operators.couplings import (
    Couplings,
    Shift,
    Stacked,
    accumulate,
    neighbours,
    opposite,
    shifted_array,
    sum_of_terms,
)
from ....sparse.operators.halo import are_cut, length_and_ring, own_part
from ...factors.planes import numbers_of_blocks, scanned
from .couplings import MatrixOnGrid
from .transfer import Interpolation, interpolation_places, stacked_weights
from .weights import (
    WeaklyCoupled,
    Weights,
    coarse_grid,
    every,
    parities,
    weights_and_weakly_coupled,
    without_rounding_residues,
)

WEAK = 0.25  # of the strongest axis: an axis with weaker couplings is not coarsened yet
LEAST_RING = 6  # points of a periodic axis that can be halved: there must be three at least
LEAST = 3  # points of an axis that can be halved: one coarse point between two fine ones
_SAMPLE = 50_000  # points at which the strength of couplings is measured
_MOST_NUMBERS = 4 * 10**7  # of the inverse on the coarsest grid
_AROUND = 2  # rows of the coarser grid on either side that values of a level may depend on
_ROWS_OF_A_BLOCK = 32  # of the coarser grid: larger blocks leave the cache, and smaller ones compute more values twice
_LEAST_IN_BLOCKS = 2**15  # points of a grid from which blocks pay


class GridLevel(NamedTuple):
    """A level: its matrix, and the prolongation from the next coarser grid (None on the coarsest).

    Attributes:
        A: scaled on both sides; the coarsest one of several is not.
        P: the interpolation from the next coarser grid's own variables to the scaled ones; None on the coarsest one.
        scale: diagonal scaling of A on both sides, `(systems or 1, *grid)`, if any.
    """

    A: Couplings
    scale: Array | None
    P: Interpolation | None


class GridLevels(NamedTuple):
    """Levels, finest first, and the weakly coupled points of each grid.

    Attributes:
        levels: the last one is solved exactly; with a `rest` all have an interpolation, and there may be none.
        weak_points: of each grid that was examined.
        rest: the matrix on the next grid, if no coarser grid suits it, so that coarse points have to be chosen by its
            couplings; else None.
    """

    levels: list[GridLevel]
    weak_points: tuple[WeaklyCoupled, ...]
    rest: Couplings | None


def levels_of(
    A: Couplings,
    direct: Coarsest,
    hermitian: bool,
    directional: bool,
    rounding: float,
    dtype: np.dtype,
    may_stop: bool = False,
) -> GridLevels:
    """Levels until the grid is small enough, no axis can be coarsened, or a coarser grid has too many weak points.

    Args:
        A: with a diagonal that is positive where it is not zero.
        rounding: relative size of rounding, see `without_rounding_residues`.
        dtype: dtype in which matrices and interpolations but the coarsest are used; they may have that of A.
        may_stop: may a `rest` be left if too many points of a single matrix in NumPy are weakly coupled?

    Raises:
        ValueError: the coarsest grid is too large.
    """
    bk, levels, weak_points = A.bk, list[GridLevel](), list[WeaklyCoupled]()
    while math.prod(A.grid) > direct.most:
        small = math.prod(A.grid) <= direct.fine
        factors = coarsening_factors(A, directional)
        if factors is None or max(factors) == 1:
            break
        make = partial(made, factors=factors, hermitian=hermitian, rounding=rounding)
        stops = _limit(A, factors, not levels) if may_stop or small else _never
        level, own = blockwise_setup(make, A, factors, dtype, stops) if bk.on_host else (make(A), WeaklyCoupled())
        weak_points.append(own)
        if level is None and small:
            break
        if level is None:
            return GridLevels(levels, tuple(weak_points), A)
        levels.append(GridLevel(level.own, level.scale, _interpolation(A, level.weights, factors)))
        A = level.coarse
    check_coarsest(A.grid, A.periodic)
    if levels:
        return GridLevels([*levels, GridLevel(A, None, None)], tuple(weak_points), None)
    scale = _scale(A)
    return GridLevels([GridLevel(diagonally_scaled(A, scale), scale, None)], tuple(weak_points), None)


def _limit(A: Couplings, factors: tuple[int, ...], finest: bool) -> Callable[[WeaklyCoupled], bool]:
    """Are too many points of the grid of A weakly coupled to the next one?"""
    points = sum(f > 1 for f in factors) * math.prod(coarse_grid(A.grid, factors))
    return lambda weak_points: weak_points.too_many(finest, points)


def _never(weak_points: WeaklyCoupled) -> bool:
    return False


def made(A: Couplings, factors: tuple[int, ...], hermitian: bool, rounding: float) -> LevelArrays:
    """Set up one level: scaling, weights and Galerkin product."""
    bk, scale = A.bk, _scale(A)
    own = diagonally_scaled(A, scale)
    symmetric_part = (A if hermitian else A.symmetrised()).map(bk.real)
    found, weak_points = weights_and_weakly_coupled(symmetric_part, factors)
    stacked = bk.astype(stacked_weights(bk, found, factors), bk.dtype(A.diagonal))
    P = _interpolation(A, _divided(bk, stacked, scale, factors), factors)
    if bk.is_eager:
        coarse = coarse_couplings(own, P.by_place, factors, hermitian, rounding)
    else:
        coarse = probed_couplings(MatrixOnGrid.of(own), P, rounding)
    return LevelArrays(scale, own, P.weights, coarse, weak_points)


def _interpolation(A: Couplings, W: Array, factors: tuple[int, ...]) -> Interpolation:
    return Interpolation(A.bk, W, A.grid, factors, A.periodic, A.systems is not None)


def diagonally_scaled(A: Couplings, scale: Array) -> Couplings:
    """Scale by a diagonal on both sides, in the same order for both entries of a pair: symmetry stays exact."""
    values, scale = {}, A.bk.astype(scale, A.bk.dtype(A.diagonal))
    for s, a in A.values.items():
        here, there = scale, A.moved(scale, s)
        values[s] = here * a * there if s >= A.here else there * a * here
    return A.with_values(values)


def _scale(A: Couplings) -> Array:
    """`1 / sqrt` of the absolute row sums (l1-Jacobi), so that no eigenvalue exceeds one; 1 for zero rows.

    Source: Baker, Falgout, Kolev and Yang, Multigrid smoothers for ultraparallel computing, SIAM J. Sci. Comput. 33
    (2011), for smoothing with these sums.
    """
    bk, sums = A.bk, A.sum_of_sizes()
    one = bk.full_like(sums, 1)
    return bk.materialize(bk.where(sums > 0, 1 / bk.sqrt(bk.where(sums > 0, sums, one)), one))


def _divided(bk: Backend, weights: Array, scale: Array, factors: tuple[int, ...]) -> Array:
    """Weights for the scaled variables `u / scale` of the finer grid."""
    points = parities(factors)
    rows = bk.stack([every(bk, 1 / scale, p, factors) for p in points])
    at = np.array([points.index(p) for p, _ in interpolation_places(factors)], np.int32)
    return bk.materialize(weights * bk.take_in_bounds(bk.astype(rows, bk.dtype(weights)), at, 0))


class Coarsest(NamedTuple):
    """Size of the coarsest grid.

    Attributes:
        most: points at most.
        fine: points up to which a grid is solved exactly if a coarser one would lose too much, see `WeaklyCoupled`.
    """

    most: int
    fine: int


def coarsest(grid: tuple[int, ...]) -> Coarsest:
    """Default size of the coarsest grid."""
    axes = sum(n > 1 for n in grid)
    most = {0: 64, 1: 64, 2: 64**2}.get(axes, 16**3)
    return Coarsest(most, 128**2 if axes == 2 else most)


def coarsening_factors(A: Couplings, directional: bool) -> tuple[int, ...] | None:
    """2 for each axis that is to be halved; None where no axis can be.

    Args:
        directional: do not halve axes along which couplings are weak; needs known values.
    """
    coupled = [any(s[axis] for s in A.values) for axis in range(len(A.grid))]
    possible = [
        along and (n >= LEAST_RING and n % 2 == 0 if ring else n >= LEAST)
        for n, ring, along in zip(A.grid, A.periodic, coupled)
    ]
    if not any(possible):
        return None
    if directional:
        strengths = [s if can else 0.0 for s, can in zip(strengths_of(A), possible)]
        strong = [can and s >= WEAK * max(strengths) for s, can in zip(strengths, possible)]
        return tuple(2 if s else 1 for s in strong)
    return tuple(2 if can else 1 for can in possible)


def strengths_of(A: Couplings) -> list[float]:
    """Strength of the couplings along each axis: the median over a sample of points."""
    along_axis = int(_SAMPLE ** (1 / max(sum(n > 1 for n in A.grid), 1)))
    # Evenly spread, because coefficients may be periodic layers.
    some = (0, *np.ix_(*(evenly_spread(n, along_axis) for n in A.grid)))
    sizes = {s: np.abs(a[some]) for s, a in A.values.items()}
    own = sizes[A.here]
    live = own > 0
    if not live.any():
        return [0.0] * len(A.grid)
    along = [sum((size for s, size in sizes.items() if s[axis]), np.zeros_like(own)) for axis in range(len(A.grid))]
    return [float(np.median(total[live] / own[live])) for total in along]


def check_coarsest(grid: tuple[int, ...], periodic: tuple[bool, ...]) -> None:
    """Refuse a coarsest grid too large for an exact solve."""
    numbers = numbers_of_blocks(grid, periodic)
    if numbers > _MOST_NUMBERS:
        raise ValueError(
            f"The coarsest grid is {grid}, and its inverse would have {numbers} numbers; expected at most "
            f"{_MOST_NUMBERS}. A ring is halved while its length is even: choose powers of 2, or use 'amg'."
        )


def coarse_couplings(
    A: Couplings, W: Weights, factors: tuple[int, ...], hermitian: bool, rounding: float = 0.0
) -> Couplings:
    """Galerkin product for the interpolation with real weights W; the diagonal is that of `without_rounding_residues`.

    Cost: products of arrays of the coarse grid: in two dimensions 130 for nine-point stencils and half as many for
    five-point ones, in three 1100 for 27 points; for a Hermitian matrix half of the second part is mirrored.
    """
    bk, grid = A.bk, coarse_grid(A.grid, factors)
    images = {p: _images(A, W, p, factors) for p in parities(factors)}
    found: dict[Shift, Array] = {}
    for S in couplings_of_coarse(grid):
        if hermitian and A.here > S:
            continue
        parts: dict[Shift, Array] = {}
        for p, own in W.items():
            for c, w in own.items():
                image = images[p].get(tuple(a + b for a, b in zip(S, c)))
                if image is not None:
                    accumulate(parts, c, w * image)
        terms = [shifted_array(bk, each, opposite(c), A.periodic) for c, each in parts.items()]
        found[S] = bk.materialize(sum_of_terms(terms)) if terms else bk.zeros_like(W[A.here][A.here])
    if hermitian:
        for S in [S for S in found if A.here != S]:
            found[opposite(S)] = bk.conj(shifted_array(bk, found[S], opposite(S), A.periodic))
    found[A.here] = bk.materialize(without_rounding_residues(bk, found[A.here], W, A.periodic, rounding))
    return replace(A, grid=grid, values=found)


def couplings_of_coarse(grid: tuple[int, ...]) -> tuple[Shift, ...]:
    """Offsets on a coarse grid, for any offsets of the finer one."""
    return tuple(s for s in neighbours(len(grid)) if all(n > 1 or not k for n, k in zip(grid, s)))


def _images(A: Couplings, W: Weights, p: Shift, factors: tuple[int, ...]) -> dict[Shift, Array]:
    """Row `factor X + p` of A P: its coefficients of the coarse points X + k, by k."""
    sums: dict[Shift, Array] = {}
    for s, a in A.values.items():
        rows = every(A.bk, a, p, factors)
        parity = tuple((x + y) % f for x, y, f in zip(p, s, factors))
        origin = tuple((x + y) // f for x, y, f in zip(p, s, factors))
        for c, w in W[parity].items():
            at = tuple(x + y for x, y in zip(origin, c))
            accumulate(sums, at, rows * shifted_array(A.bk, w, origin, A.periodic))
    return {at: A.bk.materialize(image) for at, image in sums.items()}


def probed_couplings(A: Operator, P: Interpolation, rounding: float = 0.0) -> Couplings:
    """Stencil coefficients of `P^T A P`, by probing; the diagonal is that of `without_rounding_residues`.

    Cost: a product with A, P and P^T for every colour; there are 3^d on most grids.
    """
    bk, grid, rows = P.bk, P.coarse, A.systems or 1
    colours = [colours_of(*length_and_ring(n, axis)) for n, axis in zip(grid, P.periodic)]
    counts = [int(each.max()) + 1 for each in colours]
    like = P.weights
    number = bk.zeros((1,) * len(grid), np.dtype(np.int32), like)
    for axis, each in enumerate(colours):
        whole = bk.asarray(_along(each, axis, len(grid)).astype(np.int32), like=like)
        number = number * counts[axis] + own_part(bk, whole, axis, grid[axis], P.periodic[axis])
    number = bk.reshape(number, (1, math.prod(grid)))
    R, zero = P.T, bk.zeros((rows, math.prod(grid)), P.dtype, like)

    def image(colour: Any, _: Array) -> Array:
        probe = bk.where(number == colour, zero + 1, zero)
        return R.apply(bk.materialize(A.apply(bk.materialize(P.apply(probe)))))

    images = scanned(bk, image, zero, math.prod(counts))
    return _told_apart(A, P, images, colours, counts, rounding)


def colours_of(n: int, ring: bool) -> np.ndarray:
    """Colours of n points along an axis: all neighbours of a point have different ones."""
    if not ring:
        return np.arange(n) % 3
    if n < 6:
        return np.arange(n)
    fours = n % 3  # rounds of four colours, all others of three
    return np.concatenate([np.tile(np.arange(4), fours), np.tile(np.arange(3), (n - 4 * fours) // 3)])


def _told_apart(
    A: Operator, P: Interpolation, images: Array, colours: Sequence[np.ndarray], counts: Sequence[int], rounding: float
) -> Couplings:
    """Read coefficients off the images: that of x + s is the value at x of the image of the colour of x + s."""
    bk, grid, axes = P.bk, P.coarse, len(P.coarse)
    found = bk.reshape(images, (int(images.shape[0]), *counts, *grid))
    steps = [(0,) if len(each) == 1 else (-1, 0, 1) for each in colours]
    for axis, (each, cut) in enumerate(zip(colours, P.periodic)):
        n, ring = length_and_ring(grid[axis], cut)
        there = np.arange(n) + np.array(steps[axis])[:, None]
        colour = np.where(ring | ((there >= 0) & (there < n)), each[there % n], -1)
        shape = [1] * len(found.shape)
        shape[1 + axis], shape[1 + axes + axis] = colour.shape
        own = own_part(bk, colour.reshape(shape).astype(np.int32), 1 + axes + axis, grid[axis], cut)
        terms = []
        for c in range(counts[axis]):
            image = found[(*(slice(None),) * (1 + axis), slice(c, c + 1))]
            has_it = bk.asarray(own == c, like=found)
            terms.append(bk.where(has_it, image, bk.zeros_like(image)))
        found = sum_of_terms(terms)
    shifts = [*itertools.product(*steps)]
    found = bk.reshape(found, (int(images.shape[0]), len(shifts), *grid))
    found = bk.permute_dims(found, (1, 0, *range(2, 2 + axes)))
    here = np.array([not any(s) for s in shifts]).reshape(-1, *(1,) * (1 + axes))
    after = replace(P, weights=bk.ordered_after(P.weights, images)) if are_cut(P.periodic) else P
    diagonal = without_rounding_residues(bk, found[len(shifts) // 2], after.by_place, P.periodic, rounding)
    found = bk.materialize(bk.where(bk.asarray(here, like=found), diagonal[None], found))
    return Couplings(bk, grid, P.periodic, Stacked(shifts, found), A.systems)


def _along(values: np.ndarray, axis: int, axes: int) -> np.ndarray:
    return values.reshape([-1 if k == axis else 1 for k in range(axes)])


class LevelArrays(NamedTuple):
    """Arrays of a level, computed from its stencil coefficients.

    Attributes:
        scale: scaling of its unknowns, `(systems or 1, *grid)`.
        own: its scaled couplings.
        weights: weights of the interpolation, `(places, systems or 1, *coarse grid)`.
        coarse: couplings of the next coarser grid.
        weak_points: see `weights_and_weakly_coupled`.
    """

    scale: Array
    own: Couplings
    weights: Array
    coarse: Couplings
    weak_points: list[Array]


def blockwise_setup(
    make: Callable[[Couplings], LevelArrays],
    A: Couplings,
    factors: Shift,
    dtype: np.dtype,
    stops: Callable[[WeaklyCoupled], bool],
) -> tuple[LevelArrays | None, WeaklyCoupled]:
    """`make(A)` for NumPy arrays, block by block, and its weakly coupled points; coefficients and weights in `dtype`.

    Args:
        stops: tells after each block whether there are too many of these; then no arrays are returned.
    """
    grid, factor = coarse_grid(A.grid, factors), factors[0]
    if math.prod(A.grid) < _LEAST_IN_BLOCKS or grid[0] < 2 * _ROWS_OF_A_BLOCK:
        made = make(A)
        weak_points = WeaklyCoupled.of(made.weak_points, slice(None))
        if stops(weak_points):
            return None, weak_points
        return made._replace(own=made.own.astype(dtype), weights=made.weights.astype(dtype, copy=False)), weak_points
    whole, weak_points = None, WeaklyCoupled()
    for start in range(0, grid[0], _ROWS_OF_A_BLOCK):
        end = min(start + _ROWS_OF_A_BLOCK, grid[0])
        # Halo rows before and after the block: none at the ends of the grid.
        before, after = min(_AROUND, start), min(_AROUND, grid[0] - end)
        if A.periodic[0]:
            before = after = _AROUND
        part = make(_rows(A, factor * (start - before), factor * (end + after)))
        whole = whole or _Whole(A, grid, part, dtype)
        whole.put(part, slice(start, end), before, factor)
        weak_points = weak_points.plus(WeaklyCoupled.of(part.weak_points, slice(before, before + end - start)))
        if stops(weak_points):
            return None, weak_points
    return whole.made(A, grid), weak_points  # type: ignore[union-attr]


def _rows(A: Couplings, start: int, end: int) -> Couplings:
    """Coefficients of these rows of the first axis, with wrap-around if it is periodic."""
    n = A.grid[0]
    if A.periodic[0]:
        rows = np.arange(start, end) % n
        values = {s: np.take(a, rows, axis=1) for s, a in A.values.items()}
    else:
        end = min(end, n)
        values = {s: a[:, start:end] for s, a in A.values.items()}
    return replace(A, grid=(end - start, *A.grid[1:]), periodic=(False, *A.periodic[1:]), values=values)


class _Whole:
    """Arrays of the whole level, filled part by part."""

    def __init__(self, A: Couplings, grid: Shift, first: LevelArrays, dtype: np.dtype) -> None:
        systems, wide = first.scale.shape[0], first.coarse.diagonal.dtype
        self.shifts, self.coarse_shifts = first.own.shifts, first.coarse.shifts
        self.scale = np.empty((systems, *A.grid), first.scale.dtype)
        self.own = np.empty((len(self.shifts), systems, *A.grid), dtype)
        self.weights = np.empty((len(first.weights), systems, *grid), dtype)
        self.coarse = np.empty((len(self.coarse_shifts), systems, *grid), wide)

    def put(self, part: LevelArrays, rows: slice, before: int, factor: int) -> None:
        """Copy a part without its halo rows."""
        kept = slice(before, before + rows.stop - rows.start)
        own = slice(factor * rows.start, min(factor * rows.stop, self.scale.shape[1]))
        kept_own = slice(factor * before, factor * before + own.stop - own.start)
        self.scale[:, own] = part.scale[:, kept_own]
        for k, shift in enumerate(self.shifts):
            self.own[k, :, own] = part.own.values[shift][:, kept_own]
        self.weights[:, :, rows] = part.weights[:, :, kept]
        for k, shift in enumerate(self.coarse_shifts):
            self.coarse[k, :, rows] = part.coarse.values[shift][:, kept]

    def made(self, A: Couplings, grid: Shift) -> LevelArrays:
        own = replace(A, values=Stacked(self.shifts, self.own))
        coarse = replace(A, grid=grid, values=Stacked(self.coarse_shifts, self.coarse))
        return LevelArrays(self.scale, own, self.weights, coarse, [])
