"""Linear functions of JAX arrays that a PDE code would write, to be traced and multiplied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.spatial import Delaunay

Function = Callable[[Any], Any]
FOURTH_ORDER = {-2: -1 / 12, -1: 4 / 3, 0: -5 / 2, 1: 4 / 3, 2: -1 / 12}
PADDING = {"Dirichlet": "constant", "Neumann": "edge", "periodic": "wrap"}


def laplace(boundary: str) -> Function:
    """5 points in two dimensions."""

    def apply(u: Any) -> Any:
        p = jnp.pad(u, 1, mode=PADDING[boundary])
        return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u

    return apply


def variable(k: Any) -> Function:
    """7 points in three dimensions, the coefficient `k` averaged between neighbours."""

    def apply(u: Any) -> Any:
        p, q = jnp.pad(u, 1), jnp.pad(k, 1, mode="edge")
        total = 0.0
        for axis in range(3):
            low, high = [slice(1, -1)] * 3, [slice(1, -1)] * 3
            low[axis], high[axis] = slice(0, -2), slice(2, None)
            above, below = tuple(high), tuple(low)
            total = total + 0.5 * (q[above] + k) * (p[above] - u) - 0.5 * (k + q[below]) * (u - p[below])
        return total

    return apply


def masked(fluid: np.ndarray) -> Function:
    """Divergence of the gradient between points of the fluid; the identity inside of obstacles."""

    def apply(u: Any) -> Any:
        open_ = jnp.asarray(fluid)
        down = jnp.where(open_[1:] & open_[:-1], u[1:] - u[:-1], 0.0)
        right = jnp.where(open_[:, 1:] & open_[:, :-1], u[:, 1:] - u[:, :-1], 0.0)
        down, right = jnp.pad(down, ((1, 1), (0, 0))), jnp.pad(right, ((0, 0), (1, 1)))
        return jnp.where(open_, down[1:] - down[:-1] + right[:, 1:] - right[:, :-1], u)

    return apply


def fourth_order(u: Any) -> Any:
    """9 points, periodic."""
    return sum(w * jnp.roll(u, -s, axis) for axis in (0, 1) for s, w in FOURTH_ORDER.items())


def twice(apply: Function) -> Function:
    """The operator applied two times."""
    return lambda u: apply(apply(u))


def cube(u: Any) -> Any:
    """27 points in three dimensions."""
    weights, p, total = (-1.0, 3.0, 14.0, -128.0), jnp.pad(u, 1), 0.0
    for i, j, k in np.ndindex(3, 3, 3):
        part = p[i : i + u.shape[0], j : j + u.shape[1], k : k + u.shape[2]]
        total = total + weights[(i == 1) + (j == 1) + (k == 1)] * part
    return total


def graph(nodes: int, edges: np.ndarray, weights: Any) -> Function:
    """Laplacian of a graph, its edges gathered and summed."""

    def apply(u: Any) -> Any:
        flow = weights * (u[edges[:, 0]] - u[edges[:, 1]])
        return jax.ops.segment_sum(flow, edges[:, 0], nodes) - jax.ops.segment_sum(flow, edges[:, 1], nodes)

    return apply


def mesh(nodes: int) -> np.ndarray:
    """Edges `(m, 2)` of a triangulation of random points in a square, numbered in rows."""
    points = np.random.default_rng(0).random((nodes, 2))
    strips = (points[:, 1] * np.sqrt(nodes) / 4).astype(int)
    points = points[np.lexsort((points[:, 0], strips))]
    triangles = Delaunay(points).simplices
    edges = np.sort(np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]]), axis=1)
    return np.unique(edges, axis=0).astype(np.int32)


def obstacles(grid: int) -> np.ndarray:
    """Fluid around two cylinders, `(grid, grid)` of bool."""
    y, x = np.mgrid[:grid, :grid] / grid
    return ((y - 0.5) ** 2 + (x - 0.4) ** 2 > 0.15**2) & ((y - 0.2) ** 2 + (x - 0.8) ** 2 > 0.09**2)
