"""Systems on meshes and graphs: `problems(size)`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import minimum_spanning_tree

from . import finite_elements as fe


@dataclass(frozen=True)
class Problem:
    """A system, and what a solver may be told of it."""

    A: sp.csr_array
    symmetric: bool = True
    three: bool = False
    points: np.ndarray | None = None  # of elasticity: coordinates, with as many unknowns each

    @property
    def unknowns_per_point(self) -> int:
        return 1 if self.points is None else int(self.points.shape[1])

    @property
    def b(self) -> np.ndarray:
        """Random numbers: all frequencies, so that no method is done early."""
        return np.random.default_rng(7).standard_normal(self.A.shape[0])


def problems(size: int = 150) -> dict[str, Callable[[], Problem]]:
    """Name -> what makes the system; `size` is that of a side of the quadratic triangles."""
    cube, small = max(4, size * 35 // 150), max(3, size * 16 // 150)
    return {
        "triangles, P1": lambda: Problem(fe.laplace(fe.scattered(size * size * 80 // 9))),
        "triangles, P2": lambda: Problem(fe.laplace(fe.box((size, size)), degree=2)),
        "tetrahedra, P1": lambda: Problem(fe.laplace(fe.box((cube,) * 3)), three=True),
        "tetrahedra, P2": lambda: Problem(fe.laplace(fe.box((small,) * 3), degree=2), three=True),
        "anisotropy 100:1 at 30°": lambda: Problem(rotated_anisotropy(2 * size)),
        "roads": lambda: Problem(roads(size * size * 40 // 9)),
        "power-law graph": lambda: Problem(power_law(size * size * 4 // 3)),
        "convection": lambda: Problem(convection(size * 8 // 3), symmetric=False),
        "recirculating convection": lambda: Problem(recirculation(2 * size), symmetric=False),
        "elasticity, square": lambda: _elastic(fe.box((size * 4 // 5,) * 2)),
        "elasticity, cube": lambda: _elastic(fe.box((max(3, size * 17 // 150),) * 3)),
        "elasticity, beam 20:1": lambda: _elastic(fe.box((size * 8 // 3, max(2, size * 2 // 15)), (20.0, 1.0))),
    }


def _elastic(mesh: fe.Mesh) -> Problem:
    A, points = fe.elasticity(mesh)
    return Problem(A, three=mesh.dim == 3, points=points)


def rotated_anisotropy(n: int, ratio: float = 100.0, angle: float = np.pi / 6) -> sp.csr_array:
    """Bilinear elements on squares; conductivity 1 along a direction and `1 / ratio` across."""
    c, s, e = np.cos(angle), np.sin(angle), 1 / ratio
    stiff = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    mass = sp.diags_array([1.0, 4.0, 1.0], offsets=[-1, 0, 1], shape=(n, n)) / 6
    slope = sp.diags_array([-0.5, 0.5], offsets=[-1, 1], shape=(n, n))
    along = (c * c + e * s * s) * sp.kron(stiff, mass) + (s * s + e * c * c) * sp.kron(mass, stiff)
    return sp.csr_array(along - 2 * c * s * (1 - e) * sp.kron(slope, slope))


def convection(n: int, peclet: float = 500.0) -> sp.csr_array:
    """A constant wind, upwind differences."""
    one, second = sp.eye_array(n), sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    upwind = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(n, n)) * (peclet / n)
    return sp.csr_array(sp.kron(one, second + upwind) + sp.kron(second + 0.5 * upwind, one))


def recirculation(n: int, diffusion: float = 1e-3) -> sp.csr_array:
    """A wind in closed curves, upwind differences."""
    h, x = 1 / n, (np.arange(n) + 0.5) / n
    X, Y = np.meshgrid(x, x, indexing="ij")
    cells, diagonal, entries = np.arange(n * n).reshape(n, n), np.full((n, n), 4 * diffusion / h), []
    for axis, wind in enumerate((4 * X * (X - 1) * (1 - 2 * Y), -4 * Y * (Y - 1) * (1 - 2 * X))):
        for towards in (-1, 1):
            inflow = np.maximum(-towards * wind, 0)
            diagonal += inflow
            to, of = (range(1, n), range(n - 1)) if towards < 0 else (range(n - 1), range(1, n))
            entries.append([-(inflow + diffusion / h).take(to, axis), cells.take(to, axis), cells.take(of, axis)])
    entries.append([diagonal, cells, cells])
    data, rows, cols = (np.concatenate([part.ravel() for part in parts]) for parts in zip(*entries, strict=True))
    return sp.csr_array((data, (rows, cols)))


def roads(n: int) -> sp.csr_array:
    """A tree of short ways between random places, with an eighth of the other edges of a triangulation."""
    mesh, rng = fe.scattered(n), np.random.default_rng(1)
    sides = np.concatenate([mesh.simplices[:, [0, 1]], mesh.simplices[:, [1, 2]], mesh.simplices[:, [0, 2]]])
    edges = np.unique(np.sort(sides, 1), axis=0)
    lengths = np.linalg.norm(mesh.points[edges[:, 0]] - mesh.points[edges[:, 1]], axis=1)
    tree = minimum_spanning_tree(sp.csr_array((lengths, (edges[:, 0], edges[:, 1])), (n, n))).tocoo()
    more = edges[rng.random(len(edges)) < 0.12]
    return _laplacian(np.unique(np.concatenate([np.stack([tree.row, tree.col], 1), more]), axis=0), n)


def power_law(n: int, links: int = 3) -> sp.csr_array:
    """Each new node links to three others, likelier to those of many links, so that a few are hubs."""
    rng = np.random.default_rng(0)
    edges = [(i, j) for i in range(1, links + 1) for j in range(i)]
    ends = [x for pair in edges for x in pair]
    for node in range(links + 1, n):
        for other in sorted({ends[k] for k in rng.integers(0, len(ends), links)}):
            edges.append((node, other))
            ends += [node, other]
    return _laplacian(np.array(edges), n)


def _laplacian(edges: np.ndarray, n: int) -> sp.csr_array:
    """Weights between 0.1 and 10, and 1e-6 of the diagonal more on it."""
    weights = np.random.default_rng(2).uniform(0.1, 10, len(edges))
    half = sp.coo_array((weights, (edges[:, 0], edges[:, 1])), (n, n))
    links = sp.csr_array(half + half.T)
    return sp.csr_array(sp.diags_array((1 + 1e-6) * links.sum(axis=1)) - links)
