"""Levels of structured multigrid, scaled to unit absolute row sums: grids, Galerkin products, set-up in blocks.

Galerkin products are computed by shifts of whole arrays, or in compiled programs by probing: products with vectors of
ones in every third point, of the whole grid if it is cut. There a loop over a few vectors compiles in half a second,
and the hundred products of arrays in ten.

On the host large levels are set up in blocks of rows of the grid, which stay in the cache: 0.8 of the time for a grid
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

from ....backends import Array
from ....sparse import Operator
from ....sparse.formats.entries.integers import evenly_spread
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
from .coarsest import unit_scale
from .couplings import MatrixOnGrid
from .interpolation import (
    Interpolation,
    WeaklyCoupled,
    Weights,
    coarse_grid,
    interpolation_places,
    parities,
    stacked_weights,
    subgrid,
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
_LEAST_IN_BLOCKS = 2**18  # points of a grid from which blocks pay: 0.9 of the time at 700^2, 1.2 at 400^2


class GridLevel(NamedTuple):
    """A level: its matrix, and the prolongation from the next coarser grid (None on the coarsest).

    Attributes:
        A: scaled on both sides; the coarsest one of several is not.
        scale: diagonal scaling of A on both sides, `(systems or 1, *grid)`, if any.
        P: the interpolation from the next coarser grid's own variables to the scaled ones; None on the coarsest one.
    """

    A: Couplings
    scale: Array | None
    P: Interpolation | None


class GridLevels(NamedTuple):
    """Levels, finest first, and the weakly coupled points of the last grid that was examined.

    Attributes:
        levels: the last one is solved exactly; with a `rest` all have an interpolation, and there may be none.
        rest: the matrix on the next grid, if no coarser grid suits it, so that coarse points have to be chosen by its
            couplings; else None.
    """

    levels: list[GridLevel]
    rest: Couplings | None
    weak_points: WeaklyCoupled


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
        rounding: see `without_rounding_residues`.
        dtype: dtype in which matrices and interpolations but the coarsest are used; they may have that of A.
        may_stop: may a `rest` be left if too many points of a single matrix in NumPy are weakly coupled?
    """
    levels, weak_points = list[GridLevel](), WeaklyCoupled()
    while math.prod(A.grid) > direct.most:
        small = math.prod(A.grid) <= direct.fine
        factors = coarsening_factors(A, directional)
        if factors is None or max(factors) == 1:
            break
        make = partial(made_level, factors=factors, hermitian=hermitian, rounding=rounding)
        if A.bk.on_host:
            points = sum(f > 1 for f in factors) * math.prod(coarse_grid(A.grid, factors))
            too_many = partial(WeaklyCoupled.too_many, finest=not levels, points=points)
            pair, weak_points = blockwise_setup(make, A, factors, dtype, too_many if may_stop or small else None)
            if pair is None and small:
                break
            if pair is None:
                return GridLevels(levels, A, weak_points)
            level, A = pair
        else:
            level, A, _ = make(A)
        levels.append(level)
    check_coarsest(A.grid, A.periodic)
    if levels:
        return GridLevels([*levels, GridLevel(A, None, None)], None, weak_points)
    scale = _scale(A)
    return GridLevels([GridLevel(diagonally_scaled(A, scale), scale, None)], None, weak_points)


def made_level(
    A: Couplings, factors: tuple[int, ...], hermitian: bool, rounding: float
) -> tuple[GridLevel, Couplings, list[Array]]:
    """The level, the couplings of the next coarser grid, and the points of `weights_and_weakly_coupled`."""
    bk, scale = A.bk, _scale(A)
    scaled = diagonally_scaled(A, scale)
    symmetric_part = (A if hermitian else A.symmetrised()).map(bk.real)
    W, weak_points = weights_and_weakly_coupled(symmetric_part, factors)
    weights = bk.astype(stacked_weights(bk, W, factors), bk.dtype(A.diagonal))
    # Weights for the scaled variables `u / scale` of the finer grid.
    points = parities(factors)
    rows = bk.stack([subgrid(bk, 1 / scale, p, factors) for p in points])
    at = np.array([points.index(p) for p, _ in interpolation_places(factors)], np.int32)
    weights = bk.materialize(weights * bk.take_in_bounds(bk.astype(rows, bk.dtype(weights)), at, 0))
    P = Interpolation(bk, weights, A.grid, factors, A.periodic, A.systems is not None)
    if bk.is_eager:
        coarse = coarse_couplings(scaled, P.by_place, factors, hermitian, rounding)
    else:
        coarse = probed_couplings(MatrixOnGrid.of(scaled), P, rounding)
    return GridLevel(scaled, scale, P), coarse, weak_points


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
    return A.bk.materialize(unit_scale(A.bk, A.sum_of_sizes()))


class Coarsest(NamedTuple):
    """Size of the coarsest grid.

    Attributes:
        most: points at most.
        fine: points up to which a grid is solved exactly if a coarser one would lose too much, see `WeaklyCoupled`.
    """

    most: int
    fine: int = 0


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
    return halved_axes(possible, strengths_of(A) if directional else [1.0] * len(A.grid))


def halved_axes(possible: Sequence[bool], strengths: Sequence[float]) -> tuple[int, ...]:
    """2 for each possible axis whose couplings are not weak relative to the strongest of these, else 1."""
    largest = max((s for s, can in zip(strengths, possible) if can), default=0.0)
    return tuple(2 if can and s >= WEAK * largest else 1 for s, can in zip(strengths, possible))


def strengths_of(A: Couplings) -> list[float]:
    """Strength of the couplings along each axis: the median over a sample of points."""
    along_axis = int(_SAMPLE ** (1 / max(sum(n > 1 for n in A.grid), 1)))
    # Evenly spread, because coefficients may be periodic layers.
    some = (0, *np.ix_(*(evenly_spread(n, along_axis) for n in A.grid)))
    sizes = {s: np.abs(a[some]) for s, a in A.values.items()}
    diagonal = sizes[A.here]
    live = diagonal > 0
    if not live.any():
        return [0.0] * len(A.grid)
    along = [
        sum((size for s, size in sizes.items() if s[axis]), np.zeros_like(diagonal)) for axis in range(len(A.grid))
    ]
    return [float(np.median(total[live] / diagonal[live])) for total in along]


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
    values: dict[Shift, Array] = {}
    for S in couplings_of_coarse(grid):
        if hermitian and A.here > S:
            continue
        parts: dict[Shift, Array] = {}
        for p, weights in W.items():
            for c, w in weights.items():
                image = images[p].get(tuple(a + b for a, b in zip(S, c)))
                if image is not None:
                    accumulate(parts, c, w * image)
        terms = [shifted_array(bk, each, opposite(c), A.periodic) for c, each in parts.items()]
        values[S] = bk.materialize(sum_of_terms(terms)) if terms else bk.zeros_like(W[A.here][A.here])
    if hermitian:
        for S in [S for S in values if A.here != S]:
            values[opposite(S)] = bk.conj(shifted_array(bk, values[S], opposite(S), A.periodic))
    values[A.here] = bk.materialize(without_rounding_residues(bk, values[A.here], W, A.periodic, rounding))
    return replace(A, grid=grid, values=values)


def couplings_of_coarse(grid: tuple[int, ...]) -> tuple[Shift, ...]:
    """Offsets on a coarse grid, for any offsets of the finer one."""
    return tuple(s for s in neighbours(len(grid)) if all(n > 1 or not k for n, k in zip(grid, s)))


def _images(A: Couplings, W: Weights, p: Shift, factors: tuple[int, ...]) -> dict[Shift, Array]:
    """Row `factor X + p` of A P: its coefficients of the coarse points X + k, by k."""
    sums: dict[Shift, Array] = {}
    for s, a in A.values.items():
        rows = subgrid(A.bk, a, p, factors)
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
        along = each.reshape([-1 if k == axis else 1 for k in range(len(grid))])
        whole = bk.asarray(along.astype(np.int32), like=like)
        number = number * counts[axis] + own_part(bk, whole, axis, grid[axis], P.periodic[axis])
    number = bk.reshape(number, (1, math.prod(grid)))
    R, zero = P.T, bk.zeros((rows, math.prod(grid)), P.dtype, like)

    def image(colour: Any, _: Array) -> Array:
        probe = bk.where(number == colour, zero + 1, zero)
        return R.apply(bk.materialize(A.apply(bk.materialize(P.apply(probe)))))

    images = scanned(bk, image, zero, math.prod(counts))
    # The coefficient of x + s is the value at x of the image of the colour of x + s.
    axes = len(grid)
    values = bk.reshape(images, (int(images.shape[0]), *counts, *grid))
    steps = [(0,) if len(each) == 1 else (-1, 0, 1) for each in colours]
    for axis, (each, cut) in enumerate(zip(colours, P.periodic)):
        n, ring = length_and_ring(grid[axis], cut)
        there = np.arange(n) + np.array(steps[axis])[:, None]
        colour = np.where(ring | ((there >= 0) & (there < n)), each[there % n], -1)
        shape = [1] * len(values.shape)
        shape[1 + axis], shape[1 + axes + axis] = colour.shape
        colour_here = own_part(bk, colour.reshape(shape).astype(np.int32), 1 + axes + axis, grid[axis], cut)
        terms = []
        for c in range(counts[axis]):
            of_colour = values[(*(slice(None),) * (1 + axis), slice(c, c + 1))]
            is_colour = bk.asarray(colour_here == c, like=values)
            terms.append(bk.where(is_colour, of_colour, bk.zeros_like(of_colour)))
        values = sum_of_terms(terms)
    shifts = [*itertools.product(*steps)]
    values = bk.reshape(values, (int(images.shape[0]), len(shifts), *grid))
    values = bk.permute_dims(values, (1, 0, *range(2, 2 + axes)))
    here = np.array([not any(s) for s in shifts]).reshape(-1, *(1,) * (1 + axes))
    after = replace(P, weights=bk.ordered_after(P.weights, images)) if are_cut(P.periodic) else P
    diagonal = without_rounding_residues(bk, values[len(shifts) // 2], after.by_place, P.periodic, rounding)
    values = bk.materialize(bk.where(bk.asarray(here, like=values), diagonal[None], values))
    return Couplings(bk, grid, P.periodic, Stacked(shifts, values), A.systems)


def colours_of(n: int, ring: bool) -> np.ndarray:
    """Colours of n points along an axis: all neighbours of a point have different ones."""
    if not ring:
        return np.arange(n) % 3
    if n < 6:
        return np.arange(n)
    fours = n % 3  # rounds of four colours, all others of three
    return np.concatenate([np.tile(np.arange(4), fours), np.tile(np.arange(3), (n - 4 * fours) // 3)])


def blockwise_setup(
    make: Callable[[Couplings], tuple[GridLevel, Couplings, list[Array]]],
    A: Couplings,
    factors: Shift,
    dtype: np.dtype,
    too_many: Callable[[WeaklyCoupled], bool] | None = None,
) -> tuple[tuple[GridLevel, Couplings] | None, WeaklyCoupled]:
    """`make(A)` for NumPy arrays, block by block, and counts of weakly coupled points; matrix and weights in `dtype`.

    Args:
        too_many: called after each block with the counts; if there are too many, no level is returned.
    """
    grid, factor = coarse_grid(A.grid, factors), factors[0]
    if math.prod(A.grid) < _LEAST_IN_BLOCKS or grid[0] < 2 * _ROWS_OF_A_BLOCK:
        level, coarse, points = make(A)
        weak_points = WeaklyCoupled.of(points, slice(None))
        if too_many is not None and too_many(weak_points):
            return None, weak_points
        P: Any = level.P
        return (level._replace(A=level.A.astype(dtype), P=P.astype(dtype)), coarse), weak_points
    weak_points, fine, below = WeaklyCoupled(), list[np.ndarray](), list[np.ndarray]()
    for start in range(0, grid[0], _ROWS_OF_A_BLOCK):
        end = min(start + _ROWS_OF_A_BLOCK, grid[0])
        # Halo rows before and after the block: none at the ends of the grid.
        before, after = min(_AROUND, start), min(_AROUND, grid[0] - end)
        if A.periodic[0]:
            before = after = _AROUND
        lo, hi = factor * (start - before), factor * (end + after)
        if A.periodic[0]:
            values = {s: np.take(a, np.arange(lo, hi) % A.grid[0], axis=1) for s, a in A.values.items()}
        else:
            hi = min(hi, A.grid[0])
            values = {s: a[:, lo:hi] for s, a in A.values.items()}
        block = replace(A, grid=(hi - lo, *A.grid[1:]), periodic=(False, *A.periodic[1:]), values=values)
        level, coarse, points = make(block)
        P, shifts, coarse_shifts = level.P, level.A.shifts, coarse.shifts
        if not fine:
            systems = len(level.scale)  # type: ignore[arg-type]
            scale = np.empty((systems, *A.grid), level.scale.dtype)  # type: ignore[union-attr]
            matrix = np.empty((len(shifts), systems, *A.grid), dtype)
            weights = np.empty((len(P.weights), systems, *grid), dtype)
            coarse_values = np.empty((len(coarse_shifts), systems, *grid), coarse.diagonal.dtype)
            fine, below = [scale, *matrix], [*weights, *coarse_values]
        rows = slice(factor * start, min(factor * end, A.grid[0]))
        inner = slice(factor * before, factor * before + rows.stop - rows.start)
        for whole, part in zip(fine, [level.scale, *(level.A.values[s] for s in shifts)], strict=True):
            whole[:, rows] = part[:, inner]
        inner = slice(before, before + end - start)
        for whole, part in zip(below, [*P.weights, *(coarse.values[s] for s in coarse_shifts)], strict=True):
            whole[:, start:end] = part[:, inner]
        weak_points = weak_points.plus(WeaklyCoupled.of(points, inner))
        if too_many is not None and too_many(weak_points):
            return None, weak_points
    level = GridLevel(
        replace(A, values=Stacked(shifts, matrix)),
        scale,
        Interpolation(A.bk, weights, A.grid, factors, A.periodic, A.systems is not None),
    )
    return (level, replace(A, grid=grid, values=Stacked(coarse_shifts, coarse_values))), weak_points
