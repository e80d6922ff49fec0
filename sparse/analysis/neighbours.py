"""Neighbour relations on a structured grid, last axis fastest."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..formats.entries.integers import row_strides


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
