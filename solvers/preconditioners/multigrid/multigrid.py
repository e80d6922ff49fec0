"""Structured multigrid from the stencil of a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from ....sparse import Composed, Matrix, Operator
from ....sparse.content import fingerprint
from ....sparse.operators.couplings import Couplings, Stacked, are_flat
from ...factors.planes import BlockTridiagonalInverse, block_layout, block_tridiagonal_inverse
from ..amg.build_cycle import known_cycle
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
from .coarsest import exact_inverse, residue_of, rounding_of
from .couplings import MatrixOnGrid, couplings_matrix, couplings_of, couplings_stencil
from .cycle import SMOOTHERS, VISITS, LevelParts, PolynomialSmoother, cycle_over, numbers_stored, polynomial, work_of
from .grid_levels import (
    Coarsest,
    GridLevel,
    check_coarsest,
    coarsening_factors,
    coarsest,
    couplings_of_coarse,
    levels_of,
)
from .interpolation import Interpolation, coarse_grid, interpolation_places

_SMALL = 64  # unknowns up to which there is one grid


@of_operator()
def multigrid(
    A: Matrix,
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

    Weights of the interpolation are those of the real part of a complex matrix, whose diagonal should not be
    imaginary: an A that is i times a Laplacian needs both A and b multiplied by -i, or "amg".

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
    shape = grid_of(A, grid, find=True)
    if A.shape[0] <= _SMALL:
        return with_cost(*exact_inverse(A, "multigrid"), ())
    size = coarsest(shape) if direct is None else Coarsest(check_integer("direct", direct, 1))
    couplings = couplings_of(A, shape)
    hermitian = checked_couplings(couplings) if A.bk.on_host else None
    smoothing = choose(hermitian)._replace(as_grids=are_flat(target.bk, couplings.periodic))
    if A.bk.on_host:
        host = Target(A, A.dtype, target.bk)
        made = cycle_of(couplings, A.dtype, size, smoothing, hermitian, directional, host)
    else:
        made = cycle_in_runs(couplings, A.dtype, size.most, smoothing)
    settings = (("direct", made.points), ("degree", degree), ("cycle", cycle), *precision_as_setting(precision))
    return with_cost(made.inner, hermitian, settings, made.note)


def checked_smoothing(
    cycle: str, smoother: str | None, degree: int, precision: str | None
) -> Callable[[bool | None], Smoothing]:
    """Check the settings, and return the smoothing as a function of whether A is Hermitian."""
    if cycle not in VISITS:
        raise ValueError(f"cycle={cycle!r} was given; expected {' or '.join(map(repr, VISITS))}.")
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
    """Smoother, cycle type and precision of all levels but the coarsest."""

    smoother: str = "chebyshev"
    degree: int = 2
    visits: int = VISITS["V"]
    precision: str | None = None
    as_grids: bool = False  # are NumPy's matrices made of shifted grids, as those of all other libraries?

    def dtype_within(self, dtype: np.dtype) -> np.dtype:
        """Dtype of these levels, for a matrix of `dtype`."""
        return inner_dtype(self.precision, dtype)

    def cycle(
        self, levels: Iterable[tuple[Operator, Interpolation]], inner: Operator, ones: Array, hermitian: bool
    ) -> Operator:
        """The cycle above an inverse for the coarsest grid.

        Args:
            levels: matrices, scaled to eigenvalues of at most one, and interpolations from the next coarser grids.
            ones: `(systems or 1,)`, real.
        """
        parts, bk = [], inner.bk
        for A, P in levels:
            alphas, weights = (bk.astype(each, A.dtype) for each in polynomial(bk, self.smoother, ones, self.degree))
            parts.append(LevelParts(PolynomialSmoother(A, alphas, weights[:, :, None], hermitian), P, P.T))
        return cycle_over(parts, inner, self.visits)


class GridCycle(NamedTuple):
    """A cycle, the points of its coarsest grid, and a note for the preconditioner."""

    inner: Operator
    points: int
    note: str | None


def cycle_of(
    A: Couplings,
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
    bk, grid, hermitian = A.bk, A.grid, bool(hermitian)
    single = bk.on_host and A.systems is None
    A = A.astype(np.result_type(dtype, np.float64)) if bk.on_host else A.map(bk.constant)
    A = A.symmetrised() if hermitian else A
    within = smoothing.dtype_within(dtype)
    sign = signs_of(A, with_size=within != dtype)
    factor = bk.astype(sign, bk.dtype(A.diagonal))
    signed = A.with_values({s: factor * a for s, a in A.values.items()})
    may_stop = single and target is not None
    levels, rest, weak_points = levels_of(
        signed, size, hermitian, directional and single, residue_of(dtype), within, may_stop
    )
    if rest is None or target is None:
        A, note = levels[-1].A, None
        shift = 2 * rounding_of(dtype, above + len(levels))
        pivots, lower, upper = (bk.astype(part, dtype) for part in block_tridiagonal_inverse(A, shift, hermitian))
        several = A.systems is not None
        inner: Operator = BlockTridiagonalInverse(bk, pivots, lower, upper, A.grid, A.periodic, A.shifts, several)
    else:
        where = f" from the grid {rest.grid} on" if levels else ""
        note = f"classical AMG{where}: coefficients jump, {weak_points} are weakly coupled to a coarser grid"
        inner = _algebraic_cycle(rest if levels else A, smoothing, hermitian, target)
        if not levels:
            return GridCycle(inner, math.prod(grid), note)
        A, levels = rest, [*levels, GridLevel(rest, None, None)]
    ones = bk.full_like(bk.real(A.diagonal[:, *(0,) * len(grid)]), 1)
    cycle = recast(smoothing.cycle(stored_levels(levels, within, smoothing.as_grids), inner, ones, hermitian), dtype)
    scale: Array = levels[0].scale
    rows = bk.reshape(scale, (int(scale.shape[0]), math.prod(grid)))
    signed_rows = rows * bk.reshape(sign, (int(sign.shape[0]), 1))
    scaled = DiagonallyScaled(cycle, bk.astype(rows, dtype), bk.astype(signed_rows, dtype))
    return GridCycle(scaled, math.prod(A.grid), note)


def stored_levels(
    levels: Sequence[GridLevel], dtype: np.dtype, as_grids: bool
) -> Iterator[tuple[Operator, Interpolation]]:
    """Matrices of all levels but the coarsest, and interpolations from the scaled variables below, in `dtype`."""
    for level, below in pairwise(levels):
        P: Any = level.P
        P = P if below.scale is None else P.scaled(below.scale)
        yield couplings_matrix(level.A.astype(dtype), as_grids), P.astype(dtype)


def with_cost(
    cycle: Operator, hermitian: bool | None, settings: tuple[tuple[str, Any], ...], note: str | None = None
) -> Preconditioner:
    """The cycle as a preconditioner, with its costs."""
    costs = numbers_stored(cycle), work_of(cycle), None
    notes = "; ".join(part for part in (note, note_on_precision(cycle)) if part)
    return Preconditioner(cycle, "multigrid", hermitian, *costs, settings, notes or None)


def signs_of(A: Couplings, with_size: bool) -> Array:
    """-1 for each system that has no positive entry on its diagonal, `(systems or 1, 1, ...)`, real.

    Args:
        with_size: divide by the largest entry of the diagonal. In single precision the interpolation, with numbers of
            the size of sqrt(A), could overflow otherwise.
    """
    bk, axes = A.bk, (-1, *(1,) * len(A.grid))
    diagonal = bk.real(A.diagonal)
    highest, lowest = (A.largest(bk.where(part, diagonal, 0 * diagonal)) for part in (diagonal > 0, diagonal < 0))
    one = bk.full_like(highest, 1)
    sign = bk.reshape(bk.where((highest == 0) & (lowest > 0), -one, one), axes)
    if not with_size:
        return sign
    largest = A.largest(A.diagonal)
    return sign / bk.reshape(bk.where(largest > 0, largest, bk.full_like(largest, 1)), axes)


def _algebraic_cycle(A: Couplings, smoothing: Smoothing, hermitian: bool, target: Target) -> Operator:
    """Cycle of classical AMG for the stencil coefficients of a single matrix, on NumPy's arrays."""
    cycle = next(cycle for cycle, visits in VISITS.items() if visits == smoothing.visits)
    settings = AmgSettings(
        coarsening="classical",
        cycle=cycle,
        smoother=smoothing.smoother,
        degree=smoothing.degree,
        precision=smoothing.precision,
    )
    matrix: Matrix = couplings_stencil(A).to("csr")
    rows = sp.csr_array(matrix.known())
    rows.eliminate_zeros()  # of couplings that leave the grid
    return known_cycle(coarsened(rows, settings, hermitian, None, 1), settings, hermitian, target)


# --- set-up in each run of a program ---


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
    bk, host = A.bk, get_backend("numpy")
    smoothing = smoothing._replace(as_grids=True)  # The host returns the arrays of the program's cycle.
    # The functions below outlive the trace, and hold no tracers.
    form, shifts = replace(A, values={}), tuple(A.values)

    def flattened(bk: Backend, values: Array, exactly: bool) -> list[Array]:
        couplings = replace(form, bk=bk, values=Stacked(shifts, values))
        hermitian = exactly and couplings.is_exactly_hermitian
        cycle = cycle_of(couplings, dtype, Coarsest(points), smoothing, hermitian).inner
        return bk.flatten(cycle if exactly else cycle.as_container())[0]

    def on_host(values: np.ndarray) -> list[Array]:
        with host.errstate():
            return flattened(host, values, True)

    def name() -> str | None:
        """Name of the host computation, the same in every process."""
        return fingerprint("multigrid", form, shifts, dtype, points, smoothing)

    def arrays() -> list[Array]:
        in_program = partial(flattened, bk, exactly=False)
        return (
            bk.by_host(on_host, in_program, returns, values, name=name) if bk.sets_up_by_host() else in_program(values)
        )

    blank = _blank_cycle(replace(form, bk=host, values=dict.fromkeys(shifts)), dtype, points, smoothing)
    returns = [(array.shape, array.dtype) for array in host.flatten(blank.inner)[0]]
    values = bk.constant(bk.stack([*A.values.values()]))
    found = arrays() if wanted is None else bk.where_needed(wanted[0] > 0, arrays)
    return blank._replace(inner=_filled(blank.inner, bk, iter(found)))


def _blank_cycle(A: Couplings, dtype: np.dtype, points: int, smoothing: Smoothing) -> GridCycle:
    """The cycle with zeros for all arrays of grids, which take no memory. A is without values."""
    bk, rows, batch, n = A.bk, A.systems or 1, A.systems is not None, math.prod(A.grid)
    within = smoothing.dtype_within(dtype)

    def zeros(dtype: np.dtype, *shape: int) -> np.ndarray:
        return np.broadcast_to(np.zeros((), dtype), shape)

    levels: list[tuple[Operator, Interpolation]] = []
    while math.prod(A.grid) > points and (factors := coarsening_factors(A, False)) is not None:
        matrix = MatrixOnGrid(bk, zeros(within, len(A.shifts), rows, *A.grid), A.shifts, A.grid, A.periodic, batch)
        grid = coarse_grid(A.grid, factors)
        weights = zeros(within, len(interpolation_places(factors)), rows, *grid)
        levels.append((matrix, Interpolation(bk, weights, A.grid, factors, A.periodic, batch)))
        A = replace(A, grid=grid, values=dict.fromkeys(couplings_of_coarse(grid)))
    check_coarsest(A.grid, A.periodic)
    blocks = block_layout(A.grid, A.periodic, A.shifts)
    pivots = zeros(dtype, rows, blocks.count, blocks.size, blocks.size)
    lower, upper = (zeros(dtype, rows, *each.shape) for each in (blocks.lower, blocks.upper))
    inner = BlockTridiagonalInverse(bk, pivots, lower, upper, A.grid, A.periodic, A.shifts, batch)
    cycle = recast(smoothing.cycle(levels, inner, np.ones(rows), False), dtype)
    scale = zeros(dtype, rows, n)
    return GridCycle(DiagonallyScaled(cycle, scale, scale), math.prod(A.grid), None)


def _filled(M: Any, bk: Backend, arrays: Iterator[Array]) -> Any:
    """M in another library, with its arrays replaced in order."""
    if not isinstance(M, Composed):
        return None if M is None else next(arrays)
    return M._moved({name: _filled(getattr(M, name), bk, arrays) for name in M.parts}, bk)
