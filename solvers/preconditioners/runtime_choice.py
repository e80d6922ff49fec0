"""Preconditioners that each run of a compiled program chooses by values known only then, with `jacobi` as fallback.

The decision costs a few passes over the values; levels and factors are computed only where they are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import Matrix, Operator
from ...sparse.analysis.analysis import on_its_grid
from ...sparse.operators.couplings import Couplings, sum_of_terms
from ..diagonal import DOMINANT
from .ilu.ilu import incomplete
from .ilu.pattern import UnitDiagonalMatrix
from .jacobi import jacobi
from .multigrid.couplings import couples_neighbours, couplings_of
from .multigrid.multigrid import Smoothing, cycle_in_runs, with_cost
from .operators import Either, Preconditioner
from .pipeline import Target, grid_of, of_operator

_NOTE = "jacobi in runs whose values do not suit it"
_POSITIVE = 0.25  # admissible share of positive off-diagonals: finite elements have some, and factors may not exist
_DIRECT = 64**2  # points of the coarsest grid: its elimination takes no longer than the finer grids
_LEAST = {
    2: 100_000,
    3: 500_000,
}  # unknowns, by number of axes, from which some solves take longer than compiling multigrid
_LEAST_SYMMETRIC = {2: 10_000, 3: 100_000}  # likewise, from which a run of CG with jacobi takes longer
_LOPSIDED = 0.3  # admissible asymmetry of the couplings: that of convection relative to diffusion
_INDEFINITE = 0.1  # of the diagonal: admissible negative row sum on the coarsest grid, as for waves of ten points there
_LEAST_ILU = 20_000  # unknowns from which some dozen runs save the time of compiling the factors
_SWEEPS = 4  # for each triangle: convection needs so many, and diffusion two
_LOPSIDED_ILU = 0.05  # least asymmetry of the couplings: factors of nearly symmetric matrices save iterations, not time


def pays_unseen(A: Matrix, symmetric: bool = False) -> bool:
    """Is a traced A on a grid so large that multigrid is worth its compile time?

    Args:
        symmetric: is A known to be symmetric, with a diagonal of one sign that does not dominate?
    """
    A = on_its_grid(A)
    bk, grid = A.bk, A.in_shape
    axes = sum(n > 1 for n in grid) if all(isinstance(n, int) for n in grid) else 0
    least = _LEAST_SYMMETRIC if symmetric else _LEAST
    large = axes in least and math.prod(grid) >= least[axes]
    return large and A.systems is None and bk.compiled() and not bk.spreads_arrays() and couples_neighbours(A)


@of_operator()
def multigrid_or_jacobi(own: Matrix, _: Any, *, precision: str | None = None) -> Preconditioner:
    """Multigrid, or `jacobi` in runs with a zero or dominant diagonal, strong convection, waves or NaN.

    Levels are set up by NumPy where the program may call the host, which halves the compile time.
    """
    other = jacobi(own)
    A = couplings_of(own, grid_of(own, None, find=True)).map(own.bk.constant)
    chosen = _suits_multigrid(A)
    cycle = cycle_in_runs(A, own.dtype, _DIRECT, Smoothing(precision=precision), chosen)
    found = with_cost(Either(cycle.inner, other.inner, chosen), None, (("direct", cycle.points),))
    return replace(found, note=_NOTE)


def _suits_multigrid(A: Couplings) -> Array:
    """`(1,)`: 1 where multigrid suits the values, else 0."""
    bk, diagonal = A.bk, A.diagonal
    size = bk.abs(diagonal)
    there = size > 0
    one = bk.full_like(size, 1)
    safe = bk.where(there, size, one)
    scale, unit = (
        bk.astype(1 / bk.sqrt(safe), bk.dtype(diagonal)),
        bk.conj(diagonal) / bk.astype(safe, bk.dtype(diagonal)),
    )
    rest = A.sum_of_sizes() - size
    others = {s: scale * a * A.moved(scale, s) for s, a in A.values.items() if s != A.here}
    scaled = replace(A, values={**others, A.here: bk.zeros_like(diagonal)})
    everything = _sum(bk, [bk.abs(a) for a in others.values()])
    lopsided = _sum(bk, [bk.abs(a - bk.conj(scaled.mirrored(s))) for s, a in others.items()]) / 2
    along = [bk.real(unit * a) for a in others.values()]
    positive = _sum(bk, [bk.maximum(a, bk.zeros_like(a)) for a in along])
    excess = _sum(bk, [one, *along])
    suits = (lopsided <= _LOPSIDED * everything) & (positive <= _POSITIVE * everything)
    suits = suits & (excess >= -_INDEFINITE * _DIRECT)  # false for NaN
    whole = ~bk.any(~there & (rest > 0))
    easy = ~bk.any(size < DOMINANT * rest)
    return bk.astype(suits & whole & ~easy, np.dtype(np.float32))


def ilu_pays_unseen(A: Matrix) -> bool:
    """Is a traced A so large that incomplete factors are worth their compile time?"""
    bk = A.bk
    return A.systems is None and A.shape[0] >= _LEAST_ILU and bk.compiled() and not bk.spreads_arrays()


@of_operator()
def ilu_or_jacobi(own: Matrix, target: Target) -> Preconditioner:
    """`ilu` with four sweeps, or `jacobi` in runs whose values do not suit it.

    These are nearly symmetric values, a zero or dominant diagonal, many couplings of the sign of the diagonal, and NaN.
    """
    bk, other = target.bk, jacobi(own)
    scaled = UnitDiagonalMatrix.of(own, target)
    chosen = _suits_ilu(scaled)
    made: list[tuple[Preconditioner, Callable[[Sequence[Array]], Operator]]] = []

    def arrays_of_factors() -> list[Array]:
        M = incomplete("ilu", scaled, "sweeps", sweeps=_SWEEPS)
        arrays, rebuild = bk.flatten(M.inner.as_container())
        made.append((M, rebuild))
        return arrays

    arrays = bk.where_needed(chosen[0] > 0, arrays_of_factors)
    M, rebuild = made[-1]
    return replace(M, inner=Either(rebuild(arrays), other.inner, chosen), hermitian=None, note=_NOTE)


def _suits_ilu(A: UnitDiagonalMatrix) -> Array:
    """`(1,)`: 1 where incomplete factors suit the values, else 0."""
    bk, pattern = A.host, A.pattern
    off = np.flatnonzero(pattern.rows != pattern.cols)
    root = bk.sqrt(bk.abs(A.units))
    ratio = A.take(root, pattern.rows) / A.take(root, pattern.cols)
    scaled = A.values * bk.astype(ratio, bk.dtype(A.values))  # Hermitian where A is, up to signs
    lopsided = _sum(bk, [bk.abs(scaled - bk.conj(A.take(scaled, pattern.mirror)))]) / 2
    couplings = A.take(scaled, off)
    everything, along = _sum(bk, [bk.abs(couplings)]), bk.real(couplings)
    positive = _sum(bk, [bk.maximum(along, bk.zeros_like(along))])
    rest = bk.sum_entries(bk.abs(A.take(A.values, off)), pattern.rows[off], pattern.n, sorted=True)
    suits = (lopsided >= _LOPSIDED_ILU * everything) & (positive <= _POSITIVE * everything)  # false for NaN
    whole = ~bk.any(A.diagonal() == 0)
    hard = bk.any(rest * DOMINANT > 1)
    return bk.astype(suits & whole & hard, np.dtype(np.float32))


def _sum(bk: Backend, terms: list[Array]) -> Array:
    """Sum of all elements, `(1,)`."""
    sizes = sum_of_terms(terms)
    return bk.sum(bk.reshape(sizes, (1, -1)), 1)
