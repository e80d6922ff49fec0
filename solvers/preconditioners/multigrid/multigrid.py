"""Structured multigrid from the stencil of a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from ....sparse import Composed, Matrix, Operator
from ....sparse.fingerprint import fingerprint
from ....sparse.operators.couplings import Couplings, Shift, Stacked, are_flat
from ...factors.planes import BlockTridiagonalInverse, block_layout, block_tridiagonal_inverse
from ..amg.cycle import known_cycle
from ..amg.hierarchy import coarsened
from ..amg.settings import AmgSettings
from ..checks import MOST_STEPS, check_choice, check_finite, check_in_range, check_integer
from ..operators import (
    DiagonallyScaled,
    Preconditioner,
    check_precision,
    inner_dtype,
    note_on_precision,
    precision_as_setting,
    recast,
)
from ..pipeline import Target, grid_of, of_operator
from .coarsest import exact_inverse, rounding_of
from .couplings import MatrixOnGrid, couplings_matrix, couplings_of, couplings_stencil
from .cycle import (
    SMOOTHERS,
    VISITS,
    Level,
    LevelParts,
    PolynomialSmoother,
    cycle_over,
    numbers_stored,
    polynomial,
    work_of,
)
from .grid_levels import (
    Coarsest,
    GridLevel,
    check_coarsest,
    coarsening_factors,
    coarsest,
    couplings_of_coarse,
    levels_of,
)
from .transfer import Interpolation, interpolation_places
from .weights import WeaklyCoupled, coarse_grid

_SMALL = 64  # unknowns up to which there is one grid
_RESIDUE = 0.75  # power of the rounding unit: such sums of terms of size one are only rounding
_CYCLES = {visits: cycle for cycle, visits in VISITS.items()}


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

    The interpolation follows the coefficients (black box multigrid), so that jumps of any size between blocks,
    obstacles and all kinds of boundaries need no care; periodic axes are recognised. On the coarsest grid the solve is
    exact, by elimination of one line or plane after the other. For a single matrix with known values, the points are
    counted that are weakly coupled to a coarser grid: those of thin lines and walls, channels, or coefficients that
    jump from cell to cell. A grid with too many, and all coarser ones, are replaced by classical AMG ("amg"), which
    `note` reports. M is Hermitian if A is, and positive definite if A is. If the values of A are traced, the levels are
    set up in each run: by NumPy in JAX's programs on a CPU that may call the host, else in the library, which takes a
    second or two of compilation for each level.

    Args:
        grid: shape of the grid of the unknowns, last axis fastest; needed where A neither declares nor shows it.
        cycle: "V" or "W".
        smoother: "chebyshev", or "jacobi", which is the default if A is known not to be Hermitian.
        degree: degree of the smoother's polynomial: the products with A before and after the coarser grids.
        direct: largest number of points of the coarsest grid; default: 64 in one dimension, 16^3 in three, and in two
            64^2, or 128^2 if too many points are known to be weakly coupled.
        directional: halve only axes along which couplings are strong, if values are known.
        precision: "single" computes on all grids but the coarsest in single precision where A is in double precision:
            three quarters of the memory, half to two thirds of the time, and as many iterations.

    Raises:
        ValueError: a setting is invalid, a row with entries has a zero on the diagonal, or the coarsest grid is too
            large.
        UnsupportedOperation: the entries of A are not available, or couple points that are no neighbours.

    Stores 11 numbers per point in two dimensions, 15 in three, and the inverse on the coarsest grid: its points times
    those of a line, or of a plane. Costs 7 to 9 products with A.

    Source: Dendy, Black box multigrid, J. Comput. Phys. 48 (1982).
    """
    choose = checked_smoothing(cycle, smoother, degree, precision)
    shape = grid_of(own, grid, find=True)
    if own.shape[0] <= _SMALL:
        return with_cost(*exact_inverse(own, "multigrid"), ())
    size = coarsest(shape) if direct is None else Coarsest(*(check_integer("direct", direct, 1),) * 2)
    couplings = couplings_of(own, shape)
    hermitian = checked_couplings(couplings) if own.bk.on_host else None
    smoothing = choose(hermitian)._replace(as_grids=are_flat(target.bk, couplings.periodic))
    if own.bk.on_host:
        host = Target(own, own.dtype, target.bk)
        found = cycle_of(couplings, own.dtype, size, smoothing, hermitian, directional, host)
    else:
        found = cycle_in_runs(couplings, own.dtype, size.most, smoothing)
    settings = (("direct", found.points), ("degree", degree), ("cycle", cycle), *precision_as_setting(precision))
    return with_cost(found.inner, hermitian, settings, found.note)


def checked_smoothing(
    cycle: str, smoother: str | None, degree: int, precision: str | None
) -> Callable[[bool | None], Smoothing]:
    """Check the settings, and return the smoothing as a function of whether A is Hermitian."""
    if cycle not in VISITS:
        raise ValueError(f"cycle={cycle!r} was given; expected one of {', '.join(map(repr, VISITS))}.")
    if smoother is not None:
        smoother = check_choice("smoother", smoother, tuple(SMOOTHERS))
    degree = check_integer("degree", degree, 1, MOST_STEPS)
    check_precision(precision)
    return lambda hermitian: Smoothing(
        smoother or ("jacobi" if hermitian is False else "chebyshev"), degree, VISITS[cycle], precision
    )


def checked_couplings(A: Couplings) -> bool:
    """Refuse values that cannot be smoothed, and return whether A is Hermitian."""
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


class Smoothing(NamedTuple):
    """Smoother and cycle type of all levels but the coarsest."""

    smoother: str = "chebyshev"
    degree: int = 2
    visits: int = VISITS["V"]
    precision: str | None = None
    as_grids: bool = False  # are NumPy's matrices made of shifted grids, as those of all other libraries?

    def smoother_of(self, A: Operator, bound: Array, hermitian: bool) -> PolynomialSmoother:
        """Smoother of a matrix of unit row sums, with eigenvalue bounds `(systems or 1,)`."""
        coefficients = polynomial(A.bk, self.smoother, bound, self.degree)
        alphas, weights = (A.bk.astype(each, A.dtype) for each in coefficients)
        return PolynomialSmoother(A, alphas, weights[:, :, None], hermitian)


class GridCycle(NamedTuple):
    """A cycle, the points of its coarsest grid, and a note for the preconditioner."""

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
        target: NumPy, with the formats of the library of the cycle. None: all levels are grids, even if points are
            weakly coupled.
        above: number of finer levels, whose rounding is in the coefficients.
    """
    known = own.bk.on_host
    wide = np.result_type(dtype, np.float64)
    working = own.astype(wide) if known else own.map(own.bk.constant)
    working = working.symmetrised() if hermitian else working
    sign = signs_of(working)
    within = inner_dtype(smoothing.precision, dtype)
    if within != dtype:  # Interpolation has numbers of the size of sqrt(A).
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
    where = "" if grid == finest else f" from the grid {grid} on"
    return f"classical AMG{where}: coefficients jump, {weak_points} are weakly coupled to a coarser grid"


def with_cost(
    cycle: Operator, hermitian: bool | None, settings: tuple[tuple[str, Any], ...], note: str | None = None
) -> Preconditioner:
    """The cycle as a preconditioner, with its costs."""
    costs = numbers_stored(cycle), work_of(cycle), None
    notes = "; ".join(part for part in (note, note_on_precision(cycle)) if part)
    return Preconditioner(cycle, "multigrid", hermitian, *costs, settings, notes or None)


def _exact(A: Couplings, dtype: np.dtype, levels: int, hermitian: bool) -> Operator:
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
    """The cycle over all levels for vectors in `dtype`, with all levels but the coarsest in the dtype `within`.

    The levels are those of `sign` times the matrix, and `inner` is an inverse for the last one.
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
    """Size of the diagonal of each system, `(systems or 1, 1, ...)`, real and positive."""
    bk, largest = A.bk, A.largest(A.diagonal)
    return bk.reshape(bk.where(largest > 0, largest, bk.full_like(largest, 1)), (-1, *(1,) * len(A.grid)))


def residue_of(dtype: np.dtype) -> float:
    """Largest rounding in sums of terms of size one, see `without_rounding_residues`."""
    return float(np.finfo(dtype).eps) ** _RESIDUE


def algebraic_cycle(A: Couplings, smoothing: Smoothing, hermitian: bool, target: Target) -> Operator:
    """Cycle of classical AMG for the stencil coefficients of a single matrix, on NumPy's arrays."""
    settings = AmgSettings(
        coarsening="classical",
        cycle=_CYCLES[smoothing.visits],
        smoother=smoothing.smoother,
        degree=smoothing.degree,
        precision=smoothing.precision,
    )
    return known_cycle(coarsened(_rows(A), settings, hermitian, None, 1), settings, hermitian, target)


def _rows(A: Couplings) -> sp.csr_array:
    """The matrix in CSR format, without the zeros of couplings that leave the grid."""
    matrix: Matrix = couplings_stencil(A).to("csr")
    found = sp.csr_array(matrix.known())
    found.eliminate_zeros()
    return found


def cycle_in_runs(
    A: Couplings, dtype: np.dtype, points: int, smoothing: Smoothing, wanted: Array | None = None
) -> GridCycle:
    """Cycle for coefficients that are known only when a program runs.

    NumPy sets it up, which saves a second of compilation for each level, except in programs for other devices and
    libraries, those with `on_failure="nan"`, and exported ones.

    Args:
        points: largest number of points of the coarsest grid.
        wanted: `(1,)`; unless it is positive, the arrays of the cycle are unspecified.
    """
    bk = A.bk
    smoothing = smoothing._replace(as_grids=True)  # The host returns the arrays of the program's cycle.
    setup = _SetUp(replace(A, values={}), tuple(A.values), dtype, points, smoothing)
    blank = setup.blank()
    returns = [(array.shape, array.dtype) for array in blank.bk.flatten(blank)[0]]
    values = bk.constant(bk.stack([*A.values.values()]))

    def arrays() -> list[Array]:
        if not bk.sets_up_by_host():
            return setup.in_program(bk, values)
        in_program = partial(setup.in_program, bk)
        return bk.by_host(setup.on_host, in_program, returns, values, name=setup.name)

    found = arrays() if wanted is None else bk.where_needed(wanted[0] > 0, arrays)
    return GridCycle(_filled(blank, bk, iter(found)), _points_of_coarsest(blank), None)


@dataclass(frozen=True, eq=False)
class _SetUp:
    """Set-up of a cycle from coefficients in the order of `shifts`; it outlives the trace and holds no tracers."""

    grid: Couplings  # without values
    shifts: tuple[Shift, ...]
    dtype: np.dtype
    points: int
    smoothing: Smoothing

    def name(self) -> str | None:
        """Name of the host computation, the same in every process."""
        return fingerprint("multigrid", self.grid, self.shifts, self.dtype, self.points, self.smoothing)

    def in_program(self, bk: Backend, values: Array) -> list[Array]:
        cycle = self._cycle(replace(self.grid, bk=bk, values=Stacked(self.shifts, values)), False)
        return bk.flatten(cycle.as_container())[0]

    def on_host(self, values: np.ndarray) -> list[Array]:
        host = get_backend("numpy")
        with host.errstate():
            A = replace(self.grid, bk=host, values=Stacked(self.shifts, values))
            return host.flatten(self._cycle(A, A.is_exactly_hermitian))[0]

    def _cycle(self, A: Couplings, hermitian: bool) -> Operator:
        return cycle_of(A, self.dtype, Coarsest(self.points, self.points), self.smoothing, hermitian).inner

    def blank(self) -> Operator:
        """The cycle with zeros for all arrays, which take no memory."""
        within = inner_dtype(self.smoothing.precision, self.dtype)
        inner = recast(self._blank_from(self.grid.grid, self.shifts, within), self.dtype)
        scale = _zeros(self.dtype, self.grid.systems or 1, inner.shape[0])
        return DiagonallyScaled(inner, scale, scale)

    def _blank_from(self, grid: tuple[int, ...], shifts: tuple[Shift, ...], within: np.dtype) -> Operator:
        host, rows, batch = get_backend("numpy"), self.grid.systems or 1, self.grid.systems is not None
        A = replace(self.grid, grid=grid, values=dict.fromkeys(shifts))
        factors = coarsening_factors(A, False) if math.prod(grid) > self.points else None
        if factors is None:
            check_coarsest(grid, A.periodic)
            blocks = block_layout(grid, A.periodic, A.shifts)
            pivots = _zeros(self.dtype, rows, blocks.count, blocks.size, blocks.size)
            lower, upper = (_zeros(self.dtype, rows, *each.shape) for each in (blocks.lower, blocks.upper))
            return BlockTridiagonalInverse(host, pivots, lower, upper, grid, A.periodic, A.shifts, batch)
        coarse = coarse_grid(grid, factors)
        inner = recast(self._blank_from(coarse, couplings_of_coarse(coarse), within), within)
        weights = _zeros(within, len(interpolation_places(factors)), rows, *coarse)
        P = Interpolation(host, weights, grid, factors, A.periodic, batch)
        own = MatrixOnGrid(host, _zeros(within, len(shifts), rows, *grid), A.shifts, grid, A.periodic, batch)
        alphas, weights = (_zeros(within, self.smoothing.degree, rows, *last) for last in ((), (1,)))
        return Level(PolynomialSmoother(own, alphas, weights), P, P.T, inner, visits=self.smoothing.visits)


def _zeros(dtype: np.dtype, *shape: int) -> np.ndarray:
    return np.broadcast_to(np.zeros((), dtype), shape)


def _points_of_coarsest(M: Any) -> int:
    while not isinstance(M, BlockTridiagonalInverse):
        M = M.coarse if isinstance(M, Level) else M.inner
    return int(M.shape[0])


def _filled(M: Any, bk: Backend, arrays: Iterator[Array]) -> Any:
    """M in another library, with its arrays replaced in order."""
    if not isinstance(M, Composed):
        return None if M is None else next(arrays)
    return M._moved({name: _filled(getattr(M, name), bk, arrays) for name in M.parts}, bk)
