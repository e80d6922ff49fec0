"""Multigrid as an automatic choice: where nobody knows the values before a compiled program runs, they decide then."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ....backends import Array, Backend
from ....sparse import Matrix, Operator
from ...grids.find import on_its_grid
from ..base import Preconditioner
from ..cycle.either import Either
from ..diagonal import DOMINANT
from ..jacobi import jacobi
from ..known import as_matrix, grid_for
from .couplings import Couplings, total
from .multigrid import Smoothing, cycle_of, described
from .plan import Coarsest
from .read import couples_neighbours, couplings_of

_DIRECT = 64**2  # points of the coarsest grid: one for which elimination takes no longer than the finer grids
_LEAST = {2: 100_000, 3: 500_000}  # unknowns by axes from which some solves take longer than to compile this
_LOPSIDED = 0.3  # of the couplings may differ from those the other way: convection beside diffusion
_POSITIVE = 0.25  # of the couplings may have the sign of the diagonal, as in finite elements
_INDEFINITE = 0.1  # of the diagonal may be missing in the sums of rows of the coarsest grid: waves of ten points there


def pays_unseen(A: Matrix) -> bool:
    """Is A, whose values are not known yet, on a grid so large that multigrid is worth the time to compile it?"""
    A = on_its_grid(A)
    bk, grid = A.bk, A.in_shape
    axes = sum(n > 1 for n in grid) if all(isinstance(n, int) for n in grid) else 0
    large = axes in _LEAST and math.prod(grid) >= _LEAST[axes]
    return large and A.systems is None and bk.compiled() and not bk.spreads_arrays() and couples_neighbours(A)


def multigrid_where_it_suits(A: Operator) -> Preconditioner:
    """The values, which are not known yet, decide in each run between it, and `jacobi` where they do not suit it:

    a diagonal with zeros, or so large that scaling by it is enough; mostly convection; waves; nonsense. It costs a few
    passes over the values to see; the grids are set up only where they are used.
    """
    matrix = as_matrix(A)
    other = jacobi(matrix)
    own = couplings_of(matrix, grid_for(matrix, A))
    bk, chosen = own.bk, _suits(own.map(own.bk.constant))
    made = []

    def hierarchy() -> list[Array]:
        cycle, _ = cycle_of(own, matrix.dtype, Coarsest(_DIRECT, _DIRECT), Smoothing())
        arrays, make = bk.take_apart(cycle.as_container())
        made.append(make)
        return arrays

    arrays = bk.where_needed(chosen[0] > 0, hierarchy)
    found = described(Either(made[-1](arrays), other.inner, chosen), None, A, (("direct", _DIRECT),))
    return replace(found, note="jacobi where the values of a run do not suit it")


def _suits(A: Couplings) -> Array:
    """1 where multigrid will do, 0 where not, `(1,)`."""
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
    suits = suits & (excess >= -_INDEFINITE * _DIRECT)  # and no NaN
    whole = ~bk.any(~there & (rest > 0))
    easy = ~bk.any(size < DOMINANT * rest)
    return bk.astype(suits & whole & ~easy, np.dtype(np.float32))


def _sum(bk: Backend, terms: list[Array]) -> Array:
    """Of all numbers, `(1,)`."""
    sizes = total(terms)
    return bk.sum(bk.reshape(sizes, (1, -1)), 1)
