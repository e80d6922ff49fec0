"""Prolongations of aggregation on a known pattern: tentative ones, smoothed by a step of damped Jacobi or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ....backends import Array, Backend
from ....sparse import SparseMatrix
from ....sparse.formats import Structure
from ....sparse.formats.compressed import CsrStructure
from ....sparse.formats.entries.integers import starts_of
from ....sparse.formats.entries.order import Order, sorted_entries
from ....sparse.formats.entries.regather import take_or_zero
from ....sparse.formats.operations.arithmetic import Meeting, products_of_entries
from .scaled_values import ScaledValues
from .settings import OMEGA


@dataclass(frozen=True)
class Smoothed:
    """Rule of the prolongation `(I - omega / rho D⁻¹ A) T`, or T.

    Attributes:
        tentative: the structure of T.
        smooths: is it smoothed?
    """

    tentative: Structure
    smooths: bool

    @property
    def shape(self) -> tuple[int, int]:
        """`(n, m)` of the prolongation."""
        return self.tentative.shape

    def plan(self, A: CsrStructure) -> SmoothingPlan:
        """Places for matrices with the structure of A."""
        T, shape = self.tentative, self.tentative.shape
        smoothing = products_of_entries(A, T) if self.smooths else None
        first = T.entries()
        images = (smoothing.rows, smoothing.cols) if smoothing else (first.rows[:0], first.cols[:0])
        both = sorted_entries(np.concatenate([first.rows, images[0]]), np.concatenate([first.cols, images[1]]), shape)
        where = _sources(both, len(first.rows))
        P = CsrStructure(starts_of(both.rows, shape[0]), both.cols, shape)
        return SmoothingPlan(P, first.rows, smoothing, where[0], where[1] if smoothing else None)


class SmoothingPlan(NamedTuple):
    """Places of the numbers of `T - omega / rho D⁻¹ A T`."""

    prolongation: CsrStructure
    rows: np.ndarray  # of the entries of T
    smoothing: Meeting | None  # of A T; None where P = T
    tentative: np.ndarray  # of each entry of P: the number of T's, or -1
    smoothed: np.ndarray | None  # of each entry of P: the number of A T's, or -1

    def values(self, bk: Backend, level: ScaledValues, T: SparseMatrix, rho: Array) -> Array:
        """Entries in row order of P for the scaled matrix, with bounds `rho` of its eigenvalues, one per system."""
        a, last = level.values, len(level.values.shape) - 1
        t = bk.astype(bk.constant(T.entry_arrays()), bk.dtype(a))
        t = t / bk.take_in_bounds(level.scale, self.rows, last)
        p = _or_zero(bk, t, self.tentative)
        if self.smoothing is None or self.smoothed is None:
            return p
        omega = bk.astype(OMEGA / rho, bk.dtype(a))
        omega = omega[:, None] if last else omega[0]
        return p - omega * _or_zero(bk, self.smoothing.values(bk, a, t), self.smoothed)


def _sources(both: Order, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Sources of each entry of a union: index in the first list (of `count`) and in the second, or -1."""
    total = len(both.order) if both.order is not None else len(both.rows)
    order = both.order if both.order is not None else np.arange(total, dtype=np.int32)
    ids = both.ids if both.ids is not None else np.arange(total, dtype=np.int32)
    found = np.full((2, len(both.rows)), -1, np.int32)
    second = order >= count
    found[0, ids[~second]] = order[~second]
    found[1, ids[second]] = order[second] - np.int32(count)
    return found[0], found[1]


def _or_zero(bk: Backend, values: Array, places: np.ndarray) -> Array:
    """Gather values, 0 for index -1."""
    if places.size and places.min() >= 0:
        return bk.take_in_bounds(values, places, len(values.shape) - 1)
    return take_or_zero(bk, values, places)
