"""Structured grids: neighbour relations, and the grid that an assembled sparse matrix couples neighbours on.

Points are counted with the last axis fastest. A point's neighbours on a grid `(l, m, n)` are 1, about n and about m n
places away. A few rows show these distances, and then a thousand rows whether all of their entries are neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..formats import SparseMatrix, Stencil
from ..formats.entries.integers import evenly_spread, row_strides
from ..operator import Operator


def step_of(difference: np.ndarray, n: Any) -> tuple[np.ndarray, np.ndarray]:
    """Steps along an axis, with wrap-around steps of n > 2 points as -1 and 1, and the mask of these."""
    around = (np.abs(difference) == n - 1) & (n > 2)
    return np.where(around, -np.sign(difference), difference), around


def differences(rows: np.ndarray, cols: np.ndarray, grid: tuple[int, ...]) -> list[np.ndarray]:
    """Index differences along each axis, from points `rows` to points `cols`."""
    return [cols // stride % n - rows // stride % n for n, stride in zip(grid, row_strides(grid))]


def are_neighbours(rows: np.ndarray, cols: np.ndarray, grid: tuple[int, ...]) -> bool:
    """Is each point of `cols` equal or adjacent to that of `rows`, diagonally and with wrap-around?"""
    between = zip(differences(rows, cols, grid), grid)
    return all(bool(np.all(np.abs(step_of(difference, n)[0]) <= 1)) for difference, n in between)


def shift_of(offset: int, grid: tuple[int, ...]) -> tuple[int, ...] | None:
    """Steps of -1, 0 or 1 along each axis for an offset in the flat order; None where there are none."""
    shift = []
    for stride in row_strides(grid):
        step = round(offset / stride)
        shift.append(step)
        offset -= step * stride
    return tuple(shift) if not offset and max(map(abs, shift)) <= 1 else None


# --- Detection ---

Grid = tuple[int, ...]
_LEAST = 5  # points along an axis: fewer may be fields beside each other, or layers
_FEW, _MANY = 8, 1000  # runs of rows that are looked at for distances, and rows for all their entries
_LONGEST_ROW = 27  # entries: all neighbours in three dimensions


def find_grid(matrix: Operator) -> Grid:
    """See `Analysis.grid`."""
    n, m = matrix.shape
    flat = isinstance(matrix, SparseMatrix) and matrix.in_shape == matrix.out_shape == (n,)
    if not flat or n != m or matrix.systems is not None or n < _LEAST**2:
        return ()
    if isinstance(matrix, Stencil) and matrix.own_grid is not None and len(matrix.own_grid) > 1:
        return matrix.own_grid
    structure: Any = matrix.structure  # type: ignore[attr-defined]
    # in each run of three there is one that is not at the end of its line
    runs = evenly_spread(n - 2, _FEW)[1:, None] + np.arange(3)
    rows, cols = structure.in_rows(np.unique(runs))
    if len(rows) > 3 * _FEW * _LONGEST_ROW:
        return ()
    grids = dict.fromkeys(g for row in np.unique(rows) for g in _candidates(cols[rows == row] - row, n))
    best: Grid = ()
    fewest = np.inf
    for grid in grids:
        around = _around(matrix, grid)
        if around is not None and around < fewest:  # an axis that is taken for too short a one looks like a ring
            best, fewest = grid, around
    return best


def _candidates(steps: np.ndarray, n: int) -> Iterator[Grid]:
    """Grids of n points on which all these index differences lead to neighbours."""
    ahead = sorted({int(s) for s in np.abs(steps)} - {0})
    beyond = [s for s in ahead if s > 1]
    if len(beyond) == len(ahead) or not beyond:  # nothing next to it, or nothing else
        return
    for width in (beyond[0], beyond[0] + 1):
        planes = [s for s in beyond if s > width + 1]
        multiples = range(-(-planes[0] // width) * width, planes[0] + width + 2, width) if planes else (n,)
        for plane in multiples:
            grid = (n // plane, plane // width, width) if planes else (n // width, width)
            whole = n % plane == 0 and plane % width == 0
            if whole and min(grid) >= _LEAST and all(shift_of(s, grid) is not None for s in ahead):
                yield grid


def _around(matrix: Any, grid: Grid) -> int | None:
    """Number of sampled entries that wrap around an axis; None if some couple other points than neighbours."""
    n, width = matrix.shape[0], grid[-1]
    firsts = evenly_spread(n // width, _MANY // 4) * width
    rows, cols = matrix.structure.in_rows(
        np.unique(np.concatenate([evenly_spread(n, _MANY), firsts, firsts + width - 1]))
    )
    count = 0
    for difference, length in zip(differences(rows, cols, grid), grid):
        step, around = step_of(difference, length)
        if np.any(np.abs(step) > 1):
            return None
        count += int(np.count_nonzero(around))
    return count
