"""Cycle of classical levels of a matrix that is not symmetric: coarse and fine unknowns are smoothed in turns."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from .....sparse import Operator
from ...cycle.dense import check_dense, known_inverse, rounding_of
from ...cycle.permuted import permuted
from ...cycle.recast import recast
from ...cycle.scaled import DiagonallyScaled
from ...cycle.scales import times_diagonals
from ...cycle.split import SplitLevel
from ...cycle.target import Target
from ..hierarchy import HostLevel
from .rows import reduced, repeated, selected


def split_cycle(levels: list[HostLevel], target: Target, dtype: np.dtype) -> Operator:
    """The cycle over all levels, finest first, for vectors of `dtype`; inside it is in that of `target`.

    Each level is divided by a diagonal D: that of A, but the sum of the other entries of a row within the coarse or the
    fine unknowns where that is larger, so that Jacobi steps on either of them do not diverge.
    """
    orders = [_coarse_first(level.splitting) for level in levels[:-1]]
    inverses = [1 / _diagonal(level.A, level.splitting) for level in levels]
    A, last = levels[-1].A, inverses[-1]
    check_dense(A.shape[0])
    scaled = times_diagonals(last, A, np.ones(len(last))).toarray()
    found: Operator = target.dense(known_inverse(scaled, False, rounding_of(target.A.dtype, len(levels))))
    orders.append(np.arange(A.shape[0], dtype=np.int32))
    for k, level in reversed(list(enumerate(levels[:-1]))):
        found = _level(level, orders[k : k + 2], inverses[k : k + 2], recast(found, target.stored), target)
    outside = Target(target.A, dtype)
    one = np.ones((1, len(inverses[0])))
    whole = DiagonallyScaled(
        recast(found, outside.stored), outside.array(one), outside.array(inverses[0][None, orders[0]])
    )
    return permuted(whole, orders[0], outside)


def _level(
    level: HostLevel, orders: list[np.ndarray], inverses: list[np.ndarray], coarse: Operator, target: Target
) -> SplitLevel:
    (order, below), (inverse, inverse_below) = orders, inverses
    k = int(level.splitting.sum())
    N = _renumbered(_iteration(level.A, inverse), order)
    P = _renumbered(level.P[order], below)
    fine, rows = N[order[k:]], "csr" if target.bk.has_compiled_rows else None
    to_coarse = fine.indices < k
    FC, FF = selected(fine, np.flatnonzero(to_coarse)), selected(fine, np.flatnonzero(~to_coarse))
    FF = sp.csr_array((FF.data, FF.indices - k, FF.indptr), (len(order) - k,) * 2)
    FC = sp.csr_array((FC.data, FC.indices, FC.indptr), (len(order) - k, k))
    R = times_diagonals(inverse_below[below], sp.csr_array(P.conj().T), 1 / inverse[order])
    return SplitLevel(*(target.matrix(M, rows) for M in (N[order[:k]], FC, FF, P, R)), coarse)


def _renumbered(A: sp.csr_array, order: np.ndarray) -> sp.csr_array:
    """A with columns in an order."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=order.dtype)
    return sp.csr_array((A.data, places.take(A.indices, mode="clip"), A.indptr), A.shape)


def _iteration(A: sp.csr_array, inverse: np.ndarray) -> sp.csr_array:
    """`I - D^-1 A`, without zeros."""
    data = A.data * repeated(-inverse, A)
    data[A.indices == repeated(np.arange(A.shape[0], dtype=A.indices.dtype), A)] += 1
    return selected(A, np.flatnonzero(data), data)


def _coarse_first(splitting: np.ndarray) -> np.ndarray:
    return np.concatenate([np.flatnonzero(splitting), np.flatnonzero(~splitting)]).astype(np.int32)


def _diagonal(A: sp.csr_array, splitting: np.ndarray | None) -> np.ndarray:
    """By which a level is divided; 1 in rows of zeros."""
    diagonal = A.diagonal()
    size = np.abs(diagonal)
    if splitting is not None:
        same = np.where(repeated(splitting, A) == splitting.take(A.indices), np.abs(A.data), 0)
        size = np.maximum(size, reduced(np.add, same, A.indptr, 0.0) - size)
    unit = np.where(diagonal == 0, 1, diagonal) / np.where(diagonal == 0, 1, np.abs(diagonal))
    return np.where(size == 0, 1, size * unit)
