"""The order of elimination: that of A + Aᵀ where it is safe, and elsewhere one that bears exchanges of rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyamg
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from krylix import linear_solve
from krylix.solvers.factors.superlu import factors_of

DTYPES = ["float32", "float64", "complex64", "complex128"]
RNG = np.random.default_rng(0)
LINE = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(32, 32))
ONE = sp.eye_array(32)
GRID = sp.kron(LINE, ONE) + sp.kron(ONE, LINE)
N = GRID.shape[0]
UNITS = sp.diags_array(10.0 ** RNG.uniform(-3, 3, N))


def flow(peclet: float, upwind: bool) -> Any:
    """Convection along both axes beside diffusion."""
    size = peclet / 32
    back = sp.diags_array([-1.0, 1.0] if upwind else [-0.5, 0.5], offsets=[-1, 0 if upwind else 1], shape=(32, 32))
    return GRID + size * (sp.kron(back, ONE) + sp.kron(ONE, back))


def ring(n: int) -> Any:
    return sp.diags_array([-1.0, -1.0, 2.0, -1.0, -1.0], offsets=[1 - n, -1, 0, 1, n - 1], shape=(n, n))


def closed() -> Any:
    """Periodic along both axes: singular."""
    return sp.kron(ring(32), ONE) + sp.kron(ONE, ring(32))


def saddle(block: float) -> Any:
    B = sp.random_array((200, N), density=0.004, rng=np.random.default_rng(1)) + sp.eye_array(200, N)
    return sp.block_array([[GRID, B.T], [B, -block * sp.eye_array(200)]])


def star(n: int) -> Any:
    """One row and column of ones beside a ring."""
    return sp.block_array([[np.full((1, 1), 10.0 * n), np.ones((1, n))], [np.ones((n, 1)), ring(n) + sp.eye_array(n)]])


def phases(A: Any) -> Any:
    """Complex: D A D^H."""
    turn = sp.diags_array(np.exp(1j * RNG.uniform(0, 6, A.shape[0])))
    return turn @ A @ turn.conj()


SPARSER: dict[str, Callable[[], Any]] = {
    "grid": lambda: GRID,
    "grid, negative": lambda: -GRID,
    "three axes": lambda: pyamg.gallery.poisson((11, 11, 11)),
    "elasticity": lambda: pyamg.gallery.linear_elasticity((24, 24))[0],
    "units": lambda: UNITS @ GRID @ UNITS,
    "convection": lambda: flow(100.0, upwind=True),
    "convection, central": lambda: flow(30.0, upwind=False),
    "nearly singular": lambda: closed() + 1e-3 * sp.eye_array(N),
    "Hermitian": lambda: phases(GRID),
}
EXCHANGED: dict[str, Callable[[], Any]] = {
    "zero block": lambda: saddle(0.0),
    "small block": lambda: saddle(1e-8),
    "pivots that become zero": lambda: GRID - 3 * sp.eye_array(N),
    "waves": lambda: GRID - 0.7 * sp.eye_array(N),
    "convection, central": lambda: flow(1e5, upwind=False),
    "pattern of one triangle": lambda: sp.tril(GRID) + sp.random_array((N, N), density=1e-3, rng=RNG) + sp.eye_array(N),
    "one full row and column": lambda: star(4 * N),
    "imaginary": lambda: 1j * GRID,
}  # fmt: skip


def of(case: str, cases: dict[str, Callable[[], Any]], dtype: str) -> Any:
    A = sp.csc_array(cases[case]())
    if dtype.startswith("c") and A.dtype.kind != "c":
        A = A * (1 + 0j)
    A = sp.csc_array(A.astype(dtype))
    A.sum_duplicates()
    return A


def check(A: Any, x: np.ndarray, b: np.ndarray) -> None:
    """Each equation holds, up to rounding errors of what is added up in it (Oettli and Prager)."""
    wide = A.astype(np.result_type(A.dtype, np.float64))
    left = np.abs(wide @ x - b)
    assert np.all(left <= 1e4 * np.finfo(A.dtype).eps * (abs(wide) @ np.abs(x) + np.abs(b)))


@pytest.mark.parametrize(
    ("cases", "case", "dtype"),
    [
        pytest.param(cases, case, dtype, id=f"{name}-{case}-{dtype}")
        for name, cases in (("sparser", SPARSER), ("exchanged", EXCHANGED))
        for case in cases
        for dtype in DTYPES
        if case not in ("Hermitian", "imaginary") or dtype.startswith("c")
    ],
)
def test_factors_are_sparse(cases: dict[str, Callable[[], Any]], case: str, dtype: str) -> None:
    """Sparser than SuperLU's where no rows need to be exchanged, and as sparse elsewhere."""
    A = of(case, cases, dtype)
    b = np.cos(np.arange(A.shape[0])).astype(dtype)
    lu = factors_of(A)
    assert lu.nnz <= (0.9 if cases is SPARSER else 1) * splu(A).nnz
    check(A, lu.solve(b), b)
    check(A.T, lu.solve(b, "T"), b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_singular_matrices(dtype: str) -> None:
    """Found, and solved where there is a solution."""
    A = sp.csr_array(closed().astype(dtype))
    b = np.cos(np.arange(N)).astype(dtype)
    b -= b.mean()
    result = linear_solve(A, b, method="scipy-direct")
    wave = 2 - 2 * np.cos(2 * np.pi * np.arange(32) / 32)  # eigenvalues along one axis, whose vectors are Fourier's
    eigenvalues = wave[:, None] + wave
    eigenvalues[0, 0] = np.inf  # constants
    expected = np.fft.ifft2(np.fft.fft2(b.reshape(32, 32).astype("complex128")) / eigenvalues).reshape(-1)
    error = np.linalg.norm(result.x - result.x.mean() - expected) / np.linalg.norm(expected)
    assert result.converged and error < 1e3 * np.finfo(dtype).eps
    other = linear_solve(A, b + 1, method="scipy-direct", nullspace=None, on_failure="status")
    assert not other.converged


@pytest.mark.parametrize("shift", [1e-8, 1e-6])
def test_nearly_singular_matrices_are_no_singular_ones(shift: float) -> None:
    A = sp.csr_array(closed() + shift * sp.eye_array(N))
    b = np.ones(N)
    x = linear_solve(A, b, method="scipy-direct", nullspace=None).x
    np.testing.assert_allclose(x, 1 / shift, rtol=1e-4 * 1e-6 / shift)
