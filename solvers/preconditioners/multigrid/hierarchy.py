"""The levels of structured multigrid, in variables in which the absolute row sums of each matrix are one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ....backends import Array, Backend
from .couplings import Couplings
from .galerkin import coarse_couplings
from .on_grid import MatrixOnGrid
from .plan import Coarsest, check_coarsest, factors_for, has_details
from .probes import probed_couplings
from .transfer import Interpolation
from .weights import Weights, every, weights


class GridLevel(NamedTuple):
    """A matrix, and how values come to it from the next coarser grid; of the coarsest one only the matrix.

    Attributes:
        A: scaled on both sides; the coarsest one of several is not.
        P: the interpolation from the next coarser grid's own variables to the scaled ones; None on the coarsest one.
        scale: what A was multiplied with on each side, `(systems or 1, *grid)`, if it was.
    """

    A: Couplings
    scale: Array | None
    P: Interpolation | None


def levels_of(A: Couplings, direct: Coarsest, hermitian: bool, directional: bool, dust: float) -> list[GridLevel]:
    """Finest first, until there are as few points as asked for, or no axis can be coarsened.

    Args:
        A: with a diagonal that is positive where it is not zero.
        dust: what may be rounding, see `without_dust`.

    Raises:
        ValueError: the coarsest grid is too large.
    """
    bk, made = A.bk, []
    while _points(A.grid) > direct.most:
        if _points(A.grid) <= direct.fine and (not bk.on_host or has_details(A)):
            break
        factors = factors_for(A, directional)
        if factors is None or max(factors) == 1:
            break
        scale = _scale(A)
        own = scaled(A, scale)
        W = _as(bk, weights(_symmetric_part(A, hermitian), factors), bk.dtype(A.diagonal))
        W = _divided(bk, W, scale, factors)
        P = Interpolation.of(bk, W, A.grid, factors, A.periodic, A.systems)
        made.append(GridLevel(own, scale, P))
        if bk.is_eager:
            A = coarse_couplings(own, W, factors, hermitian, dust)
        else:
            A = probed_couplings(MatrixOnGrid.of(own), P, dust)
    check_coarsest(A.grid, A.periodic)
    if made:
        return [*made, GridLevel(A, None, None)]
    scale = _scale(A)
    return [GridLevel(scaled(A, scale), scale, None)]


def scaled(A: Couplings, scale: Array) -> Couplings:
    """With a diagonal on both sides."""
    return A.with_values({s: scale * a * A.moved(scale, s) for s, a in A.values.items()})


def _points(grid: Sequence[int]) -> int:
    found = 1
    for n in grid:
        found *= n
    return found


def _scale(A: Couplings) -> Array:
    """`1 / sqrt` of the absolute row sums, by which no eigenvalue is above one; 1 for rows of zeros.

    Source: Baker, Falgout, Kolev and Yang, Multigrid smoothers for ultraparallel computing, SIAM J. Sci. Comput. 33
    (2011), for smoothing with these sums.
    """
    bk, sums = A.bk, A.sum_of_sizes()
    one = bk.full_like(sums, 1)
    return bk.in_memory(bk.where(sums > 0, 1 / bk.sqrt(bk.where(sums > 0, sums, one)), one))


def _symmetric_part(A: Couplings, hermitian: bool) -> Couplings:
    """The real one, that interpolation follows."""
    return (A if hermitian else A.symmetrised()).map(A.bk.real)


def _as(bk: Backend, W: Weights, dtype: object) -> Weights:
    return {p: {c: bk.astype(w, dtype) for c, w in own.items()} for p, own in W.items()}  # type: ignore[arg-type]


def _divided(bk: Backend, W: Weights, scale: Array, factors: tuple[int, ...]) -> Weights:
    """For the variables `u / scale` of the finer grid."""
    found = {}
    for p, own in W.items():
        rows = every(bk, scale, p, factors)
        inverse = bk.where(rows > 0, 1 / bk.where(rows > 0, rows, 1 + 0 * rows), 0 * rows)
        found[p] = {c: inverse * w for c, w in own.items()}
    return found
