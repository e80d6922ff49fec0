"""MINRES: what the tests of all methods do not see."""

import numpy as np
import pytest
import scipy.sparse.linalg as spl

from cells import check_true_residual
from krylix import NotConverged, Status, linear_solve
from modes import MODES, array, solve
from problems import SYSTEMS, make_operator

pytestmark = pytest.mark.compiled_by_default()


def indefinite(n: int, complex_: bool = False) -> np.ndarray:
    rng = np.random.default_rng(1)
    upper = np.triu(rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if complex_ else 0), 1)
    return upper + upper.conj().T + np.diag(np.linspace(-6, 4, n))


def definite_inverse(matrix: np.ndarray) -> np.ndarray:
    """Something between the identity and |A|^-1."""
    values, vectors = np.linalg.eigh(matrix)
    return (vectors / (1 + np.abs(values))) @ vectors.conj().T


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("preconditioned", [False, True])
def test_smallest_residual_over_the_krylov_space(preconditioned: bool, mode: str) -> None:
    """In the 2-norm, or in that of M; the history has the 2-norm in both cases."""
    matrix, b = indefinite(12, complex_=True), SYSTEMS["complex"].right_hand_side(seed=22)
    M = definite_inverse(matrix) if preconditioned else np.eye(12)
    root = np.linalg.cholesky(M).conj().T
    settings = {"preconditioner": array(mode, M)} if preconditioned else {}
    result = solve(
        mode, make_operator(mode, "dense", matrix), b, method="MINRES", max_iter=6, on_failure="status",
        history=True, **settings,
    )  # fmt: skip
    norms = [np.linalg.norm(b)]
    for k in range(1, 7):
        space = np.stack([np.linalg.matrix_power(M @ matrix, i) @ (M @ b) for i in range(k)], axis=1)
        image = matrix @ np.linalg.qr(space)[0]
        norms.append(np.linalg.norm(b - image @ np.linalg.lstsq(root @ image, root @ b, rcond=None)[0]))
    np.testing.assert_allclose(result.history, norms, rtol=1e-9)
    assert result.residual_norm == pytest.approx(norms[-1], rel=1e-9)


@pytest.mark.parametrize("preconditioned", [False, True])
def test_steps_of_scipy(preconditioned: bool) -> None:
    matrix, b = indefinite(30), np.linspace(-1, 2, 30)
    M = definite_inverse(matrix) if preconditioned else None
    norms: list[float] = []  # from the 25th step on rounding makes a difference
    spl.minres(matrix, b, M=M, rtol=1e-12, callback=lambda x: norms.append(np.linalg.norm(b - matrix @ x)))
    result = linear_solve(matrix, b, method="MINRES", preconditioner=M, rtol=1e-6, history=True)
    steps = int(result.iterations)
    assert abs(steps - 1 - next(k for k, norm in enumerate(norms) if norm <= 1e-6 * np.linalg.norm(b))) <= 1
    same = min(steps, 24)
    np.testing.assert_allclose(result.history[1 : same + 1], norms[:same], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_history_never_rises(dtype: str) -> None:
    matrix = indefinite(40, dtype == "complex128").astype(dtype)
    result = linear_solve(matrix, np.ones(40, dtype), method="MINRES", history=True)
    assert np.all(np.diff(result.history) <= 1e2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["negative", "indefinite", "singular"])
def test_preconditioner_that_is_not_definite(kind: str, mode: str) -> None:
    """Never a wrong answer: a breakdown, or the right one."""
    matrix, b = SYSTEMS["definite"].matrix, np.linspace(1, 2, 12)
    diagonal = {"negative": -np.ones(12), "indefinite": (-1.0) ** np.arange(12), "singular": np.arange(12.0) > 1}[kind]
    M = array(mode, np.diag(diagonal.astype(float)))
    result = solve(
        mode, make_operator(mode, "dense", matrix), b, method="MINRES", preconditioner=M, on_failure="status"
    )
    check_true_residual(result, matrix, b)
    assert result.status == Status.BREAKDOWN and result.residual_norm <= np.linalg.norm(b)


@pytest.mark.parametrize("mode", MODES)
def test_diagonal_with_both_signs(mode: str) -> None:
    """What Jacobi makes of it is not definite: a breakdown, said to be that, and no matter of other systems."""
    regular, b = np.linalg.inv(definite_inverse(indefinite(12))), np.linspace(1, 2, 12)
    for seed in range(4):  # in the first step, or in later ones
        mixed = indefinite(12) + np.diag(np.random.default_rng(seed).normal(size=12) * 30)
        assert np.ptp(np.sign(np.diag(mixed))) == 2
        result = solve(
            mode, make_operator(mode, "dense", np.stack([mixed, regular])), np.stack([b, b]), method="MINRES",
            preconditioner="jacobi", batch_ndim=1, on_failure="status",
        )  # fmt: skip
        assert result.status.tolist() == [Status.BREAKDOWN, Status.CONVERGED]
        assert np.isfinite(result.x).all() and result.residual_norm[0] <= np.linalg.norm(b)
        np.testing.assert_allclose(result.x[1], np.linalg.solve(regular, b), rtol=1e-6)
    with pytest.raises(NotConverged, match="preconditioner is not positive definite, and MINRES needs that"):
        linear_solve(mixed, b, method="MINRES", preconditioner="jacobi")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["constant null vector", "constant per region", "zero rows"])
def test_least_squares_where_there_is_no_solution(name: str, mode: str) -> None:
    """The best residual, up to rounding in a large x, and no claim."""
    matrix, b = SYSTEMS[name].matrix, np.linspace(1, 2, 12)
    A = make_operator(mode, "dense", matrix)
    result = solve(mode, A, b, method="MINRES", on_failure="status", nullspace=None)  # which would be found
    assert result.status == Status.BREAKDOWN
    best = np.linalg.norm(b - matrix @ np.linalg.lstsq(matrix, b, rcond=1e-10)[0])
    assert result.residual_norm == pytest.approx(best, rel=1e-3)
    assert np.isfinite(result.x).all()


@pytest.mark.parametrize("mode", ["numpy", "jax-jit"])
def test_units_of_matrix_and_preconditioner(mode: str) -> None:
    """The squares of these numbers overflow or vanish in single precision."""
    matrix, b = indefinite(12), np.linspace(1, 2, 12).astype(np.float32)
    inverse = definite_inverse(matrix)
    for scale in (1e-30, 1e30):
        A = make_operator(mode, "dense", (matrix * scale).astype(np.float32))
        for M in (None, (inverse / scale).astype(np.float32), inverse.astype(np.float32)):
            settings = {} if M is None else {"preconditioner": array(mode, M)}
            result = solve(mode, A, b, method="MINRES", **settings)
            np.testing.assert_allclose(result.x.astype(float) * scale, np.linalg.solve(matrix, b), rtol=5e-3, atol=1e-4)
