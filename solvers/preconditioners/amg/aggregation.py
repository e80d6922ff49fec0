"""Aggregation AMG: pyamg aggregates; prolongations are computed here, also for other values on the same pattern."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend
from ....sparse import SparseMatrix
from ....sparse.formats import Structure
from ....sparse.formats.compressed import CsrStructure
from ....sparse.formats.entries.integers import Order, sorted_entries, starts_of
from ....sparse.formats.entries.values import take_or_zero
from ....sparse.formats.operations import Meeting, products_of_entries
from .interpolation import ScaledValues
from .levels import HostLevel, adjoint, eigenvalue_bound, relative, without_duplicates
from .settings import OMEGA, AmgSettings

_SWEEPS = 4  # of Gauss-Seidel, as in pyamg, which improve constants as near-null-space candidates


def aggregated_levels(
    A: sp.csr_array, settings: AmgSettings, hermitian: bool, near_nullspace: np.ndarray | None, block_size: int
) -> list[HostLevel]:
    """Levels, finest first, until one is small or cannot be coarsened.

    Source: Vanek, Mandel and Brezina, Algebraic multigrid by smoothed aggregation, Computing 56 (1996).
    """
    from pyamg.aggregation import aggregate, fit_candidates
    from pyamg.strength import symmetric_strength_of_connection

    levels = [HostLevel.finest(A)]
    # Near-null-space candidates of A, and for a non-Hermitian A of its adjoint.
    if near_nullspace is None:
        ones = np.kron(np.ones((A.shape[0] // block_size, 1), A.dtype), np.eye(block_size, dtype=A.dtype))
        right, left = _relaxed(A, ones), None if hermitian else _relaxed(adjoint(A), ones)
    else:
        right = near_nullspace.astype(A.dtype)
        left = None if hermitian else right
    while A.shape[0] > settings.max_coarse and len(levels) < settings.max_levels:
        blocks = A if block_size == 1 else sp.bsr_array(A, blocksize=(block_size, block_size))
        strength = symmetric_strength_of_connection(blocks, theta=settings.threshold)
        aggregates = aggregate.standard_aggregation(strength)[0]
        T, right = fit_candidates(aggregates, right)
        of_adjoint = None
        if left is not None:
            of_adjoint, left = fit_candidates(aggregates, left)
            of_adjoint = without_duplicates(of_adjoint)
        if not 0 < T.shape[1] < A.shape[0]:
            break
        level = with_transfers(levels[-1], without_duplicates(T), of_adjoint, settings)
        levels[-1:] = level, level.below(without_duplicates(level.R @ sp.csr_array(A @ level.P)))
        A, block_size = levels[-1].A, right.shape[1]
    return levels


def with_transfers(
    level: HostLevel, T: sp.csr_array, of_adjoint: sp.csr_array | None, settings: AmgSettings
) -> HostLevel:
    """The level with P from a tentative prolongation T, and R from that of the adjoint matrix (None: R is Pᴴ)."""
    rho = eigenvalue_bound(level.A)
    P = _smoothed(level.A, T, rho) if settings.smooths else T
    R = adjoint(P)
    if of_adjoint is not None:
        R = adjoint(_smoothed(adjoint(level.A), of_adjoint, rho) if settings.smooths else of_adjoint)
    return level._replace(P=P, R=R, tentative=T, rho=rho)


def _smoothed(A: sp.csr_array, T: sp.csr_array, rho: float) -> sp.csr_array:
    """`(I - omega / rho D⁻¹ A) T`, with D the diagonal of A where it is not zero."""
    return sp.csr_array(T - OMEGA / rho * (relative(A) @ T))


def _relaxed(A: sp.csr_array, columns: np.ndarray) -> np.ndarray:
    """Candidates after relaxation on A x = 0, where the result is finite and not zero; else unchanged."""
    from pyamg.relaxation.relaxation import gauss_seidel

    relaxed = []
    for column in columns.T:
        x = np.ascontiguousarray(column)
        gauss_seidel(A, x, np.zeros_like(x), iterations=_SWEEPS, sweep="symmetric")
        relaxed.append(x if np.isfinite(x).all() and x.any() else column)
    return np.stack(relaxed, 1)


# --- prolongations on a known pattern, for values that may be traced ---


@dataclass(frozen=True)
class Smoothed:
    """Rule of the prolongation `(I - omega / rho D⁻¹ A) T` if `smooths`, else T."""

    tentative: Structure
    smooths: bool

    @property
    def shape(self) -> tuple[int, int]:
        return self.tentative.shape

    def plan(self, A: CsrStructure) -> SmoothingPlan:
        T, shape = self.tentative, self.tentative.shape
        smoothing = products_of_entries(A, T) if self.smooths else None
        first = T.entries()
        images = (smoothing.rows, smoothing.cols) if smoothing else (first.rows[:0], first.cols[:0])
        both = sorted_entries(np.concatenate([first.rows, images[0]]), np.concatenate([first.cols, images[1]]), shape)
        P = CsrStructure(starts_of(both.rows, shape[0]), both.cols, shape)
        return SmoothingPlan(P, first.rows, smoothing, *_sources(both, len(first.rows)))


class SmoothingPlan(NamedTuple):
    """Positions of the values of `T - omega / rho D⁻¹ A T`."""

    prolongation: CsrStructure
    rows: np.ndarray  # of the entries of T
    smoothing: Meeting | None  # of A T; None where P = T
    tentative: np.ndarray  # of each entry of P: the index of that of T, or -1
    smoothed: np.ndarray  # likewise, of that of A T

    def values(self, bk: Backend, level: ScaledValues, T: SparseMatrix, rho: Array) -> Array:
        """Values of P in row order, for the scaled matrix of a level with eigenvalue bounds `rho`, one per system."""
        a, last = level.values, len(level.values.shape) - 1
        t = bk.astype(bk.constant(T.entry_arrays()), bk.dtype(a))
        t = t / bk.take_in_bounds(level.scale, self.rows, last)
        p = _or_zero(bk, t, self.tentative)
        if self.smoothing is None:
            return p
        omega = bk.astype(OMEGA / rho, bk.dtype(a))
        omega = omega[:, None] if last else omega[0]
        return p - omega * _or_zero(bk, self.smoothing.values(bk, a, t), self.smoothed)


def _sources(both: Order, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sources of each entry of a union: index in the first list (of length `count`) and in the second, or -1."""
    total = len(both.order) if both.order is not None else len(both.rows)
    order = both.order if both.order is not None else np.arange(total, dtype=np.int32)
    ids = both.ids if both.ids is not None else np.arange(total, dtype=np.int32)
    sources = np.full((2, len(both.rows)), -1, np.int32)
    second = order >= count
    sources[0, ids[~second]] = order[~second]
    sources[1, ids[second]] = order[second] - np.int32(count)
    return sources[0], sources[1]


def _or_zero(bk: Backend, values: Array, places: np.ndarray) -> Array:
    if places.size and places.min() >= 0:
        return bk.take_in_bounds(values, places, len(values.shape) - 1)
    return take_or_zero(bk, values, places)
