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


def convection_step(grid: int, courant: float, diffusion: float = 1e-4) -> sp.csr_array:
    """An implicit step of a rotating wind with little diffusion, upwind: the identity plus `dt` times that."""
    h = 1 / (grid + 1)
    y, x = np.meshgrid(*[np.arange(1, grid + 1) * h] * 2, indexing="ij")
    u, v = 2 * (2 * y - 1) * (1 - (2 * x - 1) ** 2), -2 * (2 * x - 1) * (1 - (2 * y - 1) ** 2)
    e, n = diffusion / h**2, grid * grid
    west, east = np.maximum(u, 0) / h + e, np.maximum(-u, 0) / h + e
    south, north = np.maximum(v, 0) / h + e, np.maximum(-v, 0) / h + e
    centre = (west + east + south + north).ravel()
    west[:, 0] = east[:, -1] = 0
    beside = [
        (south.ravel()[grid:], -grid),
        (west.ravel()[1:], -1),
        (east.ravel()[:-1], 1),
        (north.ravel()[:-grid], grid),
    ]
    wind = sp.diags_array([centre, *(-c for c, _ in beside)], offsets=[0, *(k for _, k in beside)], shape=(n, n))
    dt = courant * h / float(np.max(np.abs(u)) + np.max(np.abs(v)))
    return sp.csr_array(sp.eye_array(n) + dt * wind)


def nodal_circuit(n: int) -> sp.csr_array:
    """Potentials of a net and the currents of its voltage sources, a 50th of the unknowns, with zeros on the diagonal.

    Conductances between 1e-3 and 10 to one or two earlier nodes, more often to the first ones; transistors, which are
    not symmetric; and a small leak to the ground from each node.
    """
    rng = np.random.default_rng(0)
    sources = n // 50
    nodes = n - sources
    a = np.concatenate([np.arange(1, nodes), 3 + np.flatnonzero(rng.random(nodes - 3) < 0.6)])
    b = (a * rng.random(len(a)) * rng.random(len(a))).astype(int)
    g = 10 ** rng.uniform(-3, 1, len(a))
    net = sp.coo_array((np.r_[g, g, -g, -g], (np.r_[a, b, a, b], np.r_[a, b, b, a])), (nodes, nodes))
    gates = rng.integers(0, nodes, (2, 4 * n // 25))
    gains = sp.coo_array((0.3 * 10 ** rng.uniform(-3, 0, gates.shape[1]), tuple(gates)), (nodes, nodes))
    leak = sp.diags_array(np.full(nodes, 1e-4))
    at = sp.coo_array((np.ones(sources), (np.arange(sources), rng.permutation(nodes)[:sources])), (sources, nodes))
    return sp.csr_array(sp.block_array([[net + gains + leak, at.T], [at, None]]))
