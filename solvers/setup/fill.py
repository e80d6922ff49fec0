"""What a sparse factorisation costs, before it is made."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee


class FactorCost(NamedTuple):
    """Upper bounds, by the widths of the rows in a narrow order.

    SuperLU's own order needs less, on grids of three axes a tenth of the operations.
    """

    operations: float
    numbers: float


LARGE = 100_000  # unknowns from which finding an order takes longer than it helps
_BLOCKED = 0.1  # of the time that an operation on sparse factors takes, one on dense ones takes


def dense_cost(shape: tuple[int, ...]) -> FactorCost:
    """What it takes to factorise dense matrices `(..., n, n)`, in operations on sparse ones."""
    *batch, n, _ = shape
    count = float(math.prod(batch))
    return FactorCost(_BLOCKED * count * n**3, count * n**2)


def band_cost(n: int, offsets: Sequence[int]) -> FactorCost:
    """What it takes to factorise a matrix of n unknowns whose entries are on these diagonals, in their order."""
    width = float(max((abs(int(offset)) for offset in offsets), default=0))
    return FactorCost(n * width**2, 2 * n * width)


def factor_cost(A: sp.csr_array) -> FactorCost:
    """What it takes to factorise A. Cost: a few passes over the entries."""
    as_given = _in_order(A, np.arange(A.shape[0]))
    if A.shape[0] > LARGE or as_given.operations <= A.nnz:
        return as_given
    order = reverse_cuthill_mckee(sp.csr_array(A), symmetric_mode=False)
    places = np.empty(A.shape[0], np.int64)
    places[order] = np.arange(A.shape[0])
    return min(_in_order(A, places), as_given)


def _in_order(A: sp.csr_array, places: np.ndarray) -> FactorCost:
    rows = np.repeat(places, np.diff(A.indptr))
    cols = places[A.indices]
    first = np.arange(A.shape[0])
    np.minimum.at(first, np.maximum(rows, cols), np.minimum(rows, cols))
    widths = (np.arange(A.shape[0]) - first).astype(float)
    return FactorCost(float(np.sum(widths**2)), 2 * float(np.sum(widths)))
