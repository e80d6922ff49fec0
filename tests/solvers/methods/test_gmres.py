"""GMRES: what the tests of all methods do not see."""

from typing import Any

import numpy as np
import pytest

from cells import check_true_residual
from krylix import Status, linear_solve
from krylix.solvers import GMRES
from modes import MODES, array, solve
from problems import SYSTEMS, make_operator

pytestmark = pytest.mark.compiled_by_default()


def nonsymmetric(n: int, complex_: bool = False, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((n, n))
    return matrix + 1j * rng.standard_normal((n, n)) if complex_ else matrix


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_ends_after_n_steps(mode: str, dtype: str) -> None:
    matrix = nonsymmetric(15, dtype == "complex128").astype(dtype)
    b = np.ones((2, 15), dtype)
    b[1] = matrix[:, 3]
    result = solve(mode, make_operator(mode, "dense", matrix), b, method="GMRES")
    assert (result.iterations <= 15).all()
    check_true_residual(result, matrix, b)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["GMRES", "FGMRES(4)", "GMRES(1)"])
def test_smallest_residual_over_the_krylov_space(method: str, mode: str) -> None:
    """Step by step, from r in each cycle."""
    matrix, b = SYSTEMS["complex"].matrix, SYSTEMS["complex"].right_hand_side(seed=20)
    length = {"GMRES": 30, "FGMRES(4)": 4, "GMRES(1)": 1}[method]
    result = solve(
        mode, make_operator(mode, "dense", matrix), b, method=method, max_iter=9, on_failure="status", history=True
    )
    norms, r, taken = [np.linalg.norm(b)], b, 0
    for _ in range(int(result.iterations)):
        taken += 1
        space = np.linalg.qr(np.stack([np.linalg.matrix_power(matrix, k) @ r for k in range(taken)], axis=1))[0]
        image = matrix @ space
        left = r - image @ np.linalg.lstsq(image, r, rcond=None)[0]
        norms.append(np.linalg.norm(left))
        if taken == length:
            r, taken = left, 0
    np.testing.assert_allclose(result.history[: len(norms)], norms, rtol=1e-8)
    assert result.residual_norm == pytest.approx(norms[-1], rel=1e-8)


@pytest.mark.parametrize("method", ["GMRES", "GMRES(6)", "FGMRES(6)"])
def test_history_never_rises(method: str) -> None:
    matrix = nonsymmetric(40, seed=1) + 5 * np.eye(40)
    result = linear_solve(matrix, np.ones((2, 40)) * [[1], [1e-6]], method=method, history=True, on_failure="status")
    assert np.all(np.diff(result.history, axis=0)[~np.isnan(np.diff(result.history, axis=0))] <= 1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_orthogonal_enough_for_an_ill_conditioned_matrix(mode: str) -> None:
    """One pass of Gram-Schmidt loses the basis here, and the recurrence then knows nothing of the residual."""
    left, right = (np.linalg.qr(nonsymmetric(25, seed=k))[0] for k in (2, 3))
    matrix = left * np.logspace(0, -10, 25) @ right
    b = matrix @ np.ones(25)
    result = solve(mode, make_operator(mode, "dense", matrix), b, method="GMRES", rtol=1e-12, history=True)
    assert result.iterations <= 25
    last = result.history[result.iterations]
    assert abs(last - result.residual_norm) <= 1e-13 * np.linalg.norm(b)


@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_preconditioner_that_changes(mode: str) -> None:
    """Another M in every step: FGMRES copes, GMRES cannot, and says so."""
    n = 40
    matrix = np.diag(np.linspace(1, 300, n)) + np.eye(n, k=1) - 2 * np.eye(n, k=-1)
    diagonal, calls = array(mode, np.diag(matrix).copy()), [0]

    def M(r: Any) -> Any:
        calls[0] += 1
        return r / (diagonal + 20.0 * (calls[0] % 3))

    A = make_operator(mode, "dense", matrix)
    flexible = solve(mode, A, np.ones(n), method=GMRES(10, flexible=True), preconditioner=M)
    check_true_residual(flexible, matrix, np.ones(n))
    fixed = solve(mode, A, np.ones(n), method=GMRES(10), preconditioner=M, on_failure="status")
    assert not fixed.converged and fixed.status in (Status.STAGNATED, Status.MAX_ITER)


def test_inner_iteration_as_preconditioner() -> None:
    matrix = SYSTEMS["nonsymmetric"].matrix

    def inner(r: np.ndarray) -> np.ndarray:
        return linear_solve(matrix, r, method="GMRES", max_iter=3, on_failure="status").x

    outer = linear_solve(matrix, np.ones(12), method="FGMRES(12)", preconditioner=inner)
    assert outer.iterations < linear_solve(matrix, np.ones(12), method="GMRES").iterations


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_flexible_is_the_same_for_a_fixed_preconditioner(mode: str, dtype: str) -> None:
    name = "complex" if dtype == "complex128" else "nonsymmetric"
    matrix, b = SYSTEMS[name].matrix.astype(dtype), SYSTEMS[name].right_hand_side((3,), seed=21).astype(dtype)
    b[1] = 0
    A, M = make_operator(mode, "dense", matrix), array(mode, np.diag(1 / np.diag(matrix)))
    plain, flexible = (solve(mode, A, b, method=m, preconditioner=M) for m in ("GMRES(4)", "FGMRES(4)"))
    assert plain.iterations.tolist() == flexible.iterations.tolist()
    np.testing.assert_allclose(plain.x, flexible.x, rtol=0, atol=1e3 * np.finfo(dtype).eps)


@pytest.mark.parametrize("mode", MODES)
def test_least_squares_where_there_is_no_solution(mode: str) -> None:
    """Of a symmetric singular matrix: the best residual, up to rounding in a large x, and no claim."""
    matrix, b = SYSTEMS["constant null vector"].matrix, np.linspace(1, 2, 12)
    A = make_operator(mode, "dense", matrix)
    result = solve(mode, A, b, method="GMRES", on_failure="status", nullspace=None)  # which would be found
    assert result.status == Status.BREAKDOWN
    assert result.residual_norm == pytest.approx(np.sqrt(12) * 1.5, rel=1e-3)
    assert np.isfinite(result.x).all()


@pytest.mark.parametrize("mode", ["numpy", "jax-jit"])
@pytest.mark.parametrize("method", ["GMRES", "FGMRES(3)"])
def test_hard_breakdown(method: str, mode: str) -> None:
    """The Krylov space of a nilpotent matrix ends before it holds a solution."""
    shift = np.eye(6, k=1)
    result = solve(mode, make_operator(mode, "dense", shift), np.eye(6)[:1].copy(), method=method, on_failure="status")
    assert result.status.tolist() == [Status.BREAKDOWN] and not result.x.any()


@pytest.mark.parametrize("restart", [0, -1, 2.0, True])
def test_settings_are_checked(restart: Any) -> None:
    with pytest.raises(ValueError, match="integer m >= 1"):
        GMRES(restart)
