"""Matrices whose determinants and inverses are asked for, in NumPy's double precision."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def grid_laplacian(*shape: int, shift: float = 0.3) -> sp.csr_array:
    """The Laplacian of a grid with zeros on the rim, plus a multiple of the identity."""
    found = sp.csr_array((1, 1))
    for n in shape:
        T = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
        found = sp.kron(found, sp.eye_array(n)) + sp.kron(sp.eye_array(found.shape[0]), T)
    return sp.csr_array(found + shift * sp.eye_array(found.shape[0]))


def closed(n: int) -> sp.csr_array:
    """The Laplacian of n x n cells through whose rim nothing flows: singular, but for rounding."""
    L = grid_laplacian(n, n, shift=0)
    L = L - sp.diags_array(L.sum(axis=1))
    scale = sp.diags_array(1 + 0.3 * np.sin(np.arange(n * n)))
    return sp.csr_array(scale @ L @ scale)


def scattered(n: int, density: float = 0.03, seed: int = 0) -> sp.csr_array:
    """Random entries in any place, and a small diagonal: rows have to be exchanged."""
    rng = np.random.default_rng(seed)
    return sp.csr_array(sp.random_array((n, n), density=density, rng=rng) + 0.1 * sp.eye_array(n))


def definite(n: int, seed: int = 0, complex_: bool = False) -> sp.csr_array:
    """Hermitian positive definite."""
    B = scattered(n, seed=seed)
    if complex_:
        B = B + 1j * scattered(n, seed=seed + 1)
    found = sp.csr_array(B @ B.conj().T + 0.5 * sp.eye_array(n))
    found.sort_indices()
    return found


def cancelling() -> sp.csr_array:
    """Elimination makes exact zeros, which SuperLU does not store, though the inverse is full."""
    A = np.array([[1.0, 1, 1, 0, 0], [1, 2, 1, 0, 0], [1, 1, 2, 1, 0], [0, 0, 1, 3, 1], [0, 0, 0, 1, 2]])
    return sp.csr_array(A)


def saddle_point(n: int = 40, seed: int = 3) -> sp.csr_array:
    """Symmetric and indefinite, with zeros on the diagonal."""
    rng = np.random.default_rng(seed)
    B = sp.random_array((n // 2, n), density=0.2, rng=rng) + sp.eye_array(n // 2, n)
    return sp.csr_array(sp.block_array([[grid_laplacian(n), B.T], [B, None]]))


MATRICES = {
    "grid": grid_laplacian(9, 8),
    "3-d": grid_laplacian(5, 4, 6),
    "line": grid_laplacian(200),
    "large grid": grid_laplacian(30, 25),
    "scattered": scattered(150),
    "scattered, large": scattered(600, 0.004),
    "complex": sp.csr_array(scattered(90) * (1 - 2j) + 1j * scattered(90, seed=5)),
    "Hermitian": definite(80, complex_=True),
    "indefinite": saddle_point(),
    "negative definite": sp.csr_array(-definite(61)),
    "cancelling": cancelling(),
    "a permutation": sp.csr_array(sp.eye_array(7))[[1, 2, 0, 3, 5, 4, 6]],
    "apart": sp.csr_array(sp.block_diag([definite(30), scattered(33), [[2.0]]])),
    "huge": sp.csr_array(1e150 * grid_laplacian(6, 7)),
    "tiny": sp.csr_array(1e-150 * scattered(40)),
    "one": sp.csr_array([[-3.0]]),
}
