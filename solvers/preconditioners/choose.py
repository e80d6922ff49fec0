"""Automatic choice of a preconditioner, by properties of the matrix, or of its values in each run.

Where values are computed in a compiled program, each run chooses between multigrid or incomplete factors and `jacobi`,
by a few passes over the values; levels and factors are computed only where they are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...sparse import Dense, FunctionOperator, Matrix, Operator, SparseMatrix, UnsupportedOperation
from ...sparse.analysis.analysis import analysis_of, on_its_grid
from ...sparse.analysis.facts import is_dominated, is_m_matrix
from ...sparse.operators.checks import with_facts
from ...sparse.operators.concrete import as_matrix, concrete, is_known
from ...sparse.operators.couplings import Couplings, sum_of_terms
from ..diagonal import DOMINANT
from .fast import fast_where_near
from .ilu import serving_ilu
from .ilu.ilu import incomplete
from .ilu.unit_diagonal import UnitDiagonalMatrix
from .jacobi import jacobi, jacobi_on_blocks
from .multigrid.couplings import couples_neighbours, couplings_of
from .multigrid.cut import multigrid_on_cut_grid
from .multigrid.multigrid import Smoothing, cycle_in_runs, multigrid, with_cost
from .operators import Either, Preconditioner, Spread
from .pipeline import Target, entries_or_products, grid_of, of_operator
from .shifted_laplacian import looks_like_waves

_SMALL = 5000  # unknowns up to which Jacobi takes less time than setting up a hierarchy
_LEAST_GRID = 256  # likewise on grids in compiled functions, which are set up once
_NOTE = "jacobi in runs whose values do not suit it"
_POSITIVE = 0.25  # admissible share of positive off-diagonals: finite elements have some, and factors may not exist
_DIRECT = 64**2  # points of the coarsest grid: its elimination takes no longer than the finer grids
_LEAST = {2: 100_000, 3: 500_000}  # unknowns, by number of axes, from which some solves outlast compiling multigrid
_LEAST_SYMMETRIC = {2: 10_000, 3: 100_000}  # likewise, from which a run of CG with jacobi takes longer
_LOPSIDED = 0.3  # admissible asymmetry of the couplings: that of convection relative to diffusion
_INDEFINITE = 0.1  # of the diagonal: admissible negative row sum on the coarsest grid, as for waves of ten points there
_LEAST_ILU = 20_000  # unknowns from which some dozen runs save the time of compiling the factors
_SWEEPS = 4  # for each triangle: convection needs so many, and diffusion two
_LOPSIDED_ILU = 0.05  # least asymmetry of the couplings: factors of nearly symmetric matrices save iterations, not time


def choose_kind(A: Operator, kinds: Container[str]) -> str:
    """Choose the kind of preconditioner for A.

    | known about A | kind |
    |---|---|
    | symmetric (Hermitian), smaller than 5000 unknowns (in compiled functions, on a grid: 256), or a batch | jacobi |
    | symmetric (Hermitian), diagonal of one sign, at least 1.02 times the sum of its row everywhere | jacobi |
    | symmetric (Hermitian), diagonal of one sign, couples neighbours on a grid | multigrid, or fast |
    | symmetric (Hermitian), diagonal of one sign, no row of zeros | amg |
    | complex symmetric, at least 5000 unknowns, on a grid, a Laplacian with a negative k^2 | shifted-laplacian |
    | not symmetric, at least 5000 unknowns, an M-matrix by its rows or columns, which do not dominate as above | amg |
    | not symmetric, sparse, some order of its rows has no zero on the diagonal | ilu |
    | products only | chebyshev |
    | not known before it runs, symmetric with a diagonal of one sign for random arguments, on a grid | multigrid |
    | the same, no grid, at least 5000 unknowns | amg |
    | not known before it runs, couples neighbours on a large grid | multigrid |
    | not known before it runs, not known to be symmetric, sparse, at least 20 000 unknowns | ilu |
    | anything else: dense, or values that are not known | jacobi |

    "multigrid" then stands for `fast_or_multigrid`, which chooses "fast" outside compiled functions where coefficients
    are so smooth that it is faster, and "ilu" for `ilu_where_it_serves`, which may reorder the rows. Where values are
    not known, both become jacobi in runs whose values do not suit them.
    """
    function, A = A, entries_or_products(A)
    if isinstance(function, FunctionOperator) and isinstance(A, Matrix):
        A = with_facts(A, function)
    if not isinstance(A, Matrix) and "chebyshev" in kinds:
        return "chebyshev"
    if not isinstance(A, Matrix) or isinstance(A, Dense):
        return "jacobi"
    if not (is_known(A) if isinstance(A, SparseMatrix) else A.known() is not None):
        return _of_traced_values(A, kinds)
    analysis = analysis_of(A)
    if analysis.seems_hermitian:
        large, several = A.shape[0] > _SMALL, A.systems is not None
        grid = "multigrid" in kinds and (large or (A.bk.compiled() and A.shape[0] >= _LEAST_GRID))
        if several or not (large or grid) or not analysis.one_sign or analysis.dominates(DOMINANT):
            return "jacobi"
        if grid and couples_neighbours(on_its_grid(A)):
            return "multigrid"
        whole = large and "amg" in kinds and bool(np.all(concrete(A).diagonals() != 0))
        return "amg" if whole else "jacobi"
    if "shifted-laplacian" in kinds and _is_of_waves(A):
        return "shifted-laplacian"
    if "amg" in kinds and _is_elliptic(A):
        return "amg"
    return "ilu" if "ilu" in kinds else "jacobi"


def _of_traced_values(A: Matrix, kinds: Container[str]) -> str:
    analysis = analysis_of(A)
    definite = analysis.seems_hermitian and bool(analysis.maybe_definite)  # for random arguments
    if "multigrid" in kinds and pays_unseen(A, symmetric=definite):
        return "multigrid"
    if definite:
        return "amg" if "amg" in kinds and A.shape[0] > _SMALL and A.bk.sets_up_by_host() else "jacobi"
    return "ilu" if "ilu" in kinds and ilu_pays_unseen(A) else "jacobi"


def _is_elliptic(A: Matrix) -> bool:
    """Is a non-symmetric A like convection-diffusion or a Markov chain, and large enough for a hierarchy?"""
    if A.shape[0] <= _SMALL or A.systems is not None:
        return False
    entries = analysis_of(A).entries
    by_rows_and_columns = () if entries is None else (entries, entries.T.tocsr())
    return any(is_m_matrix(B) and not is_dominated(B, DOMINANT) for B in by_rows_and_columns)


def _is_of_waves(A: Matrix) -> bool:
    """Is a complex A like Helmholtz's equation with absorption, on a grid, and large enough for a hierarchy?"""
    large = A.dtype.kind == "c" and A.shape[0] > _SMALL and A.systems is None
    return large and looks_like_waves(A) and couples_neighbours(on_its_grid(A))


def fast_or_multigrid(A: Operator, precision: str | None = None) -> Preconditioner:
    """`fast` outside compiled functions where coefficients are smooth, else `multigrid`."""
    if not is_known(as_matrix(A)):
        return multigrid_or_jacobi(A, precision=precision)
    near = None if A.bk.compiled() else fast_where_near(A, precision)
    return multigrid(A, precision=precision) if near is None else near


def ilu_where_it_serves(A: Operator) -> Preconditioner:
    """`ilu` for values known before the program runs, else `ilu_or_jacobi`."""
    return (serving_ilu if is_known(as_matrix(A)) else ilu_or_jacobi)(A)


AUTOMATIC: dict[str, Callable[..., Preconditioner]] = {"multigrid": fast_or_multigrid, "ilu": ilu_where_it_serves}
"""Chosen kind -> the function that builds it, if not that of the kind itself."""


def chosen_for_blocks(A: Operator, precision: str | None, spread: Spread) -> Preconditioner:
    """`multigrid` on blocks, or `jacobi`: they send no more than ghost values and one small gathered grid.

    Multigrid is for an A that couples neighbours on a grid whose blocks are boxes, unless its diagonal dominates, or A
    is known to be symmetric with a diagonal of both signs.
    """
    own = entries_or_products(A)
    suits = bool(spread.cut.all_names) and isinstance(own, SparseMatrix) and couples_neighbours(on_its_grid(own))
    if isinstance(own, SparseMatrix) and suits and is_known(own):
        analysis = analysis_of(own)
        suits = not analysis.dominates(DOMINANT) and (not analysis.seems_hermitian or bool(analysis.one_sign))
    if suits:
        with suppress(ValueError, UnsupportedOperation):  # Only building it shows whether it suits A.
            M = multigrid_on_cut_grid(A, spread=spread, precision=precision)
            if M is not None:
                return M
    M = jacobi_on_blocks(A, spread=spread)
    return jacobi(A) if M is None else M


# --- chosen in each run by values known only then ---


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
