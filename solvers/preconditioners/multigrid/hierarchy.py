"""Levels of structured multigrid, scaled to unit absolute row sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ....backends import Array, Backend
from ....sparse.operators.couplings import Couplings
from .blockwise import LevelArrays, blockwise_setup
from .coarsening import Coarsest, check_coarsest, coarsening_factors
from .galerkin import coarse_couplings
from .on_grid import MatrixOnGrid
from .probes import probed_couplings
from .transfer import Interpolation, interpolation_places, stacked_weights
from .weakly_coupled import WeaklyCoupled
from .weights import coarse_grid, every, parities, weights_and_weakly_coupled


class GridLevel(NamedTuple):
    """A level: its matrix, and the prolongation from the next coarser grid (None on the coarsest).

    Attributes:
        A: scaled on both sides; the coarsest one of several is not.
        P: the interpolation from the next coarser grid's own variables to the scaled ones; None on the coarsest one.
        scale: the diagonal scaling of A on both sides, `(systems or 1, *grid)`, if any.
    """

    A: Couplings
    scale: Array | None
    P: Interpolation | None


class GridLevels(NamedTuple):
    """Levels, finest first, and the weakly coupled points of each grid.

    Attributes:
        levels: the last one is solved with exactly; with a `rest` all have an interpolation, and there may be none.
        weak_points: of each grid that was examined.
        rest: the matrix on the grid below them that no coarser one suits, for which coarse points have to be chosen by
            its couplings; or None.
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
        rounding: what may be rounding, see `without_rounding_residues`.
        dtype: in which matrices and interpolations are to be used; they may have that of A, but for the coarsest.
        may_stop: may a `rest` be left where too many points are weakly coupled, of a single matrix in NumPy?

    Raises:
        ValueError: the coarsest grid is too large.
    """
    bk, levels, weak_points = A.bk, list[GridLevel](), list[WeaklyCoupled]()
    while _points(A.grid) > direct.most:
        small = _points(A.grid) <= direct.fine
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
    points = sum(f > 1 for f in factors) * _points(coarse_grid(A.grid, factors))
    return lambda weak_points: weak_points.too_many(finest, points)


def _never(weak_points: WeaklyCoupled) -> bool:
    return False


def made(A: Couplings, factors: tuple[int, ...], hermitian: bool, rounding: float) -> LevelArrays:
    """Set up one level: scaling, weights and Galerkin product."""
    bk, scale = A.bk, _scale(A)
    own = diagonally_scaled(A, scale)
    found, weak_points = weights_and_weakly_coupled(_symmetric_part(A, hermitian), factors)
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


def _points(grid: Sequence[int]) -> int:
    found = 1
    for n in grid:
        found *= n
    return found


def _scale(A: Couplings) -> Array:
    """`1 / sqrt` of the absolute row sums (l1-Jacobi), so that no eigenvalue exceeds one; 1 for zero rows.

    Source: Baker, Falgout, Kolev and Yang, Multigrid smoothers for ultraparallel computing, SIAM J. Sci. Comput. 33
    (2011), for smoothing with these sums.
    """
    bk, sums = A.bk, A.sum_of_sizes()
    one = bk.full_like(sums, 1)
    return bk.materialize(bk.where(sums > 0, 1 / bk.sqrt(bk.where(sums > 0, sums, one)), one))


def _symmetric_part(A: Couplings, hermitian: bool) -> Couplings:
    """Real symmetric part, from which interpolation weights are made."""
    return (A if hermitian else A.symmetrised()).map(A.bk.real)


def _divided(bk: Backend, weights: Array, scale: Array, factors: tuple[int, ...]) -> Array:
    """Weights for the scaled variables `u / scale` of the finer grid."""
    points = parities(factors)
    rows = bk.stack([every(bk, 1 / scale, p, factors) for p in points])
    at = np.array([points.index(p) for p, _ in interpolation_places(factors)], np.int32)
    return bk.materialize(weights * bk.take_in_bounds(bk.astype(rows, bk.dtype(weights)), at, 0))
