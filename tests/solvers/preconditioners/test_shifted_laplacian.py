"""Shifted Laplacians for Helmholtz's equation: against dense inverses, and by iterations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import in_turn
from krylix import linear_solve, preconditioner
from krylix.solvers.preconditioners.shifted_laplacian import looks_like_waves
from matrices import in_random_order
from modes import array, compiled, to_numpy
from named_problems import convection, elements, poisson


def waves(n: int, kh: Any, *, absorbing: bool = False, loss: complex = 0) -> sp.csr_array:
    """-Laplace - k^2 (1 + loss) on n x n points, times h^2; at absorbing walls du/dn = i k u, else u = 0."""
    k = np.broadcast_to(np.asarray(kh, float), (n, n))
    A = sp.csr_array(poisson(n, n)) - sp.diags_array((k**2 * (1 + loss)).reshape(-1))
    if absorbing:
        ends = np.zeros((n, n))
        ends[[0, -1]] += 1
        ends[:, [0, -1]] += 1
        A = A - sp.diags_array((ends / (1 - 1j * k)).reshape(-1))
    return sp.csr_array(A)


def iterations(A: Any, method: str, M: Any, **settings: Any) -> int:
    b = np.zeros(A.shape[0], A.dtype)
    b[A.shape[0] // 2] = 1
    found = linear_solve(A, b, method=method, preconditioner=M, rtol=1e-6, max_iter=1500, on_failure="status")
    assert not found.converged or np.linalg.norm(A @ found.x - b) <= 1e-6
    return int(found.iterations) if found.converged else 1500


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shift", [0.5, 1.0])
def test_is_the_inverse_of_the_shifted_matrix(sign: int, side: int, shift: float) -> None:
    """With one grid, which is solved on; k^2 at the walls is that of their neighbours."""
    n, kh, loss = 12, 0.5, -1e-3j * sign * side
    A = sign * waves(n, kh, loss=loss)
    M = preconditioner(A, "shifted-laplacian", shift=shift, direct=n * n)
    added = 1j * side * shift * kh**2 * np.eye(n * n)
    np.testing.assert_allclose(M.dense(), np.linalg.inv(A.toarray() + added), atol=1e-10)
    np.testing.assert_allclose(M.T.dense(), M.dense(), atol=1e-12)
    assert M.hermitian is False and dict(M.settings)["shift"] == shift
    real = sp.csr_array(A.real)
    M = preconditioner(real, "shifted-laplacian", shift=shift, direct=n * n)
    np.testing.assert_allclose(M.dense(), np.linalg.inv(real.toarray() + sign * (1 + shift) * kh**2 * np.eye(n * n)),
                               atol=1e-10)  # fmt: skip
    assert M.hermitian is True and M.dtype == np.float64


def test_wave_numbers_that_jump() -> None:
    n = 12
    k = np.where(np.arange(n) < 6, 0.3, 0.6)[:, None] * np.ones(n)
    A = waves(n, k, loss=-1e-3j)
    M = preconditioner(A, "shifted-laplacian", direct=n * n)
    expected = A + 0.5j * sp.diags_array((k**2).reshape(-1))
    difference = np.abs(np.linalg.inv(M.dense()) - expected.toarray()).reshape((n,) * 4)
    assert difference[1:-1, 1:-1].max() < 1e-8 and difference.max() <= 0.5 * 0.6**2


@pytest.mark.parametrize("kh", [0.1, 0.3, 0.6])
def test_few_iterations_where_walls_absorb(kh: float) -> None:
    A = waves(72, kh, absorbing=True)
    found, scaled = iterations(A, "COCR", "shifted-laplacian"), iterations(A, "COCR", "jacobi")
    assert found <= {0.1: 20, 0.3: 35, 0.6: 60}[kh] and found < scaled / 6
    assert iterations(A, "GMRES(50)", "shifted-laplacian") <= found + 5
    assert iterations(A, "COCR", "auto") == found


def test_few_iterations_where_walls_reflect() -> None:
    A = waves(72, 0.2)
    assert iterations(A, "MINRES", "shifted-laplacian") < iterations(A, "MINRES", None) / 6


@pytest.mark.parametrize("absorbing", [True, False])
def test_in_any_order(absorbing: bool) -> None:
    """By algebraic multigrid, which keeps to no grid."""
    A = in_random_order(waves(60, 0.3 if absorbing else 0.15, absorbing=absorbing))
    M = preconditioner(A, "shifted-laplacian")
    assert M.kind == "shifted-laplacian"
    method = "GMRES(50)" if absorbing else "MINRES"
    assert iterations(A, method, M) < iterations(A, method, None) / 4


@pytest.mark.parametrize("n", [1, 7])
def test_small(n: int) -> None:
    A = waves(n, 0.5, loss=0.01j)
    M = preconditioner(A, "shifted-laplacian")
    assert iterations(A, "GMRES", M) <= 20


@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf"])
def test_every_library(mode: str) -> None:
    A = waves(24, 0.4, absorbing=True)
    r = np.random.default_rng(0).standard_normal(576) * (1 + 1j)
    expected = preconditioner(A, "shifted-laplacian", direct=144)
    M = preconditioner(A, "shifted-laplacian", direct=144, like=array(mode, r))
    found = compiled(mode, lambda r: M @ r)(array(mode, r))
    np.testing.assert_allclose(to_numpy(found), expected @ r, atol=1e-10)


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize(("mode", "absorbing"), in_turn(["jax-jit", "tf-function"], [True, False]))
def test_traced_values(mode: str, absorbing: bool) -> None:
    """The same numbers, of an argument of the compiled function."""
    A = waves(24, 0.4, absorbing=absorbing)
    r = np.random.default_rng(0).standard_normal(576).astype(A.dtype)
    own: Any = krylix.as_operator(A, array(mode, r))
    applied = compiled(
        mode,
        lambda values, r: preconditioner(own.with_values(values), "shifted-laplacian", grid=(24, 24), direct=144) @ r,
    )
    expected = preconditioner(A, "shifted-laplacian", direct=144, grid=(24, 24)) @ r
    np.testing.assert_allclose(to_numpy(applied(own.values, array(mode, r))), expected, atol=1e-8)


def test_batch() -> None:
    each = [waves(12, k, loss=-1e-3j) for k in (0.3, 0.5)]
    M = preconditioner(each, "shifted-laplacian", direct=200, grid=(12, 12))
    for one, A, k in zip(M.dense(), each, (0.3, 0.5)):
        np.testing.assert_allclose(one, np.linalg.inv(A.toarray() + 0.5j * k**2 * np.eye(144)), atol=1e-10)


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_derivatives() -> None:
    import jax
    import jax.numpy as jnp

    A, b = waves(12, 0.4, absorbing=True), np.random.default_rng(0).standard_normal(144)

    def loss(b: Any) -> Any:
        x = linear_solve(A, b + 0j, method="COCR", preconditioner="shifted-laplacian", rtol=1e-11).x
        return jnp.sum(jnp.abs(x) ** 2)

    inverse = np.linalg.inv(A.toarray())
    expected = 2 * (inverse.conj().T @ (inverse @ b)).real
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(jnp.asarray(b)), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("A", "expected"),
    [
        (waves(20, 0.3), True), (-waves(20, 0.3), True), (waves(20, 0.3, absorbing=True), True),
        (waves(20, 0.5, loss=0.1j), True), (poisson(20, 20), False), (poisson(20, 20) + 0.1 * sp.eye_array(400), False),
        (elements(300), False), (convection(12, 1e-2), False), (waves(20, 2.0), False),
        (sp.csr_array((9, 9)), False), (waves(20, 0.3) * np.nan, False), (sp.csr_array(np.ones((4, 4))), False),
    ],
    ids=["waves", "negative", "absorbing walls", "lossy", "Poisson", "mass", "elements", "convection", "too short",
         "zero", "NaN", "ones"],
)  # fmt: skip
def test_what_looks_like_waves(A: Any, expected: bool) -> None:
    assert looks_like_waves(krylix.as_operator(sp.csr_array(A))) is expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"shift": 0}, "above 0"), ({"cycle": "F"}, "'V' or 'W'"), ({"degree": 0}, "degree"), ({"grid": (5, 5)}, "points"),
     ({"precision": "half"}, "precision"), ({"direct": 0}, "direct")],
)  # fmt: skip
def test_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        preconditioner(waves(12, 0.3, loss=0.1j), "shifted-laplacian", **settings)
