"""The grid that tests cut over processes and devices, and its dense matrices; of NumPy alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

N = 16
FULL = np.random.default_rng(0).normal(size=(N, N))
WEIGHTS = 1 + np.random.default_rng(1).uniform(size=(N, N))


def star(u: np.ndarray, centre: float = 4.2) -> np.ndarray:
    """A 5-point stencil, zero beyond the grid."""
    p = np.pad(u, 1)
    return centre * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]


def periodic(u: np.ndarray) -> np.ndarray:
    """A 5-point stencil that maps constants to zero."""
    return 4 * u - sum(np.roll(u, shift, axis) for shift in (1, -1) for axis in (0, 1))


def dense(function: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The matrix of a function of grids."""
    return np.stack([function(column.reshape(N, N)).ravel() for column in np.eye(N * N)], 1)
