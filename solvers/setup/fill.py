"""Fill-in and cost of a sparse factorisation, estimated beforehand."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ...sparse import DIA, Matrix, SparseMatrix, Stencil


class FactorCost(NamedTuple):
    """Upper bounds of fill and operations, from the envelope (skyline) in a narrow order.

    SuperLU's own order needs less, on grids of three axes a tenth of the operations.
    """

    operations: float
    numbers: float


LARGE = 100_000  # unknowns from which finding an order takes longer than it helps
_LISTED = 2 * 10**7  # entries up to which a pattern is gone through
_MEMORY = 0.25  # of the machine's, that factors may take
_BLOCKED = 0.1  # of the time that an operation on sparse factors takes, one on dense ones takes


def dense_cost(shape: tuple[int, ...]) -> FactorCost:
    """Cost of factorising dense matrices `(..., n, n)`, in sparse operations."""
    *batch, n, _ = shape
    count = float(math.prod(batch))
    return FactorCost(_BLOCKED * count * n**3, count * n**2)


def band_cost(n: int, offsets: Sequence[int]) -> FactorCost:
    """Cost of factorising a matrix with these diagonals in the given order."""
    width = float(max((abs(int(offset)) for offset in offsets), default=0))
    return FactorCost(n * width**2, 2 * n * width)


def matrix_cost(matrix: Matrix) -> FactorCost:
    """Cost of factorising a matrix or a batch, from the pattern if values are unknown.

    For an unknown pattern, the cost of a three-dimensional grid.
    """
    n, count = matrix.shape[0], matrix.systems or 1
    structure: Any = matrix.structure if isinstance(matrix, SparseMatrix) else None
    if n > LARGE and (offsets := diagonals_of(matrix)) is not None:
        one = band_cost(n, offsets)  # which tells enough, without its entries row by row
    elif (known := matrix.known()) is not None:
        return known_cost(known)
    elif structure is not None and matrix.nnz <= _LISTED:
        rows, cols, _ = structure.entries()
        one = factor_cost(sp.csr_array((np.ones(len(rows), np.int8), (rows, cols)), matrix.shape))
    else:
        one = FactorCost(10 * float(n) ** 2, 10 * float(n) ** (4 / 3))
    return FactorCost(count * one.operations, count * one.numbers)


def diagonals_of(matrix: Matrix) -> Sequence[int] | None:
    """The offsets of all diagonals with entries, of a format that knows them."""
    structure: Any = matrix.structure if isinstance(matrix, DIA | Stencil) else None
    found = structure.diagonals if isinstance(matrix, Stencil) else structure
    return None if found is None else tuple(found.offsets)


def known_cost(known: Any) -> FactorCost:
    """Cost for a SciPy matrix, several of mostly one pattern, or dense ones `(..., n, n)`."""
    if sp.issparse(known):
        return factor_cost(sp.csr_array(known))
    if isinstance(known, tuple):
        one = factor_cost(sp.csr_array(known[0])) if known else FactorCost(0, 0)
        return FactorCost(len(known) * one.operations, len(known) * one.numbers)
    return dense_cost(known.shape)


def fits(cost: FactorCost, dtype: np.dtype) -> bool:
    """Do the factors fit into the memory of this machine, beside all else?"""
    return cost.numbers * np.dtype(dtype).itemsize * 2 <= _MEMORY * _memory()


def have_room(matrix: Matrix, cost: Callable[[Matrix], FactorCost] = matrix_cost) -> bool:
    """Do the factors fit, as far as `cost` tells? It is not asked where their band fits, in the order of the rows."""
    offsets, count = diagonals_of(matrix), matrix.systems or 1
    if offsets is not None:
        most = band_cost(matrix.shape[0], offsets)
        if fits(FactorCost(count * most.operations, count * most.numbers), matrix.dtype):
            return True
    return fits(cost(matrix), matrix.dtype)


def _memory() -> float:
    """Bytes of the machine; where it does not tell, 8 GB."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return 8e9


def factor_cost(A: sp.csr_array) -> FactorCost:
    """Cost of factorising A. Takes a few passes over the entries."""
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
