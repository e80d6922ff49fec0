"""Extreme eigenvalues, against LAPACK's of the dense matrix and against formulas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from gaussian_matrices import MATRICES, definite, grid_laplacian, scattered
from krylix import extreme_eigenvalues
from modes import EAGER, array, library


def by_modulus(A: Any) -> np.ndarray:
    """All of them, from zero on."""
    m = A.toarray()
    values = np.linalg.eigvalsh(m) if np.array_equal(m, m.conj().T) else np.linalg.eigvals(m)
    return values[np.argsort(np.abs(values))]


@pytest.mark.parametrize("name", MATRICES)
def test_against_lapack(name: str) -> None:
    A = MATRICES[name]
    values = by_modulus(A)
    found = extreme_eigenvalues(A, 2)
    k = len(found.smallest)
    assert k == min(2, len(values)) and found.hermitian == np.array_equal(A.toarray(), A.conj().T.toarray())
    tolerance = 1e-6 if found.hermitian else 1e-3
    np.testing.assert_allclose(np.abs(found.smallest), np.abs(values[:k]), rtol=tolerance)
    np.testing.assert_allclose(np.abs(found.largest), np.abs(values[::-1][:k]), rtol=max(tolerance, 1e-4))
    assert found.residuals.shape == (2 * k,) and found.residuals.max() <= 1e-2 * np.abs(values[-1])
    assert not found.singular
    np.testing.assert_allclose(found.condition, np.abs(values[-1] / values[0]), rtol=1e-3)


MULTIPLE: dict[str, Callable[[], Any]] = {
    "square grid": lambda: grid_laplacian(16, 16, shift=0),
    "cube": lambda: grid_laplacian(6, 6, 6, shift=0),
    "equal blocks": lambda: sp.block_diag([grid_laplacian(60)] * 4),
    "fivefold": lambda: sp.diags_array(np.r_[[1.0] * 5, [2.0] * 5, np.linspace(3, 50, 290), [60.0] * 5]),
    "both signs": lambda: sp.diags_array(np.r_[[1.0, -1.0] * 3, np.linspace(3, 50, 290), [-60.0, 60.0] * 3]),
    "identity": lambda: sp.eye_array(300),
    "two values": lambda: sp.diags_array(np.r_[[1.0] * 2, [3.0] * 300]),
    "complex": lambda: sp.kron(grid_laplacian(10, 10), np.array([[2, 1j], [-1j, 2]])),
    "real, not symmetric": lambda: shear() @ sp.kron(sp.eye_array(3), grid_laplacian(50)) @ shear(-1),
    "complex pairs": lambda: sp.kron(sp.eye_array(3), rotations(40)),
}


def shear(sign: int = 1) -> Any:
    """I + N and its inverse I - N, as N N is zero."""
    return sp.eye_array(150) + sign * sp.diags_array(np.arange(150) % 2 * 0.3, offsets=0) @ sp.eye_array(150, k=-1)


def rotations(n: int) -> Any:
    """Eigenvalues s (1 + 0.5j) and their conjugates, s from 1 to n."""
    return sp.kron(sp.diags_array(np.arange(1.0, n + 1)), np.array([[1.0, 0.5], [-0.5, 1.0]]))


@pytest.mark.parametrize("name", MULTIPLE)
def test_multiple_eigenvalues(name: str) -> None:
    """Each comes as often as LAPACK has it, at both ends."""
    A = sp.csr_array(MULTIPLE[name]())
    values = np.abs(by_modulus(A))
    for k in (3, 6):
        found = extreme_eigenvalues(A, k)
        np.testing.assert_allclose(np.abs(found.smallest), values[:k], rtol=1e-4)
        np.testing.assert_allclose(np.abs(found.largest), values[::-1][:k], rtol=1e-4)
        assert found.residuals.max() <= 1e-2 * values[-1]


def test_multiple_eigenvalues_in_single_precision() -> None:
    A = grid_laplacian(16, 16, shift=0).astype(np.float32)
    found, values = extreme_eigenvalues(A, 4), by_modulus(A.astype(float))
    np.testing.assert_allclose(found.smallest, values[:4], rtol=1e-3)
    np.testing.assert_allclose(found.largest, values[::-1][:4], rtol=1e-3)


def test_a_jordan_block_has_one_vector() -> None:
    """Copies without vectors of their own are no reason to fail."""
    A = sp.csr_array(sp.block_diag([np.array([[60.0, 1.0], [0.0, 60.0]]), sp.diags_array(np.linspace(1, 50, 200))]))
    found = extreme_eigenvalues(A, 3, which="largest")
    np.testing.assert_allclose(np.abs(found.largest[0]), 60, rtol=1e-2)


def test_signs_and_one_end() -> None:
    A = sp.csr_array(sp.diags_array(np.concatenate([np.arange(2.0, 300), [-1.0, -1000.0]])))
    low, high = (extreme_eigenvalues(A, 2, which=which) for which in ("smallest", "largest"))
    np.testing.assert_allclose(low.smallest, [-1, 2], rtol=1e-9)
    np.testing.assert_allclose(high.largest, [-1000, 299], rtol=1e-6)
    assert low.largest.size == 0 and high.smallest.size == 0 and np.isnan(low.condition)


@pytest.mark.parametrize("mode", EAGER)
def test_functions(mode: str) -> None:
    """On a grid, in each library; traced, so that what suits A solves."""
    bk = krylix.choose_backend(library(mode))

    def A(u: Any) -> Any:
        near = sum(bk.xp.roll(u, s, axis=a) for s in (1, -1) for a in (-1, -2))
        return 4.5 * u - near

    found = extreme_eigenvalues(A, like=array(mode, np.zeros((16, 16))))
    assert found.hermitian
    np.testing.assert_allclose([found.smallest[0], found.largest[0]], [0.5, 8.5], rtol=1e-7)


def test_opaque_operators_and_single_precision() -> None:
    spectrum = 2 + np.cos(np.arange(400) * 2 * np.pi / 400)
    opaque = sp.linalg.LinearOperator(
        (400, 400), matvec=lambda v: np.fft.ifft(np.fft.fft(v) * spectrum).real, dtype=float
    )
    found = extreme_eigenvalues(opaque, like=np.zeros(400))
    assert found.hermitian
    np.testing.assert_allclose([found.smallest[0], found.largest[0]], [1, 3], rtol=1e-5)
    found = extreme_eigenvalues(grid_laplacian(20, 15).astype(np.float32))
    values = by_modulus(grid_laplacian(20, 15))
    np.testing.assert_allclose([found.smallest[0], found.largest[0]], values[[0, -1]], rtol=1e-4)


@pytest.mark.parametrize("n", [8, 20])
def test_singular(n: int) -> None:
    """Null vectors are left out, whether LAPACK or ARPACK finds the others."""
    L = grid_laplacian(n, n, shift=0)
    L = sp.csr_array(L - sp.diags_array(L.sum(axis=1)))
    values = by_modulus(L)
    found = extreme_eigenvalues(L, 2)
    assert found.singular and found.condition == np.inf
    np.testing.assert_allclose(found.smallest, values[1:3], rtol=1e-8)


def test_complex_and_not_hermitian() -> None:
    for A in (definite(150, complex_=True), sp.csr_array(scattered(200) * (2 - 1j))):
        found, values = extreme_eigenvalues(A), by_modulus(A)
        np.testing.assert_allclose(np.abs(found.smallest[0]), np.abs(values[0]), rtol=1e-4)
        np.testing.assert_allclose(np.abs(found.largest[0]), np.abs(values[-1]), rtol=1e-4)


def test_bad_input() -> None:
    A = np.eye(3)
    for settings, what in (({"which": "LM"}, "'smallest'"), ({"k": 0}, "from 1 on"), ({"k": 1.5}, "from 1 on")):
        with pytest.raises(ValueError, match=what):
            extreme_eigenvalues(A, **settings)
    with pytest.raises(ValueError, match="square"):
        extreme_eigenvalues(np.ones((3, 2)))
    with pytest.raises(ValueError, match="2 matrices"):
        extreme_eigenvalues(np.stack([A, A]))
    with pytest.raises(TypeError, match=r"extreme_eigenvalues\(A, like\) needs `like`"):
        extreme_eigenvalues(lambda x: x)
    for n in (4, 300):
        bad = sp.csr_array(sp.diags_array(np.where(np.arange(n) == 2, np.nan, 1.0)))
        with pytest.raises(ValueError, match="not finite"):
            extreme_eigenvalues(bad)
    with pytest.raises(ValueError, match="zeros"):
        extreme_eigenvalues(sp.csr_array((300, 300)))
    assert len(extreme_eigenvalues(A, 10).smallest) == 3


@pytest.mark.needs("jax")
def test_not_inside_of_programs() -> None:
    import jax

    with pytest.raises(TypeError, match="outside of a program"):
        jax.jit(lambda A: extreme_eigenvalues(A).largest)(np.eye(3))
