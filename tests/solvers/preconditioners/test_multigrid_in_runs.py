"""Multigrid by name for coefficients that are arguments of a program: set up when it runs, and right for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from frameworks import lazy
from krylix.solvers.preconditioners.choose import pays_unseen
from krylix.sparse import Stencil

jax = lazy("jax")
jnp = lazy("jax.numpy")
N = 20
X, Y = np.meshgrid(*[np.linspace(0, 1, N)] * 2, indexing="ij")
rng = np.random.default_rng(3)
B, W, D = rng.standard_normal((3, N, N))
SMOOTH = np.exp(np.sin(5 * X) * np.cos(4 * Y))


def flux(u: Any, k: Any) -> Any:
    """-div(k grad u), zero around, with k between points as the mean."""
    p, q = jnp.pad(u, 1), jnp.pad(k, 1, mode="edge")
    x = (q[1:, 1:-1] + q[:-1, 1:-1]) / 2 * (p[1:, 1:-1] - p[:-1, 1:-1])
    y = (q[1:-1, 1:] + q[1:-1, :-1]) / 2 * (p[1:-1, 1:] - p[1:-1, :-1])
    return x[:-1] - x[1:] + y[:, :-1] - y[:, 1:]


def dense(k: np.ndarray) -> np.ndarray:
    """By hand."""
    A, q = np.zeros((N, N, N, N)), np.pad(k, 1, mode="edge")
    for i, j in np.ndindex(N, N):
        for a, b in ((1, 0), (-1, 0), (0, 1), (0, -1)):
            mean = (q[i + 1, j + 1] + q[i + 1 + a, j + 1 + b]) / 2
            A[i, j, i, j] += mean
            if 0 <= i + a < N and 0 <= j + b < N:
                A[i, j, i + a, j + b] -= mean
    return A.reshape(N * N, N * N)


def solve(k: Any, b: Any, **settings: Any) -> Any:
    A, _ = krylix.matrix_from_function(flux, b, k)
    M = krylix.preconditioner(A, "multigrid", direct=50)
    return krylix.linear_solve(flux, b, args=(k,), method="CG", preconditioner=M, rtol=1e-10, **settings)


@pytest.mark.merge
@pytest.mark.parametrize("policy", ["raise", "nan"])
def test_derivatives(policy: str) -> None:
    """Of the first and second order with respect to k under vmap, with levels of the host and of the program."""

    def loss(k: Any) -> Any:
        return jnp.sum(W * solve(k, B, on_failure=policy).x)

    def second(k: Any) -> Any:
        return jax.jvp(jax.grad(loss), (k,), (jnp.asarray(D),))[1]

    def expected(k: np.ndarray) -> float:
        return float(W.reshape(-1) @ np.linalg.solve(dense(k), B.reshape(-1)))

    batch = np.stack([SMOOTH, SMOOTH.T + 0.5])
    with jax.enable_x64(True):
        gradients, curvatures = jax.jit(jax.vmap(lambda k: (jax.grad(loss)(k), second(k))))(batch)
    h = 1e-4
    for k, gradient, curvature in zip(batch, gradients, curvatures):
        ahead, here, back = (expected(k + s * h * D) for s in (1, 0, -1))
        np.testing.assert_allclose(np.sum(gradient * D), (ahead - back) / (2 * h), rtol=1e-5)
        np.testing.assert_allclose(np.sum(curvature * D), (ahead - 2 * here + back) / h**2, rtol=1e-3)


HOLE = np.hypot(X - 0.5, Y - 0.5) < 0.2
SPECIAL = {
    "zero in a region": np.where(HOLE, 0.0, 1.0),
    "zero": 0 * X,
    "both signs": np.where(HOLE, -1.0, 1.0),
    "NaN": np.where((X == 0) & (Y == 0), np.nan, 1.0),
    "infinite": np.where((X == 0) & (Y == 0), np.inf, 1.0),
    "huge jumps": np.where(HOLE, 1e12, 1e-12),
}


@pytest.mark.parametrize("policy", ["status", pytest.param("nan", marks=pytest.mark.merge)])
def test_special_coefficients(policy: str) -> None:
    """Whatever k is, x solves the system or is not said to."""
    with jax.enable_x64(True):
        run = jax.jit(lambda k: solve(k, B, on_failure=policy))
        for name, k in SPECIAL.items():
            result = run(k)
            if bool(result.converged):
                residual = np.linalg.norm(B.reshape(-1) - dense(k) @ np.asarray(result.x).reshape(-1))
                assert residual <= 1.1e-10 * np.linalg.norm(B), name
            elif policy == "nan":
                assert np.isnan(np.asarray(result.x)).all(), name


SHIFTS = {
    "along one axis": [(0, 0), (1, 0), (-1, 0)],
    "along the other one": [(0, 0), (0, 1), (0, -1)],
    "across corners": [(0, 0), (1, 1), (-1, -1)],
    "nine points": [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)],
}


@pytest.mark.merge
@pytest.mark.parametrize("systems", [None, 2])
@pytest.mark.parametrize("grid", [(20, 15), (40, 2)])
@pytest.mark.parametrize("name", SHIFTS)
def test_the_host_and_the_program_make_the_same(name: str, grid: tuple[int, int], systems: int | None) -> None:
    """Whichever neighbours are coupled."""
    shifts = SHIFTS[name]
    values = -np.random.default_rng(4).uniform(0.5, 1.0, (len(shifts), *([systems] if systems else []), *grid))
    values[shifts.index((0, 0))] = len(shifts)
    r = rng.standard_normal(((systems,) if systems else ()) + (grid[0] * grid[1],))

    def image(values: Any, r: Any) -> Any:
        M = krylix.preconditioner(Stencil([*values], shifts, grid), "multigrid", direct=40)
        return M.inner.apply(r if systems else r[None])

    with jax.enable_x64(True):
        host = jax.jit(image)(values, r)
        with krylix.on_failure("nan"):
            program = jax.jit(lambda values, r: image(values, r))(values, r)
    np.testing.assert_allclose(host, program, rtol=0, atol=1e-9 * np.abs(host).max())


@pytest.mark.parametrize(
    ("grid", "symmetric", "expected"),
    [((99, 99), True, False), ((100, 100), True, True), ((100, 100), False, False), ((47, 46, 47), True, True)],
)
def test_from_which_size_it_pays(grid: tuple[int, ...], symmetric: bool, expected: bool) -> None:
    shifts = [
        (0,) * len(grid),
        *(tuple(s * np.eye(len(grid), dtype=int)[k]) for k in range(len(grid)) for s in (1, -1)),
    ]
    found = []

    def look(values: Any) -> Any:
        found.append(pays_unseen(Stencil([*values], shifts, grid), symmetric))
        return values

    jax.make_jaxpr(look)(np.ones((len(shifts), *grid)))
    assert found == [expected]


def test_a_ring() -> None:
    """Levels of the host have the arrays of the program where an axis is periodic, too."""
    ring, line = sp.diags_array([-1.0, 2.1, -1.0], offsets=[-1, 0, 1], shape=(16, 16)).tolil(), 4 * sp.eye_array(20)
    ring[0, -1] = ring[-1, 0] = -1
    A = sp.csr_array(sp.kron(sp.csr_array(ring), sp.eye_array(20)) + sp.kron(sp.eye_array(16), line))
    A = sp.csr_array(A - sp.kron(sp.eye_array(16), sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(20, 20))))
    pattern = krylix.as_operator(A)
    r = rng.standard_normal(320)

    def image(values: Any) -> Any:
        return krylix.preconditioner(pattern.with_values(values), "multigrid", grid=(16, 20), direct=50) @ r

    known = krylix.preconditioner(A, "multigrid", grid=(16, 20), direct=50, directional=False)
    np.testing.assert_allclose(jax.jit(image)(pattern.values), known @ r, rtol=1e-10, atol=1e-10)
