"""The multigrid preconditioner: structured multigrid from the stencil of a matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ....backends import Array
from ....sparse import Matrix, Operator
from ....sparse.operators.couplings import Couplings, are_flat
from ...block_tridiagonal.inverse import BlockTridiagonalInverse, block_tridiagonal_inverse
from ..base import Preconditioner
from ..checks import MOST_STEPS, check_choice, check_finite, check_in_range, check_integer
from ..cycle.cost import numbers_stored, work_of
from ..cycle.dense import rounding_of
from ..cycle.level import VISITS, Level
from ..cycle.recast import check_precision, inner_dtype, note_on_precision, precision_as_setting, recast
from ..cycle.scaled import DiagonallyScaled
from ..cycle.small import exact_inverse
from ..cycle.smoother import SMOOTHERS, steps_for
from ..cycle.target import Target
from ..pipeline import grid_of, of_operator
from .algebraic import algebraic_cycle
from .coarsening import Coarsest, coarsest
from .from_matrix import couplings_of
from .hierarchy import GridLevel, levels_of
from .matrix import couplings_matrix
from .smoothing import Smoothing
from .weakly_coupled import WeaklyCoupled

_SMALL = 64  # unknowns up to which there is one grid
_RESIDUE = 0.75  # power of the rounding unit: sums of that size, of terms of one, are of rounding only


@of_operator()
def multigrid(
    own: Matrix,
    target: Target,
    *,
    grid: Sequence[int] | None = None,
    cycle: str = "V",
    smoother: str | None = None,
    degree: int = 2,
    direct: int | None = None,
    directional: bool = True,
    precision: str | None = None,
) -> Preconditioner:
    """One cycle of multigrid for a matrix on a grid, whose points are coupled to their neighbours.

    The interpolation follows the coefficients (box multigrid), so that jumps of any size between blocks, obstacles and
    boundaries of all kinds need no care; periodic axes are recognised. On the coarsest grid the matrix is solved with
    exactly, by elimination of one line or plane after the other. Where the values of a single matrix are known, points
    are counted that are weakly coupled to a coarser grid: of thin lines and walls, channels, coefficients that jump
    from cell to cell. A grid with too many, and what is below it, is left to classical AMG ("amg"); the note of the
    preconditioner says so. Hermitian for a Hermitian A, and positive definite with it. Where the values of A are
    traced, all of it is computed in the library.

    Args:
        grid: shape of the grid that the unknowns lie on, last axis fastest, if A neither knows nor shows it.
        cycle: "V" or "W".
        smoother: "chebyshev", or "jacobi", which is the default where A is known not to be Hermitian.
        degree: of the smoother's polynomial; so many products with A before and after the coarser grids.
        direct: the coarsest grid has at most so many points; by default 64 along one axis, 16^3, and 64^2, or 128^2
            where values are traced or too many points are weakly coupled.
        directional: halve only axes along which couplings are strong, where values are known.
        precision: "single" computes on all grids but the coarsest in single precision where A is in double: three
            quarters of the memory, half to two thirds of the time, and as many iterations.

    Raises:
        ValueError: a setting, a zero on the diagonal of a row that is not empty, or too large a coarsest grid.
        UnsupportedOperation: A does not show its entries, or couples points that are no neighbours.

    Stores 11 numbers for each point of two dimensions, 15 of three, and the inverse on the coarsest grid: its points
    times those of a line, or of a plane. Costs 7 to 9 products with A.

    Source: Dendy, Black box multigrid, J. Comput. Phys. 48 (1982).
    """
    if cycle not in VISITS:
        raise ValueError(f"cycle={cycle!r} was given; expected one of {', '.join(map(repr, VISITS))}.")
    if smoother is not None:
        smoother = check_choice("smoother", smoother, tuple(SMOOTHERS))
    degree = check_integer("degree", degree, 1, MOST_STEPS)
    check_precision(precision)
    shape = grid_of(own, grid, find=True)
    if own.shape[0] <= _SMALL:
        return with_cost(*exact_inverse(own, "multigrid"), ())
    size = coarsest(shape) if direct is None else Coarsest(*(check_integer("direct", direct, 1),) * 2)
    couplings = couplings_of(own, shape)
    hermitian = _checked(couplings) if own.bk.on_host else None
    smoothing = Smoothing(
        smoother or ("jacobi" if hermitian is False else "chebyshev"), degree, VISITS[cycle], precision,
        as_grids=are_flat(target.bk, couplings.periodic),
    )  # fmt: skip
    host = Target(own, own.dtype, target.bk) if own.bk.on_host else None
    found = cycle_of(couplings, own.dtype, size, smoothing, hermitian, directional, host)
    settings = (("direct", found.points), ("degree", degree), ("cycle", cycle), *precision_as_setting(precision))
    return with_cost(found.inner, hermitian, settings, found.note)


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
) -> GridCycle:
    """Cycle for stencil coefficients in the given dtype.

    Args:
        target: NumPy, with the formats of the library that the cycle is for. None: all levels are grids, whatever they
            lose.
    """
    known = own.bk.on_host
    wide = np.result_type(dtype, np.float64)
    working = own.astype(wide) if known else own.map(own.bk.constant)
    working = working.symmetrised() if hermitian else working
    sign = _sign(working)
    within = inner_dtype(smoothing.precision, dtype)
    if within != dtype:  # interpolation has numbers of the size of sqrt(A)
        sign = sign / _size(working)
    factor = own.bk.astype(sign, own.bk.dtype(working.diagonal))
    signed = working.with_values({s: factor * a for s, a in working.values.items()})
    single = known and own.systems is None
    rounding = float(np.finfo(dtype).eps) ** _RESIDUE
    may_stop = single and target is not None
    found = levels_of(signed, size, bool(hermitian), directional and single, rounding, within, may_stop)
    levels, rest = found.levels, found.rest
    if rest is None or target is None:
        inner = _exact(levels[-1].A, dtype, len(levels), bool(hermitian))
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
    bk, found = inner.bk, inner
    for k, level in reversed([*enumerate(levels)]):
        A = level.A
        if level.P is not None:
            coarser = levels[k + 1].scale
            P = (level.P if coarser is None else level.P.scaled(coarser)).astype(within)
            bound = bk.full_like(bk.real(A.diagonal[:, *(0,) * len(A.grid)]), 1)
            steps = bk.astype(steps_for(bk, smoothing.smoother, bound, smoothing.degree), within)
            found = recast(found, within)
            found = Level(
                couplings_matrix(A.astype(within), smoothing.as_grids),
                P,
                P.T,
                found,
                steps,
                smoothing.visits,
                hermitian,
            )
    finest = levels[0]
    if finest.scale is None:
        return found
    found = recast(found, dtype)
    rows = bk.reshape(finest.scale, (int(finest.scale.shape[0]), math.prod(finest.A.grid)))
    signed = rows * bk.reshape(sign, (int(sign.shape[0]), 1))
    return DiagonallyScaled(found, bk.astype(rows, dtype), bk.astype(signed, dtype))


def _sign(A: Couplings) -> Array:
    """-1 for each system that has no positive entry on its diagonal, `(systems or 1, 1, ...)`, real."""
    bk, diagonal = A.bk, A.bk.real(A.diagonal)
    axes = (-1, *(1,) * len(A.grid))
    rows = bk.reshape(diagonal, (int(diagonal.shape[0]), -1))
    highest, lowest = (bk.max_abs(bk.where(part, rows, 0 * rows)) for part in (rows > 0, rows < 0))
    one = bk.full_like(highest, 1)
    return bk.reshape(bk.where((highest == 0) & (lowest > 0), -one, one), axes)


def _size(A: Couplings) -> Array:
    """Of the diagonal of each system, `(systems or 1, 1, ...)`, real and positive."""
    bk, diagonal = A.bk, A.diagonal
    largest = bk.max_abs(bk.reshape(diagonal, (int(diagonal.shape[0]), -1)))
    return bk.reshape(bk.where(largest > 0, largest, bk.full_like(largest, 1)), (-1, *(1,) * len(A.grid)))


def _checked(A: Couplings) -> bool:
    """Is it Hermitian?

    Raises:
        ValueError: it has what is no finite number, or an overflowing inverse, or a row with entries but a zero on the
            diagonal.
    """
    check_finite("multigrid", A.is_finite())
    check_in_range("multigrid", A.diagonal)
    wrong = A.diagonal == 0
    if wrong.any():
        wrong &= A.sum_of_sizes() > 0
    if wrong.any():
        at = tuple(int(k) for k in np.argwhere(wrong)[0][1:])
        raise ValueError(
            f"multigrid was asked for a matrix with zeros on its diagonal, in {int(wrong.sum())} rows that have other "
            f"entries (the first is of the point {at}); its smoothers divide by the diagonal. Use another kind."
        )
    return A.is_hermitian()
