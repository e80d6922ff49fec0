"""Cost of the factors of a matrix, counted or estimated before they are made."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ..sparse import DIA, Matrix, SparseMatrix, Stencil
from ..sparse.analysis.analysis import on_its_grid
from ..sparse.analysis.graph import column_counts, level_widths, minimum_degree
from .factors.superlu import rows_of_columns
from .preconditioners.multigrid.couplings import couples_neighbours


class FactorCost(NamedTuple):
    """Cost of factors.

    Attributes:
        operations: multiplications and additions.
        numbers: that the factors hold.
        indexed: are they sparse? Then placing a number takes longer than the operations on it, on a plane.
    """

    operations: float
    numbers: float
    indexed: bool = True

    @property
    def work(self) -> float:
        """The time of factorising, in units of an operation on dense blocks."""
        return self.operations + (PLACING * self.numbers if self.indexed else 0)

    def times(self, count: float) -> FactorCost:
        return FactorCost(count * self.operations, count * self.numbers, self.indexed)


PLACING = 335  # operations of SuperLU in the time of placing a number of its factors
ANALYSIS = 2500  # operations per entry in the time of counting the entries of factors
DOUBT = 6  # factor by which the estimate may be wrong; for graphs without any width it may be far too large
_LISTED = 2 * 10**7  # entries up to which a pattern is listed
_MEMORY = 0.25  # of the machine's memory, for factors
_BLOCKED = 0.1  # time of an operation on dense factors, relative to one on sparse factors
_NARROW = 4  # diagonals on each side up to which no other order is better
_OF_SEPARATOR, _OF_NUMBERS, _OF_PARTS = 10, 7, 0.8  # s^3 operations, s^2 + n log n numbers of L on grids of n unknowns
_WIDER, _THINNER, _THINNEST = 1.7, 2.4, 0.6  # separator relative to a level, for grids and meshes


def dense_cost(shape: tuple[int, ...]) -> FactorCost:
    """Cost of factorising dense matrices `(..., n, n)`, in sparse operations."""
    *batch, n, _ = shape
    return FactorCost(_BLOCKED * float(n) ** 3, float(n) ** 2, indexed=False).times(math.prod(batch))


def band_cost(n: int, offsets: Sequence[int]) -> FactorCost:
    """Cost of factorising a matrix with these diagonals in the given order: an upper bound."""
    width = float(max((abs(int(offset)) for offset in offsets), default=0))
    return FactorCost(n * width**2, n * (2 * width + 1))


def grid_cost(grid: Sequence[int]) -> FactorCost:
    """Cost on a grid of at most three axes whose points are coupled to their neighbours, within a factor of two.

    Source: George, SIAM J. Numer. Anal. 10 (1973); the constants are those of minimum degree.
    """
    long, wide, thin = (*sorted((float(side) for side in grid), reverse=True), 1.0, 1.0)[:3]
    n, inner = math.prod(grid), max(thin - 3, 0.6 * thin)  # points at the sides have fewer neighbours
    operations = 10 * long * wide**2 * inner**3
    if thin > 1:
        return FactorCost(operations, 14 * n * inner * (1 + math.log2(wide / thin)))
    return FactorCost(operations, 6 * n * max(math.log2(wide) - 0.5, 0.5))


def factor_cost(A: sp.csr_array) -> FactorCost:
    """Cost of the factors that SuperLU makes of A in its minimum degree order, without exchanges of rows: exact.

    Exchanges cost two to three times that, and more where rows are full.

    Cost: see `minimum_degree` and `column_counts`; together a microsecond for three entries.
    """
    A = _with_diagonal(A)
    places = minimum_degree(A)
    rows = np.repeat(places, np.diff(A.indptr))
    counts = column_counts(rows, places[A.indices], A.shape[0]).astype(float)
    return FactorCost(float(counts @ counts), 2 * float(counts.sum()) + A.shape[0])


def estimated_cost(A: sp.csr_array) -> FactorCost:
    """Cost of the factors of A, estimated from the widths of its graph within the factor `DOUBT`.

    More than the truth where a graph has no width: of the power-law kind, or with long edges.

    Cost: a hundredth of that of factors, or less.
    """
    n, A = A.shape[0], _with_diagonal(A)
    bandwidth = int(np.max(np.abs(np.repeat(np.arange(n), np.diff(A.indptr)) - A.indices), initial=0))
    if bandwidth <= _NARROW:
        return band_cost(n, (bandwidth,))
    widths, within, hubs = level_widths(A)
    reached = float(widths.sum())
    width = float(np.sum(widths.astype(float) ** 2)) / max(reached, 1)
    separator = width * max(_WIDER - _THINNER * within, _THINNEST)
    operations = min(_OF_SEPARATOR * separator**3, reached**3 / 3)
    parts = _OF_PARTS * reached * math.log2(1 + min(width, reached))
    numbers = min(_OF_NUMBERS * separator**2 + parts, reached**2 / 2) + hubs * n
    return FactorCost(operations + hubs * hubs * n, 2 * max(numbers, A.nnz / 2) + n)


def is_unmatched(A: Any) -> bool:
    """Whether an unsymmetric pattern lacks diagonal entries, as if equations and unknowns were shuffled."""
    pattern = sp.csr_array(A != 0)
    return not pattern.diagonal().all() and (pattern != pattern.T).nnz > 0


def _with_diagonal(A: sp.csr_array) -> sp.csr_array:
    """Permute the rows of a matrix that lacks diagonal entries so that a maximum matching lies on the diagonal.

    Counts and level widths belong to the pattern of A + Aᵀ. Without the permutation its factors can be hundreds of
    times as full as those of A, which SuperLU makes with row exchanges.
    """
    rows = rows_of_columns(sp.csc_array(A)) if is_unmatched(A) else None
    return A if rows is None or np.any(rows < 0) else sp.csr_array(A[rows])


def pattern_of(matrix: Matrix) -> sp.csr_array | None:
    """The entries of one system, ones where values are not known; None of dense matrices, and for unknown places."""
    known = matrix.known()
    if known is not None:
        entries = known[0] if isinstance(known, tuple) and known else known
        return sp.csr_array(entries) if sp.issparse(entries) else None
    structure: Any = matrix.structure if isinstance(matrix, SparseMatrix) else None
    if structure is None or matrix.nnz > _LISTED:
        return None
    rows, cols, _ = structure.entries()
    return sp.csr_array((np.ones(len(rows), np.int8), (rows, cols)), matrix.shape)


def matrix_cost(matrix: Matrix, cost: Callable[[sp.csr_array], FactorCost] | None = None) -> FactorCost:
    """Cost of factorising a matrix or a batch, from the pattern if values are unknown.

    For an unknown pattern, the cost of a three-dimensional grid.
    """
    n, count = matrix.shape[0], matrix.systems or 1
    if not n:
        return FactorCost(0, 0)
    if not isinstance(matrix, SparseMatrix):
        return dense_cost((count, n, n))
    pattern = pattern_of(matrix)
    single = (
        (cost or factor_cost)(pattern)
        if pattern is not None
        else FactorCost(10 * float(n) ** 2, 10 * float(n) ** (4 / 3))
    )
    return single.times(count)


def diagonals_of(matrix: Matrix) -> Sequence[int] | None:
    """The offsets of all diagonals with entries, of a format that knows them."""
    structure: Any = matrix.structure if isinstance(matrix, DIA | Stencil) else None
    diagonals = structure.diagonals if isinstance(matrix, Stencil) else structure
    return None if diagonals is None else tuple(diagonals.offsets)


def fits(cost: FactorCost, dtype: np.dtype) -> bool:
    """Do the factors fit into the share of this machine's memory that they may take?"""
    return cost.numbers * np.dtype(dtype).itemsize * 2 <= _MEMORY * _memory()


def have_room(matrix: Matrix) -> bool:
    """Do the factors fit? Counted only where neither a bound nor an estimate decides."""
    n, count, offsets = matrix.shape[0], matrix.systems or 1, diagonals_of(matrix)
    most = dense_cost((count, n, n)) if offsets is None else band_cost(n, offsets).times(count)
    if fits(most, matrix.dtype):
        return True
    about = matrix_cost(matrix, estimated_cost)
    if fits(about.times(DOUBT), matrix.dtype):
        return True
    return fits(about.times(1 / DOUBT), matrix.dtype) and fits(matrix_cost(matrix), matrix.dtype)


def _memory() -> float:
    """Bytes of memory of the machine; 8 GB if unknown."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, ValueError, OSError):
        return 8e9


_COUNTED = 100_000  # entries up to which counting factors takes a few hundredths of a second


def cost_on_grid(matrix: SparseMatrix) -> FactorCost | None:
    """Cost of a matrix that couples neighbours on a grid of two or three axes; None for others."""
    if matrix.systems is not None:
        return None
    placed = on_its_grid(matrix)
    on_one = 2 <= len(placed.in_shape) <= 3 and couples_neighbours(placed)
    return grid_cost(placed.in_shape) if on_one else None


def expected_cost(matrix: SparseMatrix) -> FactorCost:
    """Cost of a matrix or a batch, whose values need not be known; counted where that is cheap."""
    cost = cost_on_grid(matrix)
    if cost is not None:
        return cost
    return matrix_cost(matrix) if matrix.nnz <= _COUNTED else matrix_cost(matrix, estimated_cost)
