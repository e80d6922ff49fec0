"""The systems: a 5-point Poisson equation on a square, as a matrix and as a function of each library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp


def right_hand_side(grid: int, dtype: str) -> np.ndarray:
    """Random numbers, `(grid, grid)`: all frequencies, so no method is done early."""
    return np.random.default_rng(0).standard_normal((grid, grid)).astype(dtype)


def poisson_matrix(grid: int, dtype: str) -> sp.dia_array:
    """4 on the diagonal, -1 for each neighbour; five stored diagonals."""
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(grid, grid))
    identity = sp.eye_array(grid)
    return sp.dia_array(sp.kron(line, identity) + sp.kron(identity, line)).astype(dtype)


def poisson_function(pad: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The same matrix as a function of `(grid, grid)` arrays; `pad` adds a frame of zeros."""

    def laplace(x: Any) -> Any:
        p = pad(x)
        return 4 * x - p[:-2, 1:-1] - p[2:, 1:-1] - p[1:-1, :-2] - p[1:-1, 2:]

    return laplace


def poisson_in_place(x: Any) -> Any:
    """The same for PyTorch and NumPy, without temporary arrays."""
    y = 4 * x
    y[1:] -= x[:-1]
    y[:-1] -= x[1:]
    y[:, 1:] -= x[:, :-1]
    y[:, :-1] -= x[:, 1:]
    return y


def bar() -> tuple[sp.csr_array, np.ndarray]:
    """Linear elasticity of a bar, from pyamg's bundled matrices, and a load."""
    from pyamg.gallery import load_example

    A = sp.csr_array(load_example("bar")["A"])
    return A, np.random.default_rng(0).standard_normal(A.shape[0])
