"""What factors of a matrix are expected to cost, at little cost: from its grid, or the widths of its graph."""

from __future__ import annotations

from ...sparse import SparseMatrix
from ...sparse.analysis.analysis import on_its_grid
from ..preconditioners.multigrid.from_matrix import couples_neighbours
from .fill import FactorCost, estimated_cost, grid_cost, matrix_cost

_COUNTED = 100_000  # entries of which the factors are counted in some hundredths of a second


def cost_on_grid(matrix: SparseMatrix) -> FactorCost | None:
    """Of a matrix that couples neighbours on a grid of two or three axes; None for others."""
    if matrix.systems is not None:
        return None
    placed = on_its_grid(matrix)
    on_one = 2 <= len(placed.in_shape) <= 3 and couples_neighbours(placed)
    return grid_cost(placed.in_shape) if on_one else None


def expected_cost(matrix: SparseMatrix) -> FactorCost:
    """Of a matrix or a batch, whose values need not be known; counted where that takes no time."""
    found = cost_on_grid(matrix)
    if found is not None:
        return found
    return matrix_cost(matrix) if matrix.nnz <= _COUNTED else matrix_cost(matrix, estimated_cost)
