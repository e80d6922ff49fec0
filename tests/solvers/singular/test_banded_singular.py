"""`banded-direct` of singular matrices: x of least norm, and the result says so; of regular ones it says nothing."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gradients import gradient
from krylix import SingularMatrixWarning, as_operator, linear_solve
from krylix.sparse import DIA
from modes import EAGER, array, compiled, to_numpy

N = 24
RNG = np.random.default_rng(8)


def _chain() -> np.ndarray:
    A = 2 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)
    A[0, 0] = A[-1, -1] = 1
    return A


def _singular() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Matrices, and rows that span their null spaces. None is constant, which would be found before."""
    weights, half = np.exp(np.linspace(0, 2, N)), N // 2
    found = {"weighted chain": (weights[:, None] * _chain() * weights, 1 / weights[None])}
    rows, columns = np.exp2(RNG.integers(-20, 21, N)), np.exp2(RNG.integers(-9, 10, N))
    found["other units"] = rows[:, None] * _chain() * columns, 1 / columns[None]
    both, two = np.zeros((N, N)), np.zeros((2, N))
    short = _chain()[:half, :half]
    short[-1, -1] = 1
    both[:half, :half], both[half:, half:] = short * weights[:half], short * weights[half:]
    two[0, :half], two[1, half:] = 1 / weights[:half], 1 / weights[half:]
    found["two null vectors"] = both, two
    order = RNG.permutation(N)
    found["another order"] = found["weighted chain"][0][np.ix_(order, order)], 1 / weights[order][None]
    return found


SINGULAR = _singular()
TRACED = ("weighted chain", "other units", "two null vectors")  # tridiagonal, one program


def check(x: Any, A: np.ndarray, b: np.ndarray, null: np.ndarray) -> None:
    """A solution, orthogonal to null vectors, which rounding of the entries makes as uncertain as a solution."""
    single = np.finfo(A.dtype).eps > 1e-8
    x = to_numpy(x).astype(np.result_type(A.dtype, np.float64))
    assert np.linalg.norm(A @ x - b) <= (1e-4 if single else 1e-9) * np.linalg.norm(b)
    if len(null):
        basis = np.linalg.qr(null.T)[0]
        assert np.linalg.norm(basis.conj().T @ x) <= (1e-3 if single else 1e-11) * np.linalg.norm(x)


def given(A: np.ndarray, mode: str) -> Any:
    return as_operator(sp.csr_array(A)).in_library_of(array(mode, np.zeros(1)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("name", SINGULAR)
def test_least_norm(name: str, dtype: str) -> None:
    A, null = SINGULAR[name]
    A = A.astype(dtype)
    if dtype == "complex128":
        A, null = np.exp(1j * np.arange(N))[:, None] * A * np.exp(2j * np.arange(N)), null * np.exp(-2j * np.arange(N))
    b = (A.astype(np.result_type(dtype, np.float64)) @ np.cos(np.arange(N))).astype(dtype)
    with pytest.warns(SingularMatrixWarning, match="banded-direct: the matrix is singular"):
        result = linear_solve(sp.csr_array(A), b, method="banded-direct")
    assert result.converged and result.singular
    check(result.x, A, b, null)


@pytest.mark.filterwarnings("ignore::krylix.SingularMatrixWarning")
@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize("mode", ["torch", "tf", "jax-jit", "tf-function"])
def test_least_norm_in_every_library(mode: str) -> None:
    """Of a known matrix, whose factors are made on the host."""
    A, null = SINGULAR["another order"]
    b, operator = A @ np.cos(np.arange(N)), given(A, mode)
    solve = compiled(mode, lambda b: linear_solve(operator, b, method="banded-direct"))
    result = solve(array(mode, b))
    assert bool(result.converged) and bool(result.singular)
    check(result.x, A, b, null)


@pytest.mark.parametrize("mode", ["jax-jit", pytest.param("tf-function", marks=pytest.mark.merge)])
def test_values_that_are_traced(mode: str) -> None:
    """In one program, which tells a regular matrix from singular ones; a batch of them is its systems."""
    matrices, nulls = zip(*(SINGULAR[name] for name in TRACED), (_chain() + np.eye(N), np.zeros((0, N))), strict=True)
    values = np.stack([_diagonals(A) for A in matrices])
    b = np.stack([A @ np.cos(np.arange(N)) for A in matrices])

    def solve(values: Any, b: Any) -> Any:
        return linear_solve(DIA(values, [-1, 0, 1], (N, N)), b, method="banded-direct", on_failure="status")

    result = compiled(mode, solve)(array(mode, values), array(mode, b))
    np.testing.assert_array_equal(to_numpy(result.singular), [True, True, True, False])
    assert to_numpy(result.converged).all()
    for one in zip(to_numpy(result.x), matrices, b, nulls, strict=True):
        check(*one)


def _diagonals(A: np.ndarray) -> np.ndarray:
    found = np.zeros((3, N))
    found[0, 1:], found[1], found[2, :-1] = np.diagonal(A, -1), np.diagonal(A), np.diagonal(A, 1)
    return found


@pytest.mark.parametrize("mode", EAGER)
def test_a_batch_is_its_systems(mode: str) -> None:
    matrices, nulls = zip((_chain() + np.eye(N), np.zeros((0, N))), *(SINGULAR[name] for name in TRACED), strict=True)
    A = DIA(array(mode, np.stack([_diagonals(M) for M in matrices])), [-1, 0, 1], (N, N))
    b = np.stack([M @ np.cos(np.arange(N)) for M in matrices])
    with pytest.warns(SingularMatrixWarning, match="banded-direct"):
        result = linear_solve(A, array(mode, b), method="banded-direct")
    np.testing.assert_array_equal(to_numpy(result.singular), [False, True, True, True])
    for one in zip(to_numpy(result.x), matrices, b, nulls, strict=True):
        check(*one)


@pytest.mark.parametrize("name", SINGULAR)
def test_without_a_solution(name: str) -> None:
    """No x reaches b."""
    A, _ = SINGULAR[name]
    rows = np.where(np.abs(A).max(1) > 0, np.abs(A).max(1), 1)
    b = np.linalg.svd(A / rows[:, None])[0][:, -1] / rows  # in the null space of the adjoint
    result = linear_solve(sp.csr_array(A), b, method="banded-direct", on_failure="status")
    assert not result.converged


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_regular_matrices_are_not_called_singular(dtype: str) -> None:
    """Zeros on the diagonal, which elimination without exchanges stumbles on; long lines; units; small entries."""
    n = 1000
    zero_diagonal = sp.diags_array([np.ones(59), np.ones(59)], offsets=[-1, 1])
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    units = np.exp2(np.random.default_rng(0).integers(-20, 21, n))
    long_step = sp.eye_array(n) + 1e4 * (line - sp.diags_array(np.r_[1, np.zeros(n - 2), 1]))
    for A in (zero_diagonal, line, sp.diags_array(units) @ line @ sp.diags_array(units[::-1]), 1e-30 * line, long_step):
        matrix = sp.csr_array(A).astype(dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = linear_solve(
                matrix, (matrix @ np.ones(matrix.shape[0])).astype(dtype), method="banded-direct", on_failure="status"
            )
        assert not result.singular


@pytest.mark.needs("torch")
@pytest.mark.filterwarnings("ignore::krylix.SingularMatrixWarning")
def test_gradients() -> None:
    """By b: x of least norm for the transposed matrix."""
    (A, _), weights = SINGULAR["weighted chain"], np.sin(np.arange(N))
    b, w = array("torch", A @ np.cos(np.arange(N))), array("torch", weights)
    found = gradient("torch", lambda b: (linear_solve(sp.csr_array(A), b, method="banded-direct").x * w).sum(), b)
    np.testing.assert_allclose(found, np.linalg.pinv(A, rcond=1e-10).T @ weights, rtol=1e-7, atol=1e-9)
