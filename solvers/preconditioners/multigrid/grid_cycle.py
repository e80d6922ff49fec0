"""Cycles of structured multigrid, from stencil coefficients to an operator."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np

from ....backends import Array
from ....sparse import Operator
from ....sparse.operators.couplings import Couplings
from ...factors.planes import BlockTridiagonalInverse, block_tridiagonal_inverse
from ..base import Preconditioner
from ..cycle.dense import rounding_of
from ..operators import DiagonallyScaled, inner_dtype, note_on_precision, recast
from ..target import Target
from .algebraic import algebraic_cycle
from .coarsening import Coarsest
from .cycle import LevelParts, cycle_over, numbers_stored, work_of
from .hierarchy import GridLevel, levels_of
from .matrix import couplings_matrix
from .smoothing import Smoothing
from .weakly_coupled import WeaklyCoupled

_RESIDUE = 0.75  # power of the rounding unit: sums of that size, of terms of one, are of rounding only


class GridCycle(NamedTuple):
    """A cycle.

    Attributes:
        inner: the operator.
        points: of the coarsest grid.
        note: what the preconditioner says of it, see `_note`.
    """

    inner: Operator
    points: int
    note: str | None


def cycle_of(
    own: Couplings,
    dtype: np.dtype,
    size: Coarsest,
    smoothing: Smoothing,
    hermitian: bool | None = None,
    directional: bool = False,
    target: Target | None = None,
    above: int = 0,
) -> GridCycle:
    """Cycle for stencil coefficients in the given dtype.

    Args:
        target: NumPy, with the formats of the library that the cycle is for. None: all levels are grids, whatever they
            lose.
        above: number of levels above, whose rounding is in the coefficients.
    """
    known = own.bk.on_host
    wide = np.result_type(dtype, np.float64)
    working = own.astype(wide) if known else own.map(own.bk.constant)
    working = working.symmetrised() if hermitian else working
    sign = signs_of(working)
    within = inner_dtype(smoothing.precision, dtype)
    if within != dtype:  # interpolation has numbers of the size of sqrt(A)
        sign = sign / sizes_of(working)
    factor = own.bk.astype(sign, own.bk.dtype(working.diagonal))
    signed = working.with_values({s: factor * a for s, a in working.values.items()})
    single = known and own.systems is None
    rounding = residue_of(dtype)
    may_stop = single and target is not None
    found = levels_of(signed, size, bool(hermitian), directional and single, rounding, within, may_stop)
    levels, rest = found.levels, found.rest
    if rest is None or target is None:
        inner = _exact(levels[-1].A, dtype, above + len(levels), bool(hermitian))
        cycle = _assembled(levels, inner, sign, smoothing, bool(hermitian), dtype, within)
        return GridCycle(cycle, math.prod(levels[-1].A.grid), None)
    cycle = algebraic_cycle(rest if levels else working, smoothing, bool(hermitian), target)
    if levels:
        cycle = _assembled(
            [*levels, GridLevel(rest, None, None)], cycle, sign, smoothing, bool(hermitian), dtype, within
        )
    return GridCycle(cycle, math.prod(rest.grid), _note(own.grid, rest.grid, found.weak_points[-1]))


def _note(finest: tuple[int, ...], grid: tuple[int, ...], weak_points: WeaklyCoupled) -> str:
    """Why and from where on the cycle is algebraic."""
    where = "" if grid == finest else f" from the grid {grid} on"
    return f"classical AMG{where}: coefficients jump, {weak_points} are weakly coupled to a coarser grid"


def with_cost(
    cycle: Operator, hermitian: bool | None, settings: tuple[tuple[str, Any], ...], note: str | None = None
) -> Preconditioner:
    """The preconditioner with its cost."""
    costs = numbers_stored(cycle), work_of(cycle), None
    notes = "; ".join(part for part in (note, note_on_precision(cycle)) if part)
    return Preconditioner(cycle, "multigrid", hermitian, *costs, settings, notes or None)


def _exact(A: Couplings, dtype: np.dtype, levels: int, hermitian: bool) -> Operator:
    """The inverse on the coarsest grid."""
    bk, batch, shift = A.bk, A.systems is not None, 2 * rounding_of(dtype, levels)
    pivots, lower, upper = (bk.astype(part, dtype) for part in block_tridiagonal_inverse(A, shift, hermitian))
    return BlockTridiagonalInverse(bk, pivots, lower, upper, A.grid, A.periodic, A.shifts, batch)


def _assembled(
    levels: list[GridLevel],
    inner: Operator,
    sign: Array,
    smoothing: Smoothing,
    hermitian: bool,
    dtype: np.dtype,
    within: np.dtype,
) -> Operator:
    """The cycle over all levels for vectors of the dtype of the matrix, on all but the coarsest in that of `within`.

    For `sign` times what they were made of; `inner` is an inverse for the last one.
    """
    bk = inner.bk
    parts = []
    for level, below in pairwise(levels):
        A, P = level.A, cast(Any, level.P)
        P = P if below.scale is None else P.scaled(below.scale)
        bound = bk.full_like(bk.real(A.diagonal[:, *(0,) * len(A.grid)]), 1)
        matrix = couplings_matrix(A.astype(within), smoothing.as_grids)
        P = P.astype(within)
        parts.append(LevelParts(smoothing.smoother_of(matrix, bound, hermitian), P, P.T))
    found = cycle_over(parts, inner, smoothing.visits)
    finest = levels[0]
    if finest.scale is None:
        return found
    found = recast(found, dtype)
    rows = bk.reshape(finest.scale, (int(finest.scale.shape[0]), math.prod(finest.A.grid)))
    signed = rows * bk.reshape(sign, (int(sign.shape[0]), 1))
    return DiagonallyScaled(found, bk.astype(rows, dtype), bk.astype(signed, dtype))


def signs_of(A: Couplings) -> Array:
    """-1 for each system that has no positive entry on its diagonal, `(systems or 1, 1, ...)`, real."""
    bk, diagonal = A.bk, A.bk.real(A.diagonal)
    axes = (-1, *(1,) * len(A.grid))
    highest, lowest = (A.largest(bk.where(part, diagonal, 0 * diagonal)) for part in (diagonal > 0, diagonal < 0))
    one = bk.full_like(highest, 1)
    return bk.reshape(bk.where((highest == 0) & (lowest > 0), -one, one), axes)


def sizes_of(A: Couplings) -> Array:
    """Of the diagonal of each system, `(systems or 1, 1, ...)`, real and positive."""
    bk, largest = A.bk, A.largest(A.diagonal)
    return bk.reshape(bk.where(largest > 0, largest, bk.full_like(largest, 1)), (-1, *(1,) * len(A.grid)))


def residue_of(dtype: np.dtype) -> float:
    """What may be rounding in sums of terms of one, see `without_rounding_residues`."""
    return float(np.finfo(dtype).eps) ** _RESIDUE
