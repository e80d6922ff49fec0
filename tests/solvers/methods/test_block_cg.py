"""What block conjugate gradients do beyond the tests that all methods share: one space for all right-hand sides."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix.solvers import CG, BlockCG
from modes import MODES, array, solve
from problems import SYSTEMS, make_operator

pytestmark = pytest.mark.compiled_by_default()

SIDE = 20
N = SIDE**2
FAST = [m for m in MODES if m not in ("torch-compile", "tf", "tf-function")]


def poisson() -> sp.csr_array:
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(SIDE, SIDE))
    return sp.csr_array(sp.kron(line, sp.eye_array(SIDE)) + sp.kron(sp.eye_array(SIDE), line))


def right_hand_sides(systems: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((systems, N))


def both(A: Any, b: np.ndarray, **settings: Any) -> tuple[Any, Any]:
    return tuple(solve("numpy", A, b, method=m, on_failure="status", **settings) for m in (BlockCG(), CG()))  # type: ignore[return-value]


@pytest.mark.parametrize("mode", MODES)
def test_fewer_iterations_than_cg(mode: str) -> None:
    A, b = poisson(), right_hand_sides(8)
    block, single = (solve(mode, A, b, method=m) for m in (BlockCG(), CG()))
    assert block.iterations.max() < 0.7 * single.iterations.min()
    np.testing.assert_allclose(block.x, single.x, atol=1e-6)


@pytest.mark.parametrize("complex_", [pytest.param(False, marks=pytest.mark.slow), True])
@pytest.mark.parametrize("mode", FAST)
def test_one_system_is_cg(mode: str, complex_: bool) -> None:
    system = SYSTEMS["complex Hermitian" if complex_ else "definite"]
    A, b = make_operator(mode, "dense", system.matrix), system.right_hand_side((1,), seed=4)
    for steps in (1, 2, 5):
        block, single = (solve(mode, A, b, method=m, max_iter=steps, on_failure="status") for m in (BlockCG(), CG()))
        np.testing.assert_allclose(block.x, single.x, rtol=1e-11, atol=1e-12)
    block, single = (solve(mode, A, b, method=m) for m in (BlockCG(), CG()))
    assert block.iterations == single.iterations and block.function_evaluations == single.function_evaluations


def dependent(kind: str) -> np.ndarray:
    b = right_hand_sides(6, seed=1)
    if kind == "zero":
        b[[1, 4]] = 0
    elif kind == "equal":
        b[:] = b[0] * np.array([1, 1, -2, 1e8, 1e-8, 1])[:, None]
    elif kind == "sums":
        b[3:] = np.random.default_rng(2).standard_normal((3, 3)) @ b[:3]
    elif kind == "nearly equal":
        b = b[0] + 1e-6 * b
    elif kind == "easy ones":
        b[:4] = [np.kron(np.sin(np.pi * k * np.arange(1, SIDE + 1) / (SIDE + 1)), np.eye(SIDE)[0]) for k in range(1, 5)]
        b[4] = poisson() @ np.ones(N) * 1e-30
    return b


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["zero", "equal", "sums", "nearly equal", "easy ones"])
def test_dependent_right_hand_sides(kind: str, dtype: str) -> None:
    A, b = poisson().astype(dtype), dependent(kind).astype(dtype)
    for preconditioner in (None, "jacobi"):
        block, single = both(A, b, preconditioner=preconditioner)
        assert block.converged.all(), block.message
        assert np.all(block.iterations <= (2 if kind == "nearly equal" else 1) * single.iterations + 1)
        for x, rhs in zip(block.x, b, strict=True):
            limit = 1e-4 if dtype == "float32" else 1e-9
            assert np.linalg.norm(A @ x - rhs) <= limit * np.linalg.norm(rhs)


@pytest.mark.parametrize("mode", ["numpy", "jax-jit"])
def test_more_right_hand_sides_than_unknowns(mode: str) -> None:
    matrix, b = SYSTEMS["definite"].matrix, np.random.default_rng(3).standard_normal((30, 12))
    result = solve(mode, make_operator(mode, "dense", matrix), b, method="block-CG")
    assert result.iterations.max() == 1
    np.testing.assert_allclose(result.x, np.linalg.solve(matrix, b.T).T, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mode", FAST)
def test_a_system_that_has_finished_keeps_its_solution(mode: str) -> None:
    """The first is solved after one step, the others take many; a NaN and a tiny one stand beside."""
    A, b = poisson(), right_hand_sides(5, seed=5)
    wave = np.sin(np.pi * np.arange(1, SIDE + 1) / (SIDE + 1))
    b[0], b[3, 7], b[4] = np.kron(wave, wave), np.nan, 1e-30 * b[1]
    result = solve(mode, A, b, method="block-CG", on_failure="status", history=True)
    assert result.converged.tolist() == [True, True, True, False, True]
    assert result.iterations[0] == 1 and result.iterations[1] > 20 and result.iterations[3] == 0
    np.testing.assert_allclose(A @ result.x[0], b[0], rtol=0, atol=1e-10 * np.linalg.norm(b[0]))
    assert np.isnan(result.history[2:, 0]).all()
    alone = solve(mode, A, b[[0, 1, 2, 4]], method="block-CG")
    np.testing.assert_allclose(result.x[[0, 1, 2, 4]], alone.x, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_units_play_no_role(scale: float, dtype: str) -> None:
    A, b = poisson(), right_hand_sides(4, seed=6)
    plain = solve("numpy", A.astype(dtype), b.astype(dtype), method="block-CG")
    for factor, weight in ((scale, 1.0), (1.0, scale)):
        result = solve("numpy", (factor * A).astype(dtype), (weight * b).astype(dtype), method="block-CG")
        assert np.abs(result.iterations - plain.iterations).max() <= 1
        difference = result.x.astype(float) * factor / weight - plain.x
        assert np.abs(difference).max() <= 1e-3 * np.abs(plain.x).max()


def test_singular_systems() -> None:
    path = sp.diags_array([-np.ones(99), np.r_[1, 2 * np.ones(98), 1], -np.ones(99)], offsets=[-1, 0, 1]).tocsr()
    b = np.random.default_rng(7).standard_normal((6, 100))
    b -= b.mean(1, keepdims=True)
    result = solve("numpy", path, b, method="block-CG")
    assert result.converged.all() and np.abs(result.x).max() < 1e5
    wrong = solve("numpy", path, b + 1, method="block-CG", on_failure="status", max_iter=300, nullspace=None)
    assert not wrong.converged.any()


def test_indefinite_and_broken_matrices_are_reported() -> None:
    b = right_hand_sides(3)[:, :4]
    for matrix in (np.diag([1.0, -1, 0, 0]), np.full((4, 4), np.nan), np.zeros((4, 4)), np.full((4, 4), 1e300)):
        result = solve("numpy", matrix, b, method="block-CG", on_failure="status", max_iter=50, nullspace=None)
        assert not result.converged.any()
        assert np.isfinite(result.x).all()


def test_different_matrices_are_refused() -> None:
    matrix, b = SYSTEMS["definite"].matrix, np.ones((2, 12))
    with pytest.raises(
        ValueError, match=r"the matrix to be the same .* got 2 systems with a batch of matrices. Use CG"
    ):
        krylix.linear_solve(np.stack([matrix, 2 * matrix]), b, method="block-CG")
    weights = np.array([[1.0], [2.0]])
    with pytest.raises(ValueError, match="the matrix to be the same for all systems"):
        krylix.linear_solve(lambda x: weights * (x @ matrix), b, method="block-CG", batch_ndim=1)
    with pytest.raises(ValueError, match="the preconditioner to be the same for all systems"):
        krylix.linear_solve(
            lambda x: x @ matrix, b, method="block-CG", batch_ndim=1, preconditioner=lambda r: weights * r
        )
    assert krylix.linear_solve(lambda x: x @ matrix, b, method="block-CG", batch_ndim=1).converged.all()


def test_different_matrices_that_are_not_known_yet_are_not_solved_wrongly() -> None:
    jax = pytest.importorskip("jax")

    def x(weights: Any, b: Any) -> Any:
        return krylix.linear_solve(lambda v: weights * v, b, method="block-CG", batch_ndim=1, on_failure="status")

    result = jax.jit(x)(array("jax", np.array([[1.0], [2.0]]) + np.arange(5.0)), array("jax", np.ones((2, 5))))
    error = np.abs(np.asarray(result.x) * (np.array([[1.0], [2.0]]) + np.arange(5.0)) - 1).max(1)
    assert np.all((error < 1e-9) | ~np.asarray(result.converged))
