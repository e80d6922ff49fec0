"""Matrices of many kinds, on which a choice of method can be wrong: `matrices()`. Needs pyamg and SciPy only."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
from pyamg.gallery import diffusion_stencil_2d, linear_elasticity, load_example, poisson, stencil_grid

EXAMPLES = (
    "airfoil", "bar", "helmholtz_2D", "knot", "local_disc_galerkin_diffusion", "recirc_flow", "unit_cube", "unit_square"
)  # fmt: skip


def matrices() -> dict[str, Callable[[], sp.csr_array]]:
    """Name -> what makes the matrix."""
    found: dict[str, Callable[[], sp.csr_array]] = {
        name: lambda n=name: _csr(load_example(n)["A"]) for name in EXAMPLES
    }
    found |= {
        "Poisson 200²": lambda: _csr(poisson((200, 200), format="csr")),
        "Poisson 30³": lambda: _csr(poisson((30, 30, 30), format="csr")),
        "rotated anisotropy 1000:1": _anisotropy,
        "elasticity": lambda: _csr(linear_elasticity((50, 50))[0]),
        "jumps 1e8, cell by cell": lambda: diffusion(10.0 ** np.random.default_rng(0).uniform(-4, 4, (100, 100))),
        "jumps 1e4, blocks": lambda: diffusion(
            np.kron(10.0 ** np.random.default_rng(0).uniform(-2, 2, (10, 10)), np.ones((10, 10)))
        ),
        "closed cavity, singular": lambda: diffusion(np.ones((100, 100)), open_side=False),
        "scaled by 1e±6 on both sides": _scaled_on_both_sides,
        "graph, grounded": lambda: graph(grounded=True),
        "graph, singular": lambda: graph(grounded=False),
        "tridiagonal": lambda: _csr(sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(100_000, 100_000))),
        "random": random,
        "random, rows scaled by 1e±12": lambda: _csr(
            sp.diags_array(10.0 ** np.random.default_rng(1).uniform(-12, 12, 3000)) @ random()
        ),
        "saddle point": lambda: saddle(1e-8),
        "saddle point, zero block": lambda: saddle(0.0),
        "nearly singular": lambda: _csr(diffusion(np.ones((60, 60)), open_side=False) + 1e-10 * sp.eye_array(3600)),
    }
    for peclet in (10, 1000, 100_000):
        for scheme in ("central", "upwind"):
            found[f"convection, Péclet {peclet}, {scheme}"] = lambda p=peclet, s=scheme: convection(p, s)
    for waves in (10, 30, 60):
        found[f"Helmholtz, k = {waves}"] = lambda k=waves: _csr(
            poisson((100, 100), format="csr") - sp.eye_array(10_000) * (k / 101) ** 2
        )
    return found


def right_hand_side(A: sp.csr_array) -> np.ndarray:
    """Of a random solution, so that singular systems have one."""
    x = np.random.default_rng(3).standard_normal(A.shape[0])
    return A @ (x + 1j if A.dtype.kind == "c" else x)


def diffusion(k: np.ndarray, open_side: bool = True) -> sp.csr_array:
    """-div k grad on cells, harmonic means on the faces, closed but for one side."""
    cells, entries, diagonal = np.arange(k.size).reshape(k.shape), [], np.zeros(k.size)
    for axis in (0, 1):
        count = k.shape[axis]
        a, b = (cells.take(range(first, first + count - 1), axis).ravel() for first in (0, 1))
        face = 2 / (1 / k.ravel()[a] + 1 / k.ravel()[b])
        entries += [(-face, a, b), (-face, b, a)]
        np.add.at(diagonal, a, face)
        np.add.at(diagonal, b, face)
    diagonal[cells[0]] += 2 * k[0] * open_side
    entries.append((diagonal, cells.ravel(), cells.ravel()))
    data, rows, cols = (np.concatenate(parts) for parts in zip(*entries, strict=True))
    return sp.csr_array((data, (rows, cols)))


def convection(peclet: float, scheme: str, n: int = 100) -> sp.csr_array:
    h, one = 1 / (n + 1), sp.eye_array(n)
    second = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)) / (h * h * peclet)
    if scheme == "central":
        first = sp.diags_array([-1.0, 1.0], offsets=[-1, 1], shape=(n, n)) / (2 * h)
    else:
        first = sp.diags_array([-1.0, 1.0], offsets=[-1, 0], shape=(n, n)) / h
    return _csr(sp.kron(second + first, one) + sp.kron(one, second + 0.5 * first))


def graph(grounded: bool, n: int = 5000) -> sp.csr_array:
    edges = sp.random_array((n, n), density=6 / n, rng=np.random.default_rng(1))
    edges = sp.csr_array(edges + edges.T)
    edges.setdiag(0)
    degrees = np.asarray(edges.sum(axis=1)).ravel() + grounded * (np.arange(n) % 100 == 0)
    return _csr(sp.diags_array(degrees) - edges)


def random(n: int = 3000) -> sp.csr_array:
    return _csr(sp.random_array((n, n), density=5 / n, rng=np.random.default_rng(2)) + sp.eye_array(n))


def saddle(penalty: float, n: int = 40) -> sp.csr_array:
    """Viscous flow on a grid: two velocities, and the pressure that keeps them free of divergence."""
    step, one = sp.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(n, n)), sp.eye_array(n)
    B = sp.hstack([sp.kron(step, one), sp.kron(one, step)])
    A = poisson((n, n), format="csr")
    C = -penalty * sp.eye_array(n * n) if penalty else None
    return _csr(sp.block_array([[sp.block_diag([A, A]), B.T], [B, C]]))


def _anisotropy() -> sp.csr_array:
    stencil = diffusion_stencil_2d(epsilon=0.001, theta=np.pi / 6, type="FD")
    return _csr(stencil_grid(stencil, (150, 150), format="csr"))


def _scaled_on_both_sides() -> sp.csr_array:
    scale = sp.diags_array(10.0 ** np.random.default_rng(5).uniform(-6, 6, 10_000))
    return _csr(scale @ poisson((100, 100), format="csr") @ scale)


def _csr(A: object) -> sp.csr_array:
    return sp.csr_array(A)
