"""Constant diagonals on a grid as a stencil: a compiled program then stores and reads no matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...sparse import DIA, Matrix, Stencil
from ...sparse.analysis.analysis import on_its_grid
from ...sparse.analysis.neighbours import shift_of


def with_numbers(matrix: Matrix) -> Matrix:
    """A DIA matrix as a stencil with constant coefficients, if each diagonal is constant on the grid; else itself.

    Shapes stay as they are. Cost: up to one pass over the values.
    """
    if not isinstance(matrix, DIA) or matrix.constant is None or matrix.systems is not None:
        return matrix
    grid = on_its_grid(matrix).in_shape
    if matrix.shape[0] != matrix.shape[1] or len(grid) < 2:
        return matrix
    structure: Any = matrix.structure
    numbers, shifts = [], []
    for offset, values in zip(structure.offsets, matrix.constant[0]):
        shift = shift_of(offset, grid)
        number = None if shift is None else _number(values.reshape(grid), shift)
        if number is None:
            return matrix
        numbers.append(number)
        shifts.append(shift)
    found: Any = Stencil(numbers, shifts, grid)
    moved = found if matrix.bk.on_host else found.on_backend(matrix.bk, matrix.anchor())
    return moved.on_grids(
        matrix._in_shape, matrix._out_shape, f"{len(numbers)} diagonals with a number each on the grid {grid}"
    )


def _number(values: np.ndarray, shift: tuple[int, ...]) -> np.ndarray | None:
    """The constant of a diagonal on the points whose neighbour is on the grid, if it is 0 elsewhere; else None."""
    inside = values[tuple(slice(max(0, -s), n - max(0, s)) for s, n in zip(shift, values.shape))]
    number = inside[(0,) * inside.ndim]
    same = bool(np.all(inside == number)) and np.count_nonzero(values) == (inside.size if number else 0)
    return np.asarray(number) if same else None
