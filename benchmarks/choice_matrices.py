"""More matrices for the automatic choice, after those of `robustness`: circuits, plants, media, meshes, graphs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from pyamg.gallery import poisson
from scipy.spatial import Delaunay

from . import robustness


def matrices() -> dict[str, Callable[[], sp.csr_array]]:
    """Name -> what makes the matrix; about sixty."""
    return robustness.matrices() | {
        "normal equations of stages": lambda: normal_equations(stages=60),
        "plant 4000": lambda: plant(4000),
        "plant 13 000": lambda: plant(13_000),
        "circuit 3000": lambda: circuit(3000),
        "circuit 17 000": lambda: circuit(17_000),
        "circuit, two rails": lambda: circuit(12_000, rails=2),
        "box with solid cells": lambda: solid_cells((128, 128), 1000),
        "box with solid cells, 256²": lambda: solid_cells((256, 256), 1000),
        "cavity 24³, solid cells": lambda: solid_cells((24, 24, 24), 500),
        "lognormal cells 128²": lambda: medium((128, 128), 3.0),
        "lognormal cells 256²": lambda: medium((256, 256), 2.0),
        "lognormal cells 22³": lambda: medium((22, 22, 22), 2.0),
        "binary cells 128²": lambda: binary((128, 128)),
        "triangles 10 000": lambda: triangles(10_000),
        "triangles 40 000": lambda: triangles(40_000),
        "triangles, graded": lambda: triangles(10_000, graded=True),
        "tetrahedra 6000": lambda: tetrahedra(6000),
        "tetrahedra 20 000": lambda: tetrahedra(20_000),
        "Poisson 500 x 40": lambda: sp.csr_array(poisson((500, 40), format="csr")),
        "Poisson 40³": lambda: sp.csr_array(poisson((40, 40, 40), format="csr")),
        "biharmonic 80²": lambda: _square(sp.csr_array(poisson((80, 80), format="csr"))),
        "arrow": lambda: arrow(20_000),
        "arrow, tip first": lambda: arrow(20_000, first=True),
        "band 30": lambda: band(20_000, 30),
        "random symmetric 3000": lambda: scattered(3000),
        "power-law graph": lambda: power_law(8000),
        "small world": lambda: small_world(6000),
        "block triangular": lambda: block_triangular(40, 150),
        "Markov chain": lambda: markov(90),
        "mass and stiffness, complex": lambda: damped(60),
        "convection 18³": lambda: convection_cube(18),
    }


def normal_equations(stages: int, size: int = 120) -> sp.csr_array:
    """A D Aᵀ of a linear program of several stages, with the scaling D of an interior point method."""
    rng = np.random.default_rng(11)
    blocks: list[list[sp.csr_array | None]] = [[None] * stages for _ in range(stages)]
    for k in range(stages):
        blocks[k][k] = sp.csr_array(sp.random_array((size, 2 * size), density=4 / size, rng=rng))
        if k:
            blocks[k][k - 1] = sp.csr_array(sp.random_array((size, 2 * size), density=1 / size, rng=rng))
    A = sp.csr_array(sp.block_array(blocks))
    A = sp.csr_array(sp.hstack([A, sp.eye_array(A.shape[0])]))
    D = sp.diags_array(10.0 ** rng.uniform(-4, 4, A.shape[1]))
    return sp.csr_array(A @ D @ A.T)


def plant(n: int) -> sp.csr_array:
    """Units of a chemical plant, each with equations in an order that leaves zeros on the diagonal, and streams."""
    rng = np.random.default_rng(12)
    size = 10
    count = n // size
    blocks = []
    for _ in range(count):
        block = np.where(rng.random((size, size)) < 0.3, rng.standard_normal((size, size)), 0)
        block[np.arange(size), rng.permutation(size)] = 10.0 ** rng.uniform(-2, 3, size)
        blocks.append(block)
    A = sp.csr_array(sp.block_diag(blocks))
    streams = 2 * count
    source = rng.integers(0, count, streams)
    target = np.clip(source + rng.integers(-3, 4, streams), 0, count - 1)
    far = rng.random(streams) < 0.02
    target[far] = rng.integers(0, count, int(far.sum()))
    rows, cols = (units * size + rng.integers(0, size, streams) for units in (target, source))
    return sp.csr_array(A + sp.coo_array((rng.standard_normal(streams), (rows, cols)), A.shape))


def circuit(n: int, rails: int = 0) -> sp.csr_array:
    """Conductances between nodes of a local net, transistors that are not symmetric, and rails with many nodes."""
    rng = np.random.default_rng(13)
    a = np.arange(1, n)
    b = np.maximum(a - 1 - rng.geometric(0.05, n - 1), 0)
    conductance = 10.0 ** rng.uniform(-3, 1, n - 1)
    pairs = [(a, b, conductance)]
    for rail in range(rails):
        tied = rng.choice(n, n // 5, replace=False)
        pairs.append((tied, np.full(len(tied), rail), 10.0 ** rng.uniform(-4, -2, len(tied))))
    a, b, g = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    A = sp.coo_array((np.concatenate([g, g, -g, -g]), (np.r_[a, b, a, b], np.r_[a, b, b, a])), (n, n))
    gate, drain, source = (rng.integers(0, n - 60, n // 4) for _ in range(3))
    drain, source = gate + drain % 60, gate + source % 60
    gain = 10.0 ** rng.uniform(-4, -1, n // 4)
    parts = np.r_[gain, -gain], (np.r_[drain, source], np.r_[gate, gate])
    ground = sp.diags_array(np.where(rng.random(n) < 0.05, 0.1, 1e-6))
    return sp.csr_array(A + sp.coo_array(parts, (n, n)) + ground)


def solid_cells(shape: tuple[int, ...], count: int) -> sp.csr_array:
    """Pressure in a closed box, in which some cells are solid: their rows are zero."""
    free = np.ones(shape, bool)
    free.reshape(-1)[np.random.default_rng(14).choice(free.size, count, replace=False)] = False
    return _by_faces(np.where(free, 1.0, 0.0), closed=True)


def medium(shape: tuple[int, ...], sigma: float) -> sp.csr_array:
    """Permeabilities that jump from cell to cell, lognormal."""
    return _by_faces(np.exp(sigma * np.random.default_rng(15).standard_normal(shape)))


def binary(shape: tuple[int, ...]) -> sp.csr_array:
    """Cells of 1 and 1e5 at random."""
    return _by_faces(np.where(np.random.default_rng(16).random(shape) < 0.5, 1.0, 1e5))


def triangles(n: int, graded: bool = False) -> sp.csr_array:
    """Linear elements on random points of a square, fixed on its boundary."""
    points = np.random.default_rng(17).random((n, 2))
    return _simplices(points**3 if graded else points)


def tetrahedra(n: int) -> sp.csr_array:
    """Likewise in a cube."""
    return _simplices(np.random.default_rng(18).random((n, 3)))


def arrow(n: int, first: bool = False) -> sp.csr_array:
    """A tridiagonal matrix with a full row and column at the end, or at the start."""
    A = sp.lil_array(sp.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)))
    tip = 0 if first else n - 1
    A[tip, :] = A[:, [tip]] = 0.01
    A[tip, tip] = n
    return sp.csr_array(A)


def band(n: int, width: int) -> sp.csr_array:
    """A full band, positive definite, in a random order of the unknowns."""
    rng = np.random.default_rng(19)
    offsets = range(-width, width + 1)
    entries = [-1.0 if k else 2.0 * width + 1e-3 for k in offsets]
    A = sp.csr_array(sp.diags_array(entries, offsets=offsets, shape=(n, n)))
    order = rng.permutation(n)
    return sp.csr_array(A[order][:, order])


def scattered(n: int) -> sp.csr_array:
    """A random symmetric indefinite matrix."""
    A = sp.random_array((n, n), density=2 / n, rng=np.random.default_rng(20))
    return sp.csr_array(A + A.T + sp.diags_array(np.random.default_rng(21).standard_normal(n)))


def power_law(n: int) -> sp.csr_array:
    """The Laplacian of a graph that grows by preferential attachment, grounded in one node."""
    rng = np.random.default_rng(22)
    ends = [0, 1]
    for new in range(2, n):
        for old in rng.choice(len(ends), 2):
            ends += [new, ends[old]]
    a, b = np.array(ends[0::2]), np.array(ends[1::2])
    return _laplacian(a, b, np.ones(len(a)), n, grounded=[0])


def small_world(n: int) -> sp.csr_array:
    """A ring with chords, of which a few are far."""
    rng = np.random.default_rng(23)
    a = np.tile(np.arange(n), 3)
    b = (a + np.repeat([1, 2, 3], n)) % n
    far = rng.random(len(a)) < 0.01
    b[far] = rng.integers(0, n, int(far.sum()))
    return _laplacian(a, b, np.ones(len(a)), n, grounded=range(0, n, 50))


def block_triangular(count: int, size: int) -> sp.csr_array:
    """Small blocks, each with those before it on its right-hand side, rows and columns in random orders."""
    rng = np.random.default_rng(24)
    n = count * size
    blocks = [sp.random_array((size, size), density=4 / size, rng=rng) + 3 * sp.eye_array(size) for _ in range(count)]
    rows, cols = rng.integers(0, n, 4 * n), rng.integers(0, n, 4 * n)
    above = rows // size < cols // size
    A = sp.block_diag(blocks) + sp.coo_array((rng.standard_normal(above.sum()), (rows[above], cols[above])), (n, n))
    return sp.csr_array(sp.csr_array(A)[rng.permutation(n)][:, rng.permutation(n)])


def markov(n: int) -> sp.csr_array:
    """I - 0.999 Pᵀ of a walk on a plane with a drift."""
    one, step = sp.eye_array(n), sp.diags_array([0.1, 0.4], offsets=[-1, 1], shape=(n, n))
    P = sp.csr_array(sp.kron(step, one) + sp.kron(one, step))
    P = sp.diags_array(1 / P.sum(axis=1)) @ P
    return sp.csr_array(sp.eye_array(n * n) - 0.999 * P.T)


def damped(n: int) -> sp.csr_array:
    """Stiffness, mass and damping of a membrane below a resonance."""
    A = sp.csr_array(poisson((n, n), format="csr"))
    mass = 1 + np.random.default_rng(25).random(n * n)
    return sp.csr_array(A - sp.diags_array((0.05 + 0.01j) * mass))


def convection_cube(n: int) -> sp.csr_array:
    """Upwind convection and diffusion in three dimensions, with a field that turns."""
    one, h = sp.eye_array(n), 1 / (n + 1)
    second = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)) / h
    back = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(n, n))
    speed = sp.diags_array(np.sin(np.pi * (np.arange(n) + 1) * h))
    axes = [(second + 30 * back, one, one), (one, second + 20 * back, speed), (speed, one, second + 10 * back)]
    return sp.csr_array(sum(sp.kron(sp.kron(x, y), z) for x, y, z in axes))


def _square(A: sp.csr_array) -> sp.csr_array:
    return sp.csr_array(A @ A)


def _by_faces(k: np.ndarray, closed: bool = False) -> sp.csr_array:
    """-div k grad on cells with harmonic means on faces; closed, or fixed behind the first layer of cells."""
    cells = np.arange(k.size).reshape(k.shape)
    ends: list[tuple[np.ndarray, np.ndarray]] = []
    for axis, count in enumerate(k.shape):
        ends.append((cells.take(range(count - 1), axis).ravel(), cells.take(range(1, count), axis).ravel()))
    a, b = (np.concatenate(parts) for parts in zip(*ends, strict=True))
    with np.errstate(divide="ignore"):
        face = 2 / (1 / k.ravel()[a] + 1 / k.ravel()[b])
    A = _laplacian(a, b, face, k.size)
    fixed = np.zeros(k.size)
    fixed[cells[0]] = 0 if closed else 2 * k[0]
    return sp.csr_array(A + sp.diags_array(fixed))


def _laplacian(a: np.ndarray, b: np.ndarray, weights: np.ndarray, n: int, grounded: object = ()) -> sp.csr_array:
    data = np.concatenate([weights, weights, -weights, -weights])
    A = sp.coo_array((data, (np.r_[a, b, a, b], np.r_[a, b, b, a])), (n, n))
    extra = np.zeros(n)
    extra[list(grounded)] = 1  # type: ignore[call-overload]
    return sp.csr_array(A + sp.diags_array(extra))


def _simplices(points: np.ndarray) -> sp.csr_array:
    """Stiffness of linear elements on the triangulation of Delaunay, without the nodes of its hull."""
    mesh = Delaunay(points)
    corners = points[mesh.simplices]
    edges = corners[:, 1:] - corners[:, :1]
    volumes = np.abs(np.linalg.det(edges))
    sound = volumes > 1e-14
    cells, edges, volumes = mesh.simplices[sound], edges[sound], volumes[sound]
    inner = np.linalg.inv(edges).transpose(0, 2, 1)
    gradients = np.concatenate([-inner.sum(axis=1, keepdims=True), inner], axis=1)
    local = volumes[:, None, None] * gradients @ gradients.transpose(0, 2, 1)
    rows = np.repeat(cells, cells.shape[1], axis=1).ravel()
    cols = np.tile(cells, (1, cells.shape[1])).ravel()
    A = sp.csr_array((local.ravel(), (rows, cols)), (len(points), len(points)))
    inside = np.setdiff1d(np.arange(len(points)), np.unique(mesh.convex_hull))
    return sp.csr_array(A[inside][:, inside])
