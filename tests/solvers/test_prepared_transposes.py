"""`PreparedSolver.T` keeps what belongs to the problem: null vectors, shapes of arrays, the axis."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

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
ROWS = 4.5 * np.eye(GRID[0]) - 1.4 * np.eye(GRID[0], k=-1) - 0.6 * np.eye(GRID[0], k=1)
COLS = 1.2 * np.eye(GRID[1], k=1) + 0.8 * np.eye(GRID[1], k=-1)


@pytest.mark.parametrize("nullspace", ["constant", ONES[None]], ids=["named", "given"])
@pytest.mark.parametrize("method", ["GMRES", "BiCGStab"])
def test_null_vectors_come_back(method: str, nullspace: Any) -> None:
    solver = prepare(SINGULAR, method=method, nullspace=nullspace, rtol=1e-10)
    want = np.linalg.pinv(SINGULAR) @ B_RANGE
    unpickled = pickle.loads(pickle.dumps(solver.T)).T
    for again in (solver, solver.T.T, solver.T.T.T.T, unpickled, solver.T.T.update(SINGULAR)):
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
    for weight, to, source in (
        (1.4, np.s_[1:], np.s_[:-1]),
        (0.6, np.s_[:-1], np.s_[1:]),
        (1.2, np.s_[:, 1:], np.s_[:, :-1]),
        (0.8, np.s_[:, :-1], np.s_[:, 1:]),
    ):
        shifted = np.zeros_like(u)
        shifted[to] = u[source]
        out = out - weight * shifted
    return out


def traced(u: Any) -> Any:
    """The same for every library, by matrices."""
    return _const(ROWS, u) @ u - u @ _const(COLS, u)


def _const(matrix: np.ndarray, like: Any) -> Any:
    if type(like).__module__.startswith("torch"):
        import torch

        return torch.asarray(matrix)
    return matrix


def _dense() -> np.ndarray:
    return np.stack([stencil(e.reshape(GRID)).ravel() for e in np.eye(INPUT.size)], 1)


def check(solver: Any, b: Any, A: np.ndarray | None = None) -> None:
    """The solver, its transpose and that of the transpose solve with the dense matrix."""
    A = _dense() if A is None else A
    for again, matrix in ((solver.T, A.T), (solver.T.T, A)):
        found = again(b)
        assert tuple(found.shape) == GRID
        np.testing.assert_allclose(np.ravel(found), np.linalg.solve(matrix, np.ravel(b)), rtol=1e-7, atol=1e-9)


ON_GRIDS: list[dict[str, Any]] = [
    {"method": "GMRES"}, {"method": "GMRES", "preconditioner": "jacobi"}, {"method": "fast-direct"},
    {"method": "direct"}, {},
]  # fmt: skip


@pytest.mark.parametrize("function", [stencil, traced])
@pytest.mark.parametrize("settings", ON_GRIDS, ids=str)
def test_functions_on_grids(settings: dict[str, Any], function: Any) -> None:
    solver = prepare(function, INPUT, rtol=1e-10, **settings)
    check(solver, INPUT)
    check(solver.T.T, INPUT)


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
    check(pickle.loads(pickle.dumps(prepare(stencil, INPUT, method="GMRES", rtol=1e-10).T)).T, INPUT)


def test_containers() -> None:
    A = RANDOM.normal(size=(5, 5)) + 5 * np.eye(5)

    def function(v: dict[str, Any]) -> dict[str, Any]:
        image = A @ np.concatenate([v["p"], v["q"].ravel()])
        return {"p": image[:1], "q": image[1:].reshape(2, 2)}

    b = RANDOM.normal(size=5)
    tree = {"p": b[:1], "q": b[1:].reshape(2, 2)}
    x = prepare(function, tree, method="GMRES", rtol=1e-10).T(tree)
    found = np.concatenate([x["p"], x["q"].ravel()])
    np.testing.assert_allclose(found, np.linalg.solve(A.T, b), rtol=1e-7)


@pytest.mark.parametrize(
    "settings",
    [{"method": "biCG-stab"}, *(pytest.param(one, marks=pytest.mark.merge) for one in ({"method": "fast-direct"}, {}))],
    ids=str,
)
def test_jax(settings: dict[str, Any]) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        b = jax.numpy.asarray(INPUT)
        solver = prepare(traced, b, rtol=1e-10, **settings)
        check(solver, b)
        if settings:
            want = np.linalg.solve(_dense().T, INPUT.ravel())
            found = jax.jit(lambda s, turned, b: (s.T(b), turned(b)))(solver, solver.T, b)
            np.testing.assert_allclose(np.reshape(found, (2, -1)), [want, want], rtol=1e-7)


def test_jax_null_vectors_through_programs() -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        b = jax.numpy.asarray(B_RANGE)
        solver = prepare(jax.numpy.asarray(SINGULAR), method="biCG-stab", nullspace="constant", rtol=1e-10)
        x = jax.jit(lambda s, b: s.T(b))(solver.T, b)
        np.testing.assert_allclose(x, np.linalg.pinv(SINGULAR) @ B_RANGE, atol=1e-6)


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    b = torch.asarray(INPUT)
    check(prepare(traced, b, method="GMRES", rtol=1e-10), b)


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


@pytest.mark.filterwarnings("error")
def test_a_matrix_keeps_its_axis() -> None:
    A = RANDOM.normal(size=(5, 5)) + 5 * np.eye(5)
    B = RANDOM.normal(size=(5, 5))
    np.testing.assert_allclose(prepare(A, axis=0).T(B), np.linalg.solve(A.T, B))
    np.testing.assert_allclose(prepare(A, axis=0).T.T(B), np.linalg.solve(A, B))


def test_tensorflow() -> None:
    """In a graph, too, with loops of its own."""
    tf = pytest.importorskip("tensorflow")
    rows, cols = (tf.constant(m) for m in (ROWS, COLS))
    b = tf.constant(INPUT)
    solver = prepare(lambda u: rows @ u - u @ cols, b, method="GMRES", rtol=1e-10)
    want = np.linalg.solve(_dense().T, INPUT.ravel())
    for found in (tf.function(lambda b: solver.T(b))(b), solver.T(b)):
        np.testing.assert_allclose(np.ravel(found), want, rtol=1e-7)


def test_jax_transformations() -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        b = jax.numpy.asarray(INPUT)
        solver = prepare(lambda u, scale: scale * traced(u), b, method="biCG-stab", rtol=1e-12, args=(2.0,)).T
        inverse = np.linalg.inv(2 * _dense().T)
        slope, many = jax.jit(
            lambda b: (jax.grad(lambda b: solver(b)[1, 2])(b), jax.vmap(solver)(jax.numpy.stack([b, 3 * b])))
        )(b)
        np.testing.assert_allclose(np.ravel(slope), inverse[GRID[1] + 2], rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(
            np.reshape(many, (2, -1)), np.stack([INPUT, 3 * INPUT]).reshape(2, -1) @ inverse.T, rtol=1e-7
        )


@pytest.mark.parametrize("method", ["CG", "MINRES", "direct", "scipy-direct", "biCG-stab(2)", "auto"])
def test_complex_null_vectors_that_are_named(method: str) -> None:
    """Those of the transpose of a Hermitian matrix are the conjugate ones, for updated matrices too."""
    parts = RANDOM.normal(size=(2, 9, 9))
    Q = np.linalg.qr(parts[0] + 1j * parts[1])[0]
    A = (Q[:, 1:] * np.linspace(1, 3, 8)) @ Q[:, 1:].conj().T
    b = A.T @ (parts[0, 0] + 1j * parts[1, 0])
    solver = prepare(A, b, method=method, nullspace=Q[:, :1].T)
    expected = np.linalg.pinv(A.T, rcond=1e-10) @ b
    for scale, own in ((1, solver.T), (2, solver.T.update(2 * A.T)), (2, solver.update(2 * A).T)):
        np.testing.assert_allclose(own(b), expected / scale, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(solver.T.T(b.conj()), expected.conj(), rtol=1e-7, atol=1e-9)
