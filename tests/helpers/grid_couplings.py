"""Couplings of neighbours on small grids of all kinds: what the parts of multigrid are tested with."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from grid_problems import entries
from krylix.backends import get_backend
from krylix.solvers.preconditioners.multigrid.interpolation import (
    Interpolation,
    Weights,
    stacked_weights,
    weights_and_weakly_coupled,
)
from krylix.sparse.operators.couplings import Couplings, neighbours

HOST = get_backend("numpy")
rng = np.random.default_rng(0)
GRIDS: dict[str, tuple[tuple[int, ...], tuple[bool, ...]]] = {
    "even": ((8, 6), (False, False)),
    "odd": ((7, 9), (False, False)),
    "one ring": ((8, 7), (True, False)),
    "rings": ((6, 8), (True, True)),
    "line": ((13,), (False,)),
    "ring": ((12,), (True,)),
    "three axes": ((4, 5, 6), (False, False, True)),
    "thin": ((9, 1), (False, False)),
    "short rings": ((3, 4), (True, True)),
}


def couplings(name: str, systems: int | None = None, dtype: str = "float64") -> Couplings:
    """Random, with a dominant diagonal, and zero where they leave the grid."""
    grid, rings = GRIDS[name]
    values = {}
    for s in neighbours(len(grid)):
        a = rng.uniform(-1, -0.1, (systems or 1, *grid))
        for axis, step in enumerate(s, 1):
            if step and (not rings[axis - 1] or grid[axis - 1] < 3):
                edge: list[Any] = [slice(None)] * a.ndim
                edge[axis] = -1 if step > 0 else 0
                a[tuple(edge)] = 0
        values[s] = a
    here = (0,) * len(grid)
    values[here] = 1 + 30 * rng.random((systems or 1, *grid)) + 3 ** len(grid)
    if dtype.startswith("complex"):
        values = {s: a * (1 + 0.3j * rng.random(a.shape)) for s, a in values.items()}
    return Couplings(HOST, grid, rings, {s: a.astype(dtype) for s, a in values.items()}, systems)


def dense(A: Couplings, system: int = 0) -> np.ndarray:
    found: np.ndarray = entries(A.grid, {s: a[system] for s, a in A.values.items()}, A.periodic).toarray()
    return found


def factors_of(A: Couplings) -> list[tuple[int, ...]]:
    """All ways to coarsen some of the axes."""
    able = [(1, 2) if n >= 3 and not (ring and (n % 2 or n < 6)) else (1,) for n, ring in zip(A.grid, A.periodic)]
    return [f for f in itertools.product(*able) if max(f) > 1]


def weights(A: Couplings, factors: tuple[int, ...]) -> Weights:
    return weights_and_weakly_coupled(A, factors)[0]


def interpolation(A: Couplings, W: Weights, factors: tuple[int, ...]) -> Interpolation:
    """From weights by p and c."""
    return Interpolation(HOST, stacked_weights(HOST, W, factors), A.grid, factors, A.periodic, A.systems is not None)
