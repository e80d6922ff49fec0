"""Matrices of linear and quadratic elements on triangles and tetrahedra: a small assembly in NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations, permutations

import numpy as np
import scipy.sparse as sp

# where quadratic polynomials are integrated exactly: at d + 1 points of a simplex, of equal weights
_QUADRATURE = {2: (2 / 3, 1 / 6), 3: ((5 + 3 * 5**0.5) / 20, (5 - 5**0.5) / 20)}


@dataclass(frozen=True)
class Mesh:
    """Points `(n, d)` and simplices `(elements, d + 1)`."""

    points: np.ndarray
    simplices: np.ndarray

    @property
    def dim(self) -> int:
        return int(self.points.shape[1])


def box(cells: tuple[int, ...], lengths: tuple[float, ...] | None = None) -> Mesh:
    """A box of so many cells along each axis, each of d! simplices."""
    axes = [np.linspace(0, length, k + 1) for k, length in zip(cells, lengths or (1.0,) * len(cells), strict=True)]
    points = np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], 1)
    numbers = np.arange(len(points)).reshape([k + 1 for k in cells])
    first = numbers[tuple(slice(0, k) for k in cells)].ravel()
    step = np.array(numbers.strides) // numbers.itemsize
    found = []
    for order in permutations(range(len(cells))):  # from one corner of the cell to the other along its edges
        path = np.concatenate([[0], np.cumsum(step[list(order)])])
        found.append(first[:, None] + path)
    return Mesh(points, np.concatenate(found))


def scattered(points: int) -> Mesh:
    """Delaunay's triangles of random points in a square."""
    from scipy.spatial import Delaunay

    places = np.random.default_rng(0).random((points, 2))
    return Mesh(places, Delaunay(places).simplices)


def laplace(mesh: Mesh, degree: int = 1, sigma: float = 1.0) -> sp.csr_array:
    """-div k grad with k = exp(sigma N(0, 1)) in each simplex, zero on the border of the unit square or cube."""
    barycentric, volumes = _gradients(mesh)
    k = volumes * np.exp(sigma * np.random.default_rng(0).standard_normal(len(volumes)))
    if degree == 1:
        places, dofs = mesh.points, mesh.simplices
        local = np.einsum("eia,eja,e->eij", barycentric, barycentric, k)
    else:
        places, dofs = _with_middles(mesh)
        local = sum(np.einsum("eia,eja,e->eij", g, g, k / (mesh.dim + 1)) for g in _quadratic(barycentric, mesh.dim))
    margin = 0.02 if mesh.dim == 2 and degree == 1 else 1e-9  # scattered points have no border
    inner = np.flatnonzero((places.min(1) > margin) & (places.max(1) < 1 - margin))
    return _assembled(dofs, local, len(places))[inner][:, inner]


def elasticity(mesh: Mesh, poisson: float = 0.3) -> tuple[sp.csr_array, np.ndarray]:
    """Linear elasticity of Young's modulus 1, held where x = 0: the matrix, point by point, and the free points."""
    gradients, volumes = _gradients(mesh)
    lame, shear = poisson / ((1 + poisson) * (1 - 2 * poisson)), 1 / (2 * (1 + poisson))
    dim, corners = mesh.dim, mesh.dim + 1
    same = np.einsum("eik,ejk,ab->eiajb", gradients, gradients, np.eye(dim))
    crossed = np.einsum("eia,ejb->eiajb", gradients, gradients)
    local = volumes[:, None, None, None, None] * (lame * crossed + shear * (crossed.transpose(0, 1, 4, 3, 2) + same))
    dofs = (mesh.simplices[:, :, None] * dim + np.arange(dim)).reshape(-1, corners * dim)
    free = np.flatnonzero(mesh.points[:, 0] > 1e-9)
    kept = (free[:, None] * dim + np.arange(dim)).ravel()
    A = _assembled(dofs, local.reshape(-1, corners * dim, corners * dim), len(mesh.points) * dim)
    return A[kept][:, kept], mesh.points[free]


def _gradients(mesh: Mesh) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of the barycentric coordinates `(elements, d + 1, d)`, and volumes."""
    corners = mesh.points[mesh.simplices]
    edges = corners[:, 1:] - corners[:, :1]
    inverse = np.linalg.inv(edges).transpose(0, 2, 1)
    gradients = np.concatenate([-inverse.sum(1, keepdims=True), inverse], 1)
    return gradients, np.abs(np.linalg.det(edges)) / (2 if mesh.dim == 2 else 6)


def _quadratic(barycentric: np.ndarray, dim: int) -> list[np.ndarray]:
    """Gradients of quadratic shape functions, corners first, at each point of the quadrature."""
    near, far = _QUADRATURE[dim]
    found = []
    for point in range(dim + 1):
        at = np.full(dim + 1, far)
        at[point] = near
        corners = (4 * at - 1)[:, None] * barycentric
        edges = [
            4 * (at[i] * barycentric[:, j] + at[j] * barycentric[:, i]) for i, j in combinations(range(dim + 1), 2)
        ]
        found.append(np.concatenate([corners, np.stack(edges, 1)], 1))
    return found


def _with_middles(mesh: Mesh) -> tuple[np.ndarray, np.ndarray]:
    """Points and middles of edges, and which of them each simplex has."""
    pairs = np.stack([np.sort(mesh.simplices[:, e], 1) for e in combinations(range(mesh.dim + 1), 2)], 1)
    edges, number = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    dofs = np.concatenate([mesh.simplices, len(mesh.points) + number.reshape(pairs.shape[:2])], 1)
    return np.concatenate([mesh.points, mesh.points[edges].mean(1)]), dofs


def _assembled(dofs: np.ndarray, local: np.ndarray, n: int) -> sp.csr_array:
    """The sum of all elements' matrices, without the zeros that cancellation leaves."""
    size = dofs.shape[1]
    rows, cols = dofs.repeat(size, 1).ravel(), np.tile(dofs, (1, size)).ravel()
    A = sp.coo_array((local.ravel(), (rows, cols)), (n, n)).tocsr()
    A.data[np.abs(A.data) < 1e-14 * np.abs(A.data).max()] = 0
    A.eliminate_zeros()
    return A
