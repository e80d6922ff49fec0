"""Direct methods solve where the unknowns have units that differ by more than the precision holds."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import SingularMatrixWarning, linear_solve, load_preconditioner, prepare
from krylix.sparse.analysis.canonical import equilibrated, scales
from modes import array, solve

N = 40
RNG = np.random.default_rng(0)
WELL = np.where(RNG.random((N, N)) < 0.1, RNG.standard_normal((N, N)), 0) + 4 * np.eye(N)
ROWS, COLUMNS = 10.0 ** RNG.uniform(-6, 6, N), 10.0 ** RNG.uniform(-18, 0, N)
METHODS = ["direct", "scipy-direct"]


def chain(n: int) -> np.ndarray:
    """Singular: constants are its null vectors on both sides."""
    middle = np.full(n, 2.0)
    middle[[0, -1]] = 1
    return np.diag(middle) - np.eye(n, k=1) - np.eye(n, k=-1)


def given(method: str, matrix: np.ndarray) -> Any:
    return sp.csr_array(matrix) if method == "scipy-direct" else matrix


def check(x: Any, expected: np.ndarray, units: np.ndarray, eps: float) -> None:
    """In the units of each unknown."""
    assert np.linalg.norm((np.asarray(x) - expected) / units) <= 100 * eps * np.linalg.norm(expected / units)


CELLS = [
    pytest.param(mode, dtype, marks=pytest.mark.merge if mode == "jax-jit" and dtype != "complex128" else ())
    for mode in ("numpy", "jax-jit", "torch", "tf")
    for dtype in ("float32", "float64", "complex64", "complex128")
]


@pytest.mark.parametrize(("mode", "dtype"), CELLS)
@pytest.mark.parametrize("method", METHODS)
def test_columns_in_any_units(method: str, mode: str, dtype: str) -> None:
    units = COLUMNS if dtype in ("float32", "complex64") else COLUMNS**2
    matrix = (WELL * units).astype(dtype)
    if np.dtype(dtype).kind == "c":
        matrix *= np.exp(1j * np.arange(N)).astype(dtype)[:, None]
    expected = np.cos(np.arange(N)) / units
    b = (matrix.astype(np.result_type(dtype, np.float64)) @ expected).astype(dtype)
    A = given(method, matrix) if method == "scipy-direct" else array(mode, matrix)
    check(solve(mode, A, b, method=method).x, expected, 1 / units, np.finfo(dtype).eps)


def test_a_solution_far_larger_than_the_entries() -> None:
    A = sp.csr_array([[2.0, 1e-20, 0], [1, 2e-20, 1], [0, 1e-20, 3]])
    np.testing.assert_allclose(linear_solve(A, A @ np.array([1, 1e20, 1])).x, [1, 1e20, 1], rtol=1e-14)


@pytest.mark.parametrize("method", METHODS)
def test_transposes_updates_batches_and_files(method: str, tmp_path: Path) -> None:
    """To the tolerance, which is that of the largest rows: of these there are some that are 1e12 times others."""
    matrix, eps = ROWS[:, None] * WELL * COLUMNS**2, 1e3 * np.finfo(float).eps
    expected, weights = np.cos(np.arange(N)) / COLUMNS**2, COLUMNS**2 * np.sin(np.arange(N))
    b = matrix @ expected
    solver = prepare(given(method, matrix), b, method=method)
    result = solver.solve(b)
    check(result.x, expected, 1 / COLUMNS**2, eps)
    adjoint = np.linalg.solve(WELL.T, weights / COLUMNS**2) / ROWS
    check(result.vjp(weights).b, adjoint, 1 / ROWS, eps)
    check(solver.update(given(method, 2 * matrix)).solve(b).x, expected / 2, 1 / COLUMNS**2, eps)
    check(linear_solve(given(method, matrix.T), weights, method=method).x, adjoint, 1 / ROWS, eps)
    solver.preconditioner.save(tmp_path / "factors.npz")
    factors = load_preconditioner(tmp_path / "factors.npz")
    check(factors @ b, expected, 1 / COLUMNS**2, eps)
    both = [given(method, WELL), given(method, matrix)]
    batch = linear_solve(both if method == "scipy-direct" else np.stack(both), np.stack([WELL @ np.ones(N), b]),
                         method=method)  # fmt: skip
    check(batch.x[0], np.ones(N), np.ones(N), eps)
    check(batch.x[1], expected, 1 / COLUMNS**2, eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("method", METHODS)
def test_singular_in_any_units(method: str, dtype: Any) -> None:
    """One that has a solution is solved, and one that has none is never called converged."""
    powers = np.exp2(np.random.default_rng(1).integers(-30, 31, (2, N)))
    matrix = (powers[0][:, None] * chain(N) * powers[1]).astype(dtype)
    x = (np.cos(np.arange(N)) / powers[1]).astype(dtype)
    A, b = given(method, matrix), (matrix.astype(np.result_type(dtype, np.float64)) @ x).astype(dtype)
    with pytest.warns(SingularMatrixWarning, match="is singular"):
        result = linear_solve(A, b, method=method)
    assert result.converged and result.singular
    null = 1 / powers[1]  # as constants are of the chain
    left = np.abs(null @ result.x) / (np.linalg.norm(null) * np.linalg.norm(result.x))
    assert left <= 100 * np.finfo(dtype).eps
    wide = matrix.astype(np.result_type(dtype, np.float64))
    nearly = (powers[0] * np.linspace(1, 2, N)).astype(dtype)  # 1e-16 of it is what no x reaches
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SingularMatrixWarning)
        result = linear_solve(A, nearly, method=method, on_failure="status", rtol=1e-5)
    if result.converged:
        assert np.linalg.norm(nearly - wide @ result.x) <= 1.01e-5 * np.linalg.norm(nearly)
    without = (np.linspace(1, 2, N) / powers[0]).astype(dtype)  # b of which no x reaches most
    assert not linear_solve(A, without, method=method, on_failure="status").converged


def test_scales_do_not_depend_on_units() -> None:
    matrix = sp.csr_array(WELL)
    left, right = np.exp2(np.round(np.log2(ROWS))), np.exp2(np.round(np.log2(COLUMNS)))
    for other in (sp.csr_array(left[:, None] * WELL * right), sp.csr_array(1e-200 * WELL.T).T):
        found = equilibrated(other, *scales(other))
        assert np.linalg.cond(found.toarray()) <= 5 * np.linalg.cond(WELL)
        assert np.all(np.abs(np.log2(abs(found).sum(axis=0))) <= 2)
    assert equilibrated(matrix.astype(np.complex64), *scales(matrix)).dtype == np.complex64
    rows, columns = scales(sp.csr_array((3, 3)))
    np.testing.assert_array_equal([rows, columns], 1)
