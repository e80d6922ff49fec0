"""Runtime choice of incomplete factors: where values are known only when a compiled program runs, they decide then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ....backends import Array, Backend
from ....sparse import Matrix, Operator
from ...diagonal import DOMINANT
from ..base import Preconditioner
from ..jacobi import jacobi
from ..operators import Either
from ..pipeline import of_operator
from ..target import Target
from .ilu import incomplete
from .pattern import UnitDiagonalMatrix

_LEAST = 20_000  # unknowns from which some dozen runs save the time of compiling the factors
_SWEEPS = 4  # for each triangle: convection moves so many cells in one, where diffusion needs two
_LOPSIDED = 0.05  # least asymmetry of the couplings: factors of nearly symmetric matrices save iterations, not time
_POSITIVE = 0.25  # admissible share of positive off-diagonals, beside which the factors may not exist


def ilu_pays_unseen(A: Matrix) -> bool:
    """Is A, of traced values, so large that incomplete factors are worth their compile time?"""
    bk = A.bk
    return A.systems is None and A.shape[0] >= _LEAST and bk.compiled() and not bk.spreads_arrays()


@of_operator()
def ilu_or_jacobi(own: Matrix, target: Target) -> Preconditioner:
    """`ilu` with four sweeps, or in runs whose values do not suit it, `jacobi`.

    Jacobi is for values that are nearly symmetric, a zero or dominant diagonal, many couplings of the sign of the
    diagonal, and NaN. The decision costs a few passes over the values; factors are made only where they are used.
    """
    bk, other = target.bk, jacobi(own)
    scaled = UnitDiagonalMatrix.of(own, target)
    chosen = _suits(scaled)
    made: list[Preconditioner] = []
    rebuild: list[Callable[[Sequence[Array]], Operator]] = []

    def arrays_of_factors() -> list[Array]:
        found = incomplete("ilu", scaled, "sweeps", sweeps=_SWEEPS, levels=None, build=None, shift="auto")
        arrays, make = bk.flatten(found.inner.as_container())
        made.append(found)
        rebuild.append(make)
        return arrays

    arrays = bk.where_needed(chosen[0] > 0, arrays_of_factors)
    inner = Either(rebuild[-1](arrays), other.inner, chosen)
    return replace(made[-1], inner=inner, hermitian=None, note="jacobi where the values of a run do not suit it")


def _suits(A: UnitDiagonalMatrix) -> Array:
    """1 where incomplete factors suit the values, else 0, `(1,)`."""
    bk, pattern = A.host, A.pattern
    off = np.flatnonzero(pattern.rows != pattern.cols)
    root = bk.sqrt(bk.abs(A.units))
    ratio = bk.take_in_bounds(root, pattern.rows, 0) / bk.take_in_bounds(root, pattern.cols, 0)
    scaled = A.values * bk.astype(ratio, bk.dtype(A.values))  # Hermitian where A is, up to signs
    lopsided = _sum(bk, bk.abs(scaled - bk.conj(bk.take_in_bounds(scaled, pattern.mirror, 0)))) / 2
    couplings = bk.take_in_bounds(scaled, off, 0)
    everything, along = _sum(bk, bk.abs(couplings)), bk.real(couplings)
    positive = _sum(bk, bk.maximum(along, bk.zeros_like(along)))
    rest = bk.sum_entries(bk.abs(bk.take_in_bounds(A.values, off, 0)), pattern.rows[off], pattern.n, sorted=True)
    suits = (lopsided >= _LOPSIDED * everything) & (positive <= _POSITIVE * everything)  # and no NaN
    whole = ~bk.any(A.diagonal() == 0)
    hard = bk.any(rest * DOMINANT > 1)
    return bk.astype(suits & whole & hard, np.dtype(np.float32))


def _sum(bk: Backend, terms: Array) -> Array:
    """Sum of all elements, `(1,)`."""
    return bk.sum(bk.reshape(terms, (1, -1)), 1)
