"""Cycle of classical levels of a matrix that is not symmetric: coarse and fine unknowns are smoothed in turns."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .....sparse import Operator
from ....diagonal import DiagonalOperator
from ...cycle.cf_relaxation import CFRelaxationLevel
from ...cycle.dense import inverse_of_scaled, rounding_of
from ...cycle.scales import times_diagonals
from ...operators import DiagonallyScaled, permuted, recast
from ...target import Target
from ..level import placed
from ..levels import HostLevel, is_diagonal, is_solved_by_scaling, places_in
from .cycle import eliminated_level, is_in_range
from .rows import gathered, on_diagonal, repeated, selected


def cf_cycle(levels: list[HostLevel], max_coarse: int, target: Target, dtype: np.dtype) -> Operator:
    """The cycle over all levels, finest first, for vectors of `dtype`; inside it is in that of `target`.

    Unknowns of one of two colours are eliminated on the finest levels.

    Each level is divided by a diagonal D: that of A, but the sum of the other entries of a row within the coarse or the
    fine unknowns where that is larger, so that Jacobi steps on either of them do not diverge.

    Raises:
        ValueError: the coarsest level is too large.
    """
    if levels[0].exact and is_in_range(levels, dtype):
        outside = Target(target.A, dtype)
        below = cf_cycle(levels[1:], max_coarse, target, dtype)
        return eliminated_level(levels[0], below, False, outside)
    diagonals = [_diagonal(level.A, level.splitting) for level in levels]
    orders = [_coarse_first(np.asarray(level.splitting)) for level in levels[:-1]]
    orders.append(np.arange(len(diagonals[-1]), dtype=np.int32))
    found = recast(_coarsest(levels, diagonals[-1], max_coarse, target), target.stored)
    for k, level in reversed(list(enumerate(levels[:-1]))):
        found = _level(level, orders[k : k + 2], diagonals[k : k + 2], found, target)
    outside, ones = Target(target.A, dtype), np.ones((1, len(orders[0])))
    right = outside.array(1 / diagonals[0][None, orders[0]])
    whole = DiagonallyScaled(recast(found, outside.stored), outside.array(ones), right)
    return permuted(whole, orders[0], outside)


def _coarsest(levels: list[HostLevel], diagonal: np.ndarray, max_coarse: int, target: Target) -> Operator:
    A = levels[-1].A
    if is_diagonal(A) or is_solved_by_scaling(A, max_coarse):
        return DiagonalOperator(target.bk, target.array(np.ones((1, A.shape[0]))))
    rounding = rounding_of(target.A.dtype, len(levels))
    return target.dense(inverse_of_scaled(1 / diagonal, A, np.ones(A.shape[0]), False, rounding))


def _level(
    level: HostLevel, orders: list[np.ndarray], diagonals: list[np.ndarray], coarse: Operator, target: Target
) -> CFRelaxationLevel:
    (order, below), (diagonal, diagonal_below) = orders, diagonals
    n, k = len(order), int(np.count_nonzero(np.asarray(level.splitting)))
    N = _renumbered(_iteration(level.A, diagonal), order)
    prolongation, restriction = sp.csr_array(level.P), sp.csr_array(level.R)
    P = _renumbered(prolongation[order], below)
    R = times_diagonals(1 / diagonal_below[below], _renumbered(restriction[below], order), diagonal[order])
    fine = N[order[k:]]
    to_coarse = fine.indices < k
    FC, FF = selected(fine, to_coarse), selected(fine, ~to_coarse)
    FC = sp.csr_array((FC.data, FC.indices, FC.indptr), (n - k, k))
    FF = sp.csr_array((FF.data, FF.indices - k, FF.indptr), (n - k, n - k))
    rows = "csr" if target.bk.has_compiled_rows else None  # blocks are on few diagonals nowhere
    A, C, FC, FF, P, R = (target.matrix(M, rows, copy=False) for M in (level.A, N[order[:k]], FC, FF, P, R))
    tentative = placed(level.tentative, target.bk, target.dtype, target.like)
    return CFRelaxationLevel(A, C, FC, FF, P, R, coarse, tentative)


def _renumbered(A: sp.csr_array, order: np.ndarray) -> sp.csr_array:
    """A with columns in an order."""
    return sp.csr_array((A.data, gathered(places_in(order), A.indices), A.indptr), A.shape)


def _iteration(A: sp.csr_array, diagonal: np.ndarray) -> sp.csr_array:
    """`I - D^-1 A`, without zeros."""
    data = A.data * repeated(-1 / diagonal, A)
    own = on_diagonal(A)
    data[own] = 1 - A.data[own] / repeated(diagonal, A)[own]
    return selected(A, data != 0, data)


def _coarse_first(splitting: np.ndarray) -> np.ndarray:
    return np.concatenate([np.flatnonzero(splitting), np.flatnonzero(~splitting)]).astype(np.int32)


def _diagonal(A: sp.csr_array, splitting: np.ndarray | None) -> np.ndarray:
    """By which a level is divided; 1 in rows of zeros."""
    diagonal = A.diagonal()
    size = np.abs(diagonal)
    unit = np.where(size == 0, 1, diagonal) / np.where(size == 0, 1, size)
    if splitting is not None:
        sizes = abs(A)
        within = np.where(splitting, sizes @ splitting.astype(float), sizes @ (~splitting).astype(float)) - size
        size = np.where(within > (1 + 1e-12) * size, within, size)
    return np.where(size == 0, 1, size * unit)
