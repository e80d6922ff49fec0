"""Shifted Laplacian: multigrid for wave operators, applied to an operator with absorption or without waves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import Matrix, SparseMatrix
from ...sparse.analysis.analysis import analysis_of, on_its_grid
from ...sparse.analysis.symmetry import CHOSEN
from ...sparse.formats import from_entries
from ...sparse.operators.concrete import concrete, nonzero_entries
from ...sparse.operators.couplings import Couplings, are_flat, sum_of_terms
from .amg.amg import amg
from .checks import check_finite, check_in_range, check_integer, check_number
from .multigrid.coarsest import exact_inverse
from .multigrid.couplings import couples_neighbours, couplings_of
from .multigrid.grid_levels import Coarsest, coarsest
from .multigrid.multigrid import checked_smoothing, cycle_of, with_cost
from .operators import Preconditioner, precision_as_setting
from .pipeline import Target, grid_of, of_operator

_NAME = "shifted-laplacian"
_SMALL = 64  # unknowns up to which the shifted matrix is inverted
_FEWEST = 2.5  # wave number times spacing of the coarsest grid: with less than 2.5 points per wave it misleads
_WAVES = 1e-3  # of the sum of the off-diagonal sizes: what the diagonal lacks in most rows of a wave operator
_PASSES = 2  # from the interior to a wall, and on to a corner
_POSITIVE = 0.25  # admissible share of off-diagonal entries of the sign of the diagonal, as in finite elements


@of_operator()
def shifted_laplacian(
    own: Matrix,
    target: Target,
    *,
    shift: float = 0.5,
    grid: Sequence[int] | None = None,
    cycle: str = "V",
    degree: int = 2,
    direct: int | None = None,
    precision: str | None = None,
) -> Preconditioner:
    """One cycle of multigrid for a wave operator (Helmholtz's, `-Laplace - k^2`) with its k^2 moved away from waves.

    k^2 is the deficit of the row sums, because those of the Laplacian are zero. Rows at a boundary, where they are not,
    get the k^2 of their neighbours. Without any deficit this is multigrid for A itself. For a complex A the cycle is
    for `-Laplace - (1 - i shift) k^2`: the absorption makes multigrid converge, and moves the eigenvalues of A M to a
    circle through 0 around 1/2 (use COCR, GMRES or biCG-stab(2)). For a real or Hermitian A the cycle is for
    `-Laplace + shift k^2`, which is Hermitian and positive definite (use MINRES). On grids the levels are those of
    "multigrid", on meshes those of "amg".

    Args:
        shift: fraction of k^2. Less absorption is nearer to A, but its cycle no longer converges; 0.5 is usual.
        grid: shape of the grid of the unknowns, last axis fastest; needed where A neither declares nor shows it.
        cycle: "V" or "W".
        degree: smoothing steps, of damped Jacobi for complex matrices, else of Chebyshev's method.
        direct: largest number of points of the coarsest grid. Default: as for "multigrid"; for a complex A the fewest
            with 2.5 points per wave, because coarser grids mislead.
        precision: "single" computes on all grids but the coarsest in single precision for an A in double precision.

    Raises:
        ValueError: a setting is invalid, an entry is infinite or NaN, or "multigrid" or "amg" refuse the matrix.
        UnsupportedOperation: the entries of A are not available.

    Stores and costs what "multigrid" or "amg" do, in complex numbers for a complex A.

    Source: Erlangga, Oosterlee and Vuik, A novel multigrid based preconditioner for heterogeneous Helmholtz problems,
    SIAM J. Sci. Comput. 27 (2006); Cocquet and Gander, SIAM J. Sci. Comput. 39 (2017), on the size of the shift;
    Bayliss, Goldstein and Turkel, J. Comput. Phys. 49 (1983), for the real one.
    """
    check_number("shift", shift, 0)
    choose = checked_smoothing(cycle, None, degree, precision)
    bk, _, _, values = nonzero_entries(own)
    if bk.on_host:
        check_finite(_NAME, bool(np.isfinite(values).all()))
        check_in_range(_NAME, concrete(own).diagonals())
    settings = (("shift", shift), ("cycle", cycle), ("degree", degree), *precision_as_setting(precision))
    placed = own if grid is not None or len(own.in_shape) > 1 else on_its_grid(own)
    if grid is None and not couples_neighbours(placed) and own.shape[0] > _SMALL:
        M = amg(_shifted_entries(own, shift), cycle=cycle, degree=degree, precision=precision)
        return _named(M, settings, own.dtype.kind == "c" and not M.hermitian)
    shape = grid_of(placed, grid, find=True)
    if own.shape[0] <= _SMALL:
        return _named(with_cost(*exact_inverse(_shifted_entries(own, shift), _NAME), ()), settings, False)
    couplings = couplings_of(placed, shape)
    hermitian = couplings.is_hermitian() if own.bk.on_host else None
    absorbs = own.dtype.kind == "c" and not hermitian
    missing, sign = _row_sum_deficit(couplings)
    size = (
        _coarsest_size(couplings, missing, absorbs) if direct is None else Coarsest(check_integer("direct", direct, 1))
    )
    side = _total(couplings, _imaginary(couplings.bk, couplings.diagonal)) if absorbs else sign
    diagonal = _shifted_diagonal(couplings.bk, couplings.diagonal, missing, sign, side, shift, absorbs)
    waves = couplings.with_values({**couplings.values, couplings.here: diagonal})
    smoothing = choose(False if absorbs else hermitian)._replace(as_grids=are_flat(target.bk, couplings.periodic))
    grids = cycle_of(waves, own.dtype, size, smoothing, hermitian)
    return _named(with_cost(grids.inner, hermitian, ()), (*settings, ("direct", grids.points)), absorbs)


def looks_like_waves(A: Matrix) -> bool:
    """Is it a known Laplacian with a negative k^2, complex and symmetric, or real and symmetric?

    Its off-diagonal entries are mostly of one sign and the diagonal of the other. In most rows the diagonal is smaller
    than the sum of the others, but not so small that there are fewer than about five points per wave.
    """
    analysis = analysis_of(A)
    asymmetry = analysis.asymmetry_without_conjugation
    if A.systems is not None or asymmetry is None or not asymmetry < CHOSEN:
        return False
    bk, rows, cols, values = nonzero_entries(A)
    if not bk.on_host or not np.isfinite(values).all():
        return False
    real, off = values[0].real, rows != cols
    total, along = real[off].sum(), np.abs(real[off])
    sums, rest = (np.bincount(rows, v, A.shape[0]) for v in (real, np.where(off, np.abs(real), 0)))
    missing = np.sign(total) * sums > _WAVES * rest
    few = along.sum() - np.abs(total) <= 2 * _POSITIVE * along.sum()
    long = -np.sign(total) * real[~off].sum() > 0.5 * np.abs(total)
    return bool(few and long and np.count_nonzero(missing) > 0.5 * A.shape[0])


def _named(M: Preconditioner, settings: tuple[tuple[str, Any], ...], absorbs: bool) -> Preconditioner:
    return replace(M, kind=_NAME, settings=settings, hermitian=False if absorbs else M.hermitian)


def _shifted_diagonal(
    bk: Backend, diagonal: Array, missing: Array, sign: Array, side: Array, shift: float, absorbs: bool
) -> Array:
    """The diagonal with absorption, of the sign that A has, or with a positive instead of the negative k^2."""
    if not absorbs:
        return diagonal + bk.astype((1 + shift) * sign * missing, bk.dtype(diagonal))
    side = bk.where(side == 0, sign, _sign(bk, side))
    return diagonal + shift * 1j * bk.astype(side * missing, bk.dtype(diagonal))


def _row_sum_deficit(A: Couplings) -> tuple[Array, Array]:
    """k^2, `(systems or 1, *grid)`, and the sign of the Laplacian, `(systems or 1, 1, ...)`."""
    bk = A.bk
    sums = bk.real(sum_of_terms([*A.values.values()]))
    sign = _sign(bk, _total(A, bk.real(A.diagonal)))
    own = bk.maximum(-sign * sums, bk.zeros_like(sums))
    missing = own
    for _ in range(sum(n > 1 for n in A.grid)):  # Walls get it from the interior, and corners from walls.
        near = missing
        for s in A.values:
            near = bk.maximum(near, A.moved(missing, s))
        missing = bk.materialize(bk.where(own > 0, own, near))
    return missing, sign


def _coarsest_size(A: Couplings, missing: Array, absorbs: bool) -> Coarsest:
    """Size of the coarsest grid: for waves one that resolves them, if it is not too large."""
    usual = coarsest(A.grid)
    if not (absorbs and A.bk.on_host):
        return usual
    axes = sum(n > 1 for n in A.grid)
    along = float(np.mean(A.sum_of_sizes() - np.abs(A.diagonal))) / max(2 * axes, 1)
    spacing = math.sqrt(float(np.median(missing)) / along) if along > 0 else 0.0
    halvings = max(int(math.log2(_FEWEST / spacing)), 0) if spacing > 0 else 30
    points = math.prod(-(-n // 2**halvings) for n in A.grid)
    return Coarsest(min(max(points, _SMALL), usual.fine))


def _shifted_entries(own: Matrix, shift: float) -> SparseMatrix:
    """The shifted matrix for any pattern of entries."""
    bk, rows, cols, values = nonzero_entries(own)
    n = own.shape[0]
    absorbs = own.dtype.kind == "c" and not (bk.on_host and analysis_of(own).seems_hermitian)
    sums = bk.sum_entries(bk.real(values), rows, n, sorted=True)
    diagonal = own.diagonals() if not bk.on_host else concrete(own).diagonals()
    sign = _sign(bk, bk.sum(bk.real(diagonal), 1))[:, None]
    missing = bk.maximum(-sign * sums, bk.zeros_like(sums))
    if bk.on_host:
        own_missing = missing
        for _ in range(_PASSES):
            near = missing.copy()
            for each, source in zip(near, missing):
                np.maximum.at(each, rows, source[cols])
            missing = np.where(own_missing > 0, own_missing, near)
    side = bk.sum(_imaginary(bk, diagonal), 1)[:, None] if absorbs else sign
    added = _shifted_diagonal(bk, bk.zeros_like(diagonal), missing, sign, side, shift, absorbs)
    whole = np.r_[rows, np.arange(n, dtype=rows.dtype)], np.r_[cols, np.arange(n, dtype=cols.dtype)]
    numbers = bk.concat([values, added], 1)
    return from_entries(bk, *whole, numbers if own.systems is not None else numbers[0], (n, n))


def _total(A: Couplings, x: Array) -> Array:
    """Sum over the grid, `(systems or 1, 1, ...)`."""
    rows = A.bk.reshape(x, (int(x.shape[0]), -1))
    return A.bk.reshape(A.bk.sum(rows, 1), (-1, *(1,) * len(A.grid)))


def _imaginary(bk: Backend, x: Array) -> Array:
    return bk.real(-1j * x)


def _sign(bk: Backend, x: Array) -> Array:
    # 0 counts as positive.
    one = bk.full_like(x, 1)
    return bk.where(x < 0, -one, one)
