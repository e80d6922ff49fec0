"""Matrices of named problems of simulations, small: SciPy CSR, with the entries that papers give them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.spatial import Delaunay


def poisson(*shape: int) -> sp.csr_array:
    """The Laplace operator on a grid, Dirichlet: 2 per axis on the diagonal, -1 beside it."""
    n = int(np.prod(shape))
    total = sp.csr_array((n, n))
    for axis, k in enumerate(shape):
        line = sp.diags_array([-np.ones(k - 1), 2 * np.ones(k), -np.ones(k - 1)], offsets=[-1, 0, 1])
        before, after = int(np.prod(shape[:axis])), int(np.prod(shape[axis + 1 :]))
        total = total + sp.kron(sp.kron(sp.eye_array(before), line), sp.eye_array(after))
    return sp.csr_array(total)


def jumps(n: int, blocks: int = 7, contrast: float = 1e4) -> sp.csr_array:
    """Diffusion whose coefficient differs from block to block; harmonic means on the faces."""
    rng = np.random.default_rng(0)
    values = contrast ** rng.random((blocks, blocks))
    of = np.minimum(np.arange(n) * blocks // n, blocks - 1)
    k = np.pad(values[of][:, of], 1, mode="edge")
    x = 2 * k[1:-1, :-1] * k[1:-1, 1:] / (k[1:-1, :-1] + k[1:-1, 1:])
    y = 2 * k[:-1, 1:-1] * k[1:, 1:-1] / (k[:-1, 1:-1] + k[1:, 1:-1])
    return _five_point(x[:, :-1] + x[:, 1:] + y[:-1] + y[1:], -x[:, 1:-1], -x[:, 1:-1], -y[1:-1], -y[1:-1])


def convection(n: int, eps: float) -> sp.csr_array:
    """Diffusion eps and a rotating wind, upwind differences."""
    h = 1 / (n + 1)
    y, x = np.meshgrid(np.arange(1, n + 1) * h, np.arange(1, n + 1) * h, indexing="ij")
    u, v = 2 * (2 * y - 1) * (1 - (2 * x - 1) ** 2), -2 * (2 * x - 1) * (1 - (2 * y - 1) ** 2)
    e = eps / h**2
    west, east = -e - np.maximum(u, 0) / h, -e + np.minimum(u, 0) / h
    south, north = -e - np.maximum(v, 0) / h, -e + np.minimum(v, 0) / h
    return _five_point(-(west + east + south + north), west[:, 1:], east[:, :-1], south[1:], north[:-1])


def _five_point(
    centre: np.ndarray, west: np.ndarray, east: np.ndarray, south: np.ndarray, north: np.ndarray
) -> sp.csr_array:
    """Each neighbour's coefficients for the points that have one."""
    n, m = centre.shape
    number = np.arange(n * m).reshape(n, m)
    rows = (number, number[:, 1:], number[:, :-1], number[1:], number[:-1])
    cols = (number, number[:, :-1], number[:, 1:], number[:-1], number[1:])
    places = [np.concatenate([part.ravel() for part in parts]) for parts in (rows, cols)]
    values = np.concatenate([part.ravel() for part in (centre, west, east, south, north)])
    return sp.csr_array(sp.coo_array((values, tuple(places)), (n * m, n * m)))


def elements(points: int, stretch: float = 1.0) -> sp.csr_array:
    """Linear elements on a random triangulation; stretched, some couplings are positive."""
    corners = np.random.default_rng(0).random((points, 2))
    triangles = Delaunay(corners).simplices
    a, b, c = np.moveaxis((corners * [1, stretch])[triangles], 1, 0)
    area = np.abs((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]) / 2
    sides = np.stack([c - b, a - c, b - a], 1)
    entries = np.einsum("tid,tjd->tij", sides, sides) / (4 * area)[:, None, None]
    places = (np.repeat(triangles, 3, 1).ravel(), np.tile(triangles, (1, 3)).ravel())
    A = sp.csr_array(sp.coo_array((entries.ravel(), places), (points, points)))
    inner = np.flatnonzero((corners.min(1) > 0.02) & (corners.max(1) < 0.98))
    return sp.csr_array(A[inner][:, inner])


def squared_laplace(n: int) -> sp.csr_array:
    """Of a plate: positive definite, with negative pivots in its incomplete factors."""
    A = poisson(n, n)
    return sp.csr_array(A @ A)
