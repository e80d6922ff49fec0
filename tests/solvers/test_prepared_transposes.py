"""`PreparedSolver.T` keeps what belongs to the problem: null vectors, shapes of arrays, the axis."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix import prepare

N = 12
RANDOM = np.random.default_rng(5)
NEUMANN = np.diag([1.0] + [2.0] * (N - 2) + [1.0]) - np.eye(N, k=1) - np.eye(N, k=-1)
SINGULAR = np.diag(np.arange(1.0, N + 1)) @ NEUMANN  # not symmetric: constants are null vectors on the right only
ONES = np.ones(N) / np.sqrt(N)
LEFT = np.linalg.svd(SINGULAR)[0][:, -1]
B_RANGE = SINGULAR @ RANDOM.normal(size=N)
GRID = (6, 5)
INPUT = RANDOM.normal(size=GRID)


@pytest.mark.parametrize("nullspace", ["constant", ONES[None]], ids=["named", "given"])
@pytest.mark.parametrize("method", ["GMRES", "BiCGStab"])
def test_null_vectors_come_back(method: str, nullspace: Any) -> None:
    solver = prepare(SINGULAR, method=method, nullspace=nullspace, rtol=1e-10)
    want = np.linalg.pinv(SINGULAR) @ B_RANGE
    for again in (
        solver,
        solver.T.T,
        solver.T.T.T.T,
        pickle.loads(pickle.dumps(solver.T)).T,
        solver.T.T.update(SINGULAR),
    ):
        x = again(B_RANGE)
        assert abs(x.sum()) < 1e-7 * np.linalg.norm(x)
        np.testing.assert_allclose(x, want, rtol=1e-6, atol=1e-7)


def test_null_vectors_of_another_matrix() -> None:
    solver = prepare(SINGULAR, method="GMRES", nullspace="constant", rtol=1e-10)
    other = np.diag(np.arange(N, 0.0, -1)) @ NEUMANN
    x = solver.T.update(other.T).T(other @ np.arange(N))
    np.testing.assert_allclose(x, np.arange(N) - np.arange(N).mean(), atol=1e-6)


def test_null_vectors_of_both_sides() -> None:
    """A symmetric one keeps them on each."""
    b = NEUMANN @ RANDOM.normal(size=N)
    solver = prepare(NEUMANN, method="MINRES", nullspace="constant", rtol=1e-10)
    for again in (solver, solver.T, solver.T.T):
        np.testing.assert_allclose(again(b), np.linalg.pinv(NEUMANN) @ b, atol=1e-7)


def stencil(u: Any) -> Any:
    """Diffusion with a wind, which makes it unsymmetric."""
    out = 4.5 * u
    shifted = np.zeros_like(u)
    shifted[1:] = u[:-1]
    out = out - 1.4 * shifted
    shifted = np.zeros_like(u)
    shifted[:-1] = u[1:]
    out = out - 0.6 * shifted
    shifted = np.zeros_like(u)
    shifted[:, 1:] = u[:, :-1]
    out = out - 1.2 * shifted
    shifted = np.zeros_like(u)
    shifted[:, :-1] = u[:, 1:]
    return out - 0.8 * shifted


def traced(u: Any) -> Any:
    """The same for every library, by matrices."""
    rows = 4.5 * np.eye(GRID[0]) - 1.4 * np.eye(GRID[0], k=-1) - 0.6 * np.eye(GRID[0], k=1)
    cols = 1.2 * np.eye(GRID[1], k=1) + 0.8 * np.eye(GRID[1], k=-1)
    return _const(rows, u) @ u - u @ _const(cols, u)


def _const(matrix: np.ndarray, like: Any) -> Any:
    if type(like).__module__.startswith("torch"):
        import torch

        return torch.asarray(matrix)
    return matrix


def _dense() -> np.ndarray:
    return np.stack([stencil(e.reshape(GRID)).ravel() for e in np.eye(INPUT.size)], 1)


@pytest.mark.parametrize("function", [stencil, traced])
@pytest.mark.parametrize(
    "settings",
    [
        {"method": "GMRES"},
        {"method": "GMRES", "preconditioner": "jacobi"},
        {"method": "fast-direct"},
        {"method": "direct"},
        {},
    ],
    ids=str,
)
def test_functions_on_grids(settings: dict[str, Any], function: Any) -> None:
    A = _dense()
    solver = prepare(function, INPUT, rtol=1e-10, **settings)
    for again, matrix in ((solver.T, A.T), (solver.T.T, A), (solver.T.T.T, A.T)):
        found = again(INPUT)
        assert found.shape == GRID
        np.testing.assert_allclose(found.ravel(), np.linalg.solve(matrix, INPUT.ravel()), rtol=1e-7, atol=1e-9)


def test_affine_functions_on_grids() -> None:
    solver = prepare(lambda u: stencil(u) + 1.0, INPUT, method="GMRES", rtol=1e-10)
    A = _dense()
    np.testing.assert_allclose(solver.T(INPUT).ravel(), np.linalg.solve(A.T, INPUT.ravel()), rtol=1e-7)
    np.testing.assert_allclose(solver.T.T(INPUT).ravel(), np.linalg.solve(A, INPUT.ravel() - 1), rtol=1e-7)


def test_complex_batches_on_grids_are_not_conjugated() -> None:
    b = np.stack([INPUT, 1j * INPUT, INPUT + 1j])
    solver = prepare(
        lambda u: np.stack([stencil(one) + 2j * one for one in u]), b, batch_ndim=1, method="GMRES", rtol=1e-10
    )
    want = np.linalg.solve(_dense().T + 2j * np.eye(INPUT.size), b.reshape(3, -1).T).T
    np.testing.assert_allclose(solver.T(b).reshape(3, -1), want, rtol=1e-7, atol=1e-9)


def test_pickled_transposes_of_functions() -> None:
    solver = pickle.loads(pickle.dumps(prepare(stencil, INPUT, method="GMRES", rtol=1e-10).T))
    np.testing.assert_allclose(solver(INPUT).ravel(), np.linalg.solve(_dense().T, INPUT.ravel()), rtol=1e-7)


def test_containers() -> None:
    A = RANDOM.normal(size=(5, 5)) + 5 * np.eye(5)

    def function(v: dict[str, Any]) -> dict[str, Any]:
        image = A @ np.concatenate([v["p"], v["q"].ravel()])
        return {"p": image[:1], "q": image[1:].reshape(2, 2)}

    b = RANDOM.normal(size=5)
    tree = {"p": b[:1], "q": b[1:].reshape(2, 2)}
    for again, matrix in ((prepare(function, tree, method="GMRES", rtol=1e-10).T, A.T),):
        x = again(tree)
        found = np.concatenate([x["p"], x["q"].ravel()])
        np.testing.assert_allclose(found, np.linalg.solve(matrix, b), rtol=1e-7)


@pytest.mark.parametrize("settings", [{"method": "GMRES"}, {"method": "fast-direct"}, {}], ids=str)
def test_jax(settings: dict[str, Any]) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        b = jax.numpy.asarray(INPUT)
        solver, A = prepare(traced, b, rtol=1e-10, **settings), _dense()
        want = np.linalg.solve(A.T, INPUT.ravel())
        np.testing.assert_allclose(np.ravel(solver.T(b)), want, rtol=1e-7)
        np.testing.assert_allclose(np.ravel(solver.T.T(b)), np.linalg.solve(A, INPUT.ravel()), rtol=1e-7)
        if settings:
            np.testing.assert_allclose(np.ravel(jax.jit(lambda s, b: s.T(b))(solver, b)), want, rtol=1e-7)
            np.testing.assert_allclose(np.ravel(jax.jit(lambda s, b: s(b))(solver.T, b)), want, rtol=1e-7)


def test_jax_null_vectors_through_programs() -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        b = jax.numpy.asarray(B_RANGE)
        solver = prepare(jax.numpy.asarray(SINGULAR), method="GMRES", nullspace="constant", rtol=1e-10)
        x = jax.jit(lambda s, b: s.T(b))(solver.T, b)
        np.testing.assert_allclose(x, np.linalg.pinv(SINGULAR) @ B_RANGE, atol=1e-6)


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    b = torch.asarray(INPUT)
    solver, A = prepare(traced, b, method="GMRES", rtol=1e-10), _dense()
    np.testing.assert_allclose(np.ravel(solver.T(b)), np.linalg.solve(A.T, INPUT.ravel()), rtol=1e-7)
    np.testing.assert_allclose(np.ravel(solver.T.T(b)), np.linalg.solve(A, INPUT.ravel()), rtol=1e-7)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("like", [None, 9, (9, 9), (9, 5)], ids=str)
def test_a_rectangular_matrix_keeps_its_axis(like: Any, sparse: bool) -> None:
    A = RANDOM.normal(size=(9, 5))
    like = None if like is None else np.zeros(like)
    solver = prepare(sp.csr_array(A) if sparse else A, like, method="LSMR", rtol=1e-12, axis=0)
    for k in (2, 5, 9):
        b, c = RANDOM.normal(size=(9, k)), RANDOM.normal(size=(5, k))
        np.testing.assert_allclose(solver(b), np.linalg.pinv(A) @ b, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(solver.T(c), np.linalg.pinv(A.T) @ c, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(solver.T.T(b), np.linalg.pinv(A) @ b, rtol=1e-6, atol=1e-8)


def test_a_matrix_keeps_its_axis() -> None:
    A = RANDOM.normal(size=(5, 5)) + 5 * np.eye(5)
    B = RANDOM.normal(size=(5, 5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(prepare(A, axis=0).T(B), np.linalg.solve(A.T, B))
        np.testing.assert_allclose(krylix.prepare(A, axis=0).T.T(B), np.linalg.solve(A, B))
