"""Methods that need a grid or a band, on matrices that have one: what the other tests ask of methods for any pattern.

Which they are, their facts say; `METHOD_NAMES` in helpers/cells.py has the others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cells import DTYPES, METHOD_NAMES, check_true_residual
from krylix import UnsupportedOperation, linear_solve, prepare
from krylix.solvers import METHODS
from modes import MODES, Numbers, array, solve, to_numpy
from problems import OPERATORS, has_operator, make_operator

SPECIAL = tuple(name for name, method in METHODS.items() if method.needs_grid or method.needs_band)
LINES = (6, 5)  # points along the axes of the grid


def line(n: int, end: float = 2.0, skew: float = 0.0) -> np.ndarray:
    A = 2.0 * np.eye(n) - (1 + skew) * np.eye(n, k=1) - (1 - skew) * np.eye(n, k=-1)
    A[0, 0] = A[-1, -1] = end
    return A


def made_for(method: str, name: str) -> np.ndarray:
    """A matrix of the pattern that the method needs."""
    end, skew = (1.0 if name == "singular" else 2.0), (0.3 if name in ("nonsymmetric", "complex") else 0.0)
    n, m = LINES
    if METHODS[method].needs_grid:
        A = np.kron(line(n, end, skew), np.eye(m)) + np.kron(np.eye(n), line(m, end, skew))
    else:
        A = line(n * m, end, skew)
    factor = {"negative": -1.0, "scaled 1e10": 1e10}.get(name, 1.0)
    shift = {"complex": 0.5j, "singular": 0.0}.get(name, 0.1)
    return factor * (A + shift * np.eye(n * m))


def system(method: str, dtype: str, name: str | None = None) -> tuple[sp.csr_array, np.ndarray]:
    """The matrix and three right-hand sides."""
    A = made_for(method, name or ("complex" if dtype.startswith("c") else "nonsymmetric")).astype(dtype)
    b = np.random.default_rng(3).standard_normal((3, len(A)))
    return sp.csr_array(A), (b @ A.T if name == "singular" else b).astype(dtype)


CELLS = [
    pytest.param(method, dtype, mode, marks=() if mode in ("numpy", "torch") else marks)
    for method in SPECIAL
    for dtype in DTYPES
    for mode in MODES
    for marks in [
        pytest.mark.merge if (mode, dtype) in (("jax-jit", "float32"), ("tf", "float64")) else pytest.mark.slow
    ]
]


def test_facts_divide_the_methods() -> None:
    assert {*SPECIAL, *METHOD_NAMES} == {*METHODS} and SPECIAL == ("fast-direct", "banded-direct")


@pytest.mark.parametrize(("method", "dtype", "mode"), CELLS)
def test_solution(method: str, dtype: str, mode: str) -> None:
    names = (
        ["complex"] if dtype.startswith("c") else ["definite", "negative", "scaled 1e10", "nonsymmetric", "singular"]
    )
    for name in names if mode in ("numpy", "torch") else names[-1:]:
        A, b = system(method, dtype, name)
        result = solve(mode, A, b, method=method, on_failure="status")
        assert result.converged.all() and result.x.dtype == np.dtype(dtype), f"{name}: {result.message}"
        check_true_residual(result, A.toarray(), b)
        if name != "singular":
            exact = np.linalg.solve(A.toarray().astype(np.complex128), b.T).T
            limit = 30 * np.linalg.cond(A.toarray()) * result.tolerance / np.linalg.norm(b, axis=1)
            assert np.all(np.linalg.norm(result.x - exact, axis=1) <= limit * np.linalg.norm(exact, axis=1)), name


@pytest.mark.parametrize("kind", OPERATORS)
@pytest.mark.parametrize("mode", ["numpy", pytest.param("torch", marks=pytest.mark.merge)])
@pytest.mark.parametrize("method", SPECIAL)
def test_every_kind_of_operator_is_right_or_refused(method: str, mode: str, kind: str) -> None:
    if not has_operator(mode, kind):
        pytest.skip(f"{mode} has no {kind} matrices")
    A, b = system(method, "float64")
    operator, rhs = make_operator(mode, kind, A.toarray()), array(mode, b)
    batch = {"batch_ndim": 1} if kind == "function" else {}
    try:
        result = Numbers(linear_solve(operator, rhs, method=method, **batch))
    except UnsupportedOperation as error:
        assert METHODS[method].needs_grid and "along the axes of a grid" in str(error), error  # flat, or not known
        return
    np.testing.assert_allclose(result.x, np.linalg.solve(A.toarray(), b.T).T, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("mode", ["numpy", "torch"])
@pytest.mark.parametrize("method", SPECIAL)
def test_scaled_zero_and_nan_systems(method: str, mode: str) -> None:
    A, b = system(method, "float64")
    rows = np.concatenate([b[:1] * np.array([1.0, 1e6, 1e-3, 0.0])[:, None], np.full_like(b[:1], np.nan), b[1:2]])
    result = solve(mode, A, rows, method=method, on_failure="status")
    assert result.converged.tolist() == [True, True, True, True, False, True]
    assert result.diverged.tolist() == [False, False, False, False, True, False]
    assert result.iterations[3] == result.iterations[4] == 0 and not result.x[3].any()
    single = solve(mode, A, b[0], method=method)
    assert result.iterations[:3].tolist() == 3 * [int(single.iterations)]
    np.testing.assert_allclose(result.x[0], single.x, rtol=0, atol=1e-13 * np.abs(single.x).max())


@pytest.mark.parametrize("mode", ["numpy", "torch"])
@pytest.mark.parametrize("method", SPECIAL)
def test_starts_inputs_history_and_prepare(method: str, mode: str) -> None:
    A, b = system(method, "float64")
    exact = np.arange(1.0, A.shape[0] + 1)
    x0 = np.stack([exact, 0 * exact])
    start = solve(mode, A, x0 @ A.T, x0, method=method)
    assert start.iterations.tolist() == [0, 0] and np.array_equal(start.x, x0)
    right, kept = array(mode, b), A.copy()
    plain, recorded = (Numbers(linear_solve(A, right, method=method, history=h)) for h in (False, True))
    assert np.array_equal(plain.x, recorded.x) and np.array_equal(to_numpy(right), b)
    assert (kept != A).nnz == 0
    np.testing.assert_allclose(recorded.history[0], np.linalg.norm(b, axis=1), rtol=1e-12)
    solver = prepare(A, right, method=method)
    assert method in repr(solver) and np.array_equal(Numbers(solver.solve(right)).x, plain.x)
    np.testing.assert_allclose(Numbers(solver.update(2 * A).solve(right)).x, plain.x / 2, rtol=1e-10)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", SPECIAL)
def test_inconsistent_is_never_converged(method: str, dtype: str) -> None:
    A, _ = system(method, dtype, "singular")
    b = np.linspace(1, 2, A.shape[0]).astype(dtype)
    result = Numbers(linear_solve(A, b, method=method, on_failure="status", nullspace=None))
    assert not result.converged and np.isfinite(result.x).all()
    check_true_residual(result, A.toarray(), b)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("method", SPECIAL)
def test_derivatives(method: str, dtype: str) -> None:
    A, (b, c, db) = system(method, dtype)
    result, dense = linear_solve(A, b, method=method), A.toarray()
    gradient = result.vjp(c)
    y = np.linalg.solve(dense.conj().T, c)
    np.testing.assert_allclose(gradient.b, y, rtol=1e-8, atol=1e-10)
    full = -np.outer(y, np.linalg.solve(dense, b).conj())
    np.testing.assert_allclose(gradient.A.toarray(), np.where(dense != 0, full, 0), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(result.jvp(db), np.linalg.solve(dense, db), rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("method", SPECIAL)
def test_other_matrices_are_refused(method: str) -> None:
    """Before anything is computed, with what is needed, and what to use."""
    matrix = np.random.default_rng(0).standard_normal((30, 30)) + 9 * np.eye(30)
    kinds: list[Any] = [matrix, sp.csr_array(matrix), lambda x: matrix @ x]
    for A in kinds:
        with pytest.raises(UnsupportedOperation, match=r"needs .*(grid|diagonals).*Use "):
            linear_solve(A, np.ones(30), method=method)
