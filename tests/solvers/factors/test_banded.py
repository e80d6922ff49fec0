"""`banded-direct`: right for few diagonals in any order of the unknowns, refused elsewhere, never wrong in silence."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp

import krylix
from cells import in_turn
from gradients import gradient
from krylix import UnsupportedOperation, as_operator, linear_solve, prepare
from krylix.solvers.factors.band import WIDEST, lapack_band_factors, narrow
from krylix.sparse import DIA
from modes import COMPILED, EAGER, array, compiled, library, to_numpy

rng = np.random.default_rng(0)


def banded(n: int, lower: int, upper: int, complex_: bool = False) -> np.ndarray:
    """Random, with a dominant diagonal, not symmetric."""
    own = np.random.default_rng(n)
    A = own.standard_normal((n, n)) + (1j * own.standard_normal((n, n)) if complex_ else 0)
    A = np.triu(np.tril(A, upper), -lower)
    return A + np.diag(np.abs(A).sum(axis=1) + 0.1)


def ring(n: int) -> np.ndarray:
    A = banded(n, 1, 1)
    A[0, -1], A[-1, 0] = 0.7, -0.9
    return A


def shuffled(A: np.ndarray) -> np.ndarray:
    order = np.random.default_rng(1).permutation(len(A))
    return A[np.ix_(order, order)]


CASES: dict[str, np.ndarray] = {
    "tridiagonal": banded(150, 1, 1),
    "one unknown": banded(1, 0, 0),
    "two unknowns": banded(2, 1, 1),
    "diagonal": banded(70, 0, 0),
    "lower": banded(130, 2, 0),
    "five diagonals": banded(31, 2, 2),
    "widest": banded(120, WIDEST, WIDEST - 1),
    "ring": ring(140),
    "another order": shuffled(banded(33, 2, 1)),
    "complex": banded(30, 1, 2, complex_=True),
    "small and large rows": banded(97, 2, 1) * 10.0 ** np.random.default_rng(5).integers(-6, 6, (97, 1)),
}


@cache
def exact(case: str) -> tuple[np.ndarray, np.ndarray]:
    A = CASES[case]
    b = A.real @ np.random.default_rng(3).standard_normal(len(A))
    return b, np.linalg.solve(A, b)


def sparse(mode: str, A: np.ndarray) -> Any:
    return as_operator(sp.csr_array(A)).in_library_of(array(mode, np.zeros(1)))


def diagonals(A: np.ndarray, width: int) -> np.ndarray:
    """`(2 width + 1, n)`, in the places where DIA has them; NaN in those that count for nothing."""
    n = len(A)
    found = np.full((2 * width + 1, n), np.nan)
    for k, offset in enumerate(range(-width, width + 1)):
        found[k, max(0, -offset) : n - max(0, offset)] = np.diagonal(A, offset)
    return found


LATER = {  # eagerly in JAX, which compiles each operation of each shape, and which the tests in `jit` compile again
    ("jax", case): pytest.mark.slow for case in CASES if case != "complex"
}
EAGER_CASES = [pytest.param(*cell, marks=LATER.get(cell, ())) for cell in itertools.product(EAGER, CASES)]
COMPILED_CASES = [(mode, case) for mode in COMPILED[:2] for case in ("five diagonals", "another order")]


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf"))
@pytest.mark.parametrize(("mode", "case"), [*EAGER_CASES, *COMPILED_CASES])
def test_known_matrices(mode: str, case: str) -> None:
    """In compiled functions, too; and the factors themselves, transposed and conjugated."""
    A, (b, x) = CASES[case], exact(case)
    operator, given = sparse(mode, A), array(mode, b)
    factors: Any = prepare(operator, given, method="banded-direct").preconditioner

    def solutions(b: Any) -> Any:
        return linear_solve(operator, b, method="banded-direct").x, factors.T @ b, factors.conj().T @ b

    exactly = x, np.linalg.solve(A.T, b), np.linalg.solve(A.conj().T, b)
    for found, expected in zip(compiled(mode, solutions)(given), exactly, strict=True):
        np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-9, atol=1e-12 * np.max(np.abs(expected)))


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize(("width", "mode"), in_turn([1, 2], ["tf-function", "jax-jit"]))
def test_values_that_are_traced(mode: str, width: int) -> None:
    """Of three matrices at once, and of one in derivatives; what DIA stores outside of it counts for nothing."""
    n, offsets = 26, list(range(-width, width + 1))
    several = [banded(n, width, width) + k * np.eye(n) for k in range(3)]
    b = rng.standard_normal((3, n))
    values = np.stack([np.nan_to_num(diagonals(A, width), nan=7.0) for A in several])

    def solve(values: Any, b: Any) -> Any:
        return linear_solve(DIA(values, offsets, (n, n)), b, method="banded-direct").x

    expected = np.linalg.solve(np.stack(several), b[..., None])[..., 0]
    all_three = compiled(mode, solve)(array(mode, values), array(mode, b))
    np.testing.assert_allclose(to_numpy(all_three), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("mode", ["numpy", "torch", "tf"])  # in JAX as `test_values_that_are_traced`
def test_batches_of_matrices(mode: str) -> None:
    n = 60
    several = np.stack([banded(n, 1, 1) + k * np.eye(n) for k in range(4)])
    b = rng.standard_normal((4, n))
    A = DIA(array(mode, np.stack([np.nan_to_num(diagonals(M, 1)) for M in several])), [-1, 0, 1], (n, n))
    result = linear_solve(A, array(mode, b), method="banded-direct")
    np.testing.assert_allclose(
        to_numpy(result.x), np.linalg.solve(several, b[..., None])[..., 0], rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf"])
def test_dtypes(mode: str, dtype: str) -> None:
    n = 28
    A = banded(n, 2, 1, complex_=dtype.startswith("c")).astype(dtype)
    b, operator = rng.standard_normal((3, n)).astype(dtype), sparse(mode, A)
    x = to_numpy(compiled(mode, lambda b: linear_solve(operator, b, method="banded-direct").x)(array(mode, b)))
    assert x.dtype == np.dtype(dtype)
    expected = np.linalg.solve(A.astype(np.complex128), b.T).T
    np.testing.assert_allclose(x, expected, rtol=1e-4 if dtype in ("float32", "complex64") else 1e-9, atol=1e-5)


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", ["jax-jit", "torch"])
def test_gradients_by_values_and_by_b(mode: str) -> None:
    """Against central differences of dense solves."""
    n, direction = 20, np.random.default_rng(6)
    values, b, g = np.nan_to_num(diagonals(banded(n, 1, 1), 1)), *rng.standard_normal((2, n))
    dv, db = direction.standard_normal((3, n)), direction.standard_normal(n)

    def loss(values: Any, b: Any) -> Any:
        x = linear_solve(DIA(values, [-1, 0, 1], (n, n)), b, method="banded-direct", rtol=1e-13).x
        return (x * x * array(mode, g)).sum()

    def reference(t: float) -> float:
        v = values + t * dv
        A = np.diag(v[1]) + np.diag(v[0, 1:], -1) + np.diag(v[2, :-1], 1)
        return float(g @ np.linalg.solve(A, b + t * db) ** 2)

    by_values, by_b = compiled(mode, partial(gradient, mode, loss))(array(mode, values), array(mode, b))
    found = float(np.sum(to_numpy(by_values) * dv) + to_numpy(by_b) @ db)
    assert found == pytest.approx((reference(1e-6) - reference(-1e-6)) / 2e-6, rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "sides", "mode"),
    [
        pytest.param(dtype, sides, mode, marks=later if mode == "jax-jit" else ())
        for dtype, sides, later in (
            ("float32", "ends", pytest.mark.merge),
            ("float64", "ring", pytest.mark.merge),
            ("float32", "ring", pytest.mark.slow),
            ("float64", "ends", pytest.mark.slow),
        )
        for mode in ("numpy", "jax-jit")
    ],
)
def test_singular(mode: str, sides: str, dtype: str) -> None:
    """A bar with free ends, and a ring: consistent systems are solved, others as they stand are never called solved."""
    n = 300
    k = 1 + np.random.default_rng(2).random(n)
    k[-1] = k[-1] if sides == "ring" else 0
    A = np.diag(k + np.roll(k, 1)) - np.diag(k[:-1], 1) - np.diag(k[:-1], -1)
    A[0, -1] -= k[-1]
    A[-1, 0] -= k[-1]
    b = rng.standard_normal(n)
    b -= b.mean()
    operator = sparse(mode, A.astype(dtype))
    settings = {"method": "banded-direct", "on_failure": "status"}
    solve, strictly = (
        compiled(mode, lambda b, n=nullspace: linear_solve(operator, b, nullspace=n, **settings))
        for nullspace in ("auto", None)
    )
    result = solve(array(mode, b.astype(dtype)))
    x = to_numpy(result.x).astype(float)
    tolerance = 1e-9 if dtype == "float64" else 2e-2
    assert bool(result.converged)
    assert np.linalg.norm(x - np.linalg.pinv(A) @ b) <= tolerance * np.linalg.norm(x)
    assert not bool(strictly(array(mode, (b + 1).astype(dtype))).converged)


def test_any_band_is_solved_or_reported() -> None:
    """Not dominant, so that elimination without exchanges may lose all digits; judged by the residual in NumPy."""
    solved = 0
    for seed in range(40):
        own = np.random.default_rng(seed)
        n, width = int(own.integers(1, 200)), int(own.integers(0, 4))
        A = np.triu(np.tril(own.standard_normal((n, n)), width), -width)
        if seed % 3 == 0:
            np.fill_diagonal(A, 0)
        b = own.standard_normal(n)
        settings = {"method": "banded-direct", "on_failure": "status", "nullspace": None}
        result = linear_solve(sp.csr_array(A), b, rtol=1e-8, **settings)
        if result.converged:
            solved += 1
            assert np.linalg.norm(A @ result.x - b) <= 1.01e-8 * np.linalg.norm(b)
    assert solved > 20, solved


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_entries_that_are_no_numbers(value: float) -> None:
    A = banded(30, 1, 1)
    A[3, 4] = value
    assert not linear_solve(sp.csr_array(A), np.ones(30), method="banded-direct", on_failure="status").converged


def test_long_lines() -> None:
    """Against LAPACK, with a condition number of 10^10 for which elimination must not cost digits."""
    n = 100_000
    k = 1 + rng.random(n + 1)
    A = sp.diags_array([-k[1:-1], k[1:] + k[:-1], -k[1:-1]], offsets=[-1, 0, 1])
    b = rng.standard_normal(n)
    x = linear_solve(A, b, method="banded-direct").x
    rows = np.array([np.r_[0, -k[1:-1]], k[1:] + k[:-1], np.r_[-k[1:-1], 0]])
    expected = scipy.linalg.solve_banded((1, 1), rows, b)
    assert np.linalg.norm(x - expected) <= 1e-7 * np.linalg.norm(expected)


@pytest.mark.merge
@pytest.mark.parametrize("mode", ["jax-jit", pytest.param("tf-function", marks=pytest.mark.slow)])
def test_functions_on_a_line_get_it_in_compiled_functions(mode: str) -> None:
    """A diffusion with coefficients that are arguments, for which no iteration would end soon."""
    n = 300
    k, b = 1 + rng.random(n + 1), rng.standard_normal(n)
    pad = import_module({"jax": "jax.numpy"}.get(library(mode), library(mode))).pad

    def solve(k: Any, b: Any) -> Any:
        def diffusion(u: Any) -> Any:
            padded = pad(u, [[1, 1]])
            return k[1:] * (u - padded[2:]) + k[:-1] * (u - padded[:-2])

        result = linear_solve(diffusion, b)
        assert result.method == "banded-direct"
        return result.x

    A = sp.diags_array([-k[1:-1], k[1:] + k[:-1], -k[1:-1]], offsets=[-1, 0, 1])
    x = to_numpy(compiled(mode, solve)(array(mode, k), array(mode, b)))
    np.testing.assert_allclose(A @ x, b, atol=1e-4)
    np.testing.assert_allclose(x, sp.linalg.spsolve(sp.csc_array(A), b), rtol=1e-6)


def test_what_is_wide_is_refused() -> None:
    grid = sp.kron(sp.eye_array(12), banded(12, 1, 1)) + sp.kron(banded(12, 1, 1), sp.eye_array(12))
    for A, why in ((sp.csr_array(grid), "narrowest order"), (np.ones((20, 20)) + 20 * np.eye(20), "19 of them")):
        with pytest.raises(UnsupportedOperation, match=why):
            linear_solve(A, np.ones(A.shape[0]), method="banded-direct")
    with pytest.raises(UnsupportedOperation, match="matrix_offset"):
        linear_solve(sp.csr_array(banded(9, 1, 1)), np.ones(9), method="banded-direct", matrix_offset=1.0)


def test_narrow_orders_are_found() -> None:
    assert narrow(sparse("numpy", banded(50, 1, 3)))[:2] == (3, None)
    assert narrow(sparse("numpy", ring(50))).width == 2
    assert narrow(sparse("numpy", shuffled(banded(50, 1, 1)))).width == 1


@pytest.mark.parametrize("case", ["tridiagonal", "ring", "complex"])
def test_factors_in_files(case: str, tmp_path: Any) -> None:
    """Read again they solve as before; a part of another shape is refused."""
    b, x = exact(case)
    solver = prepare(sparse("numpy", CASES[case]), b, method="banded-direct")
    factors: Any = solver.preconditioner
    factors.save(tmp_path / "factors.npz")
    read = krylix.load_preconditioner(tmp_path / "factors.npz")
    np.testing.assert_allclose(read @ b, x, rtol=1e-9)
    inner = factors.inner if case != "ring" else factors.inner.inner
    with pytest.raises(ValueError, match="parts of a cyclic reduction"):
        replace(inner, last=inner.last[:, :-1])


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("case", ["tridiagonal", "lower", "five diagonals", "one unknown", "two unknowns"])
def test_factors_of_the_host_are_those_of_a_band(case: str, dtype: str) -> None:
    """LAPACK's, with exchanges of rows: right where the diagonal is zero, too; transposed, and for several rows."""
    A = CASES[case].astype(dtype) * np.asarray(1 + 0.5j if dtype.startswith("c") else 1, dtype)
    if case == "tridiagonal":
        A = (np.eye(40, k=1) + 0.95 * np.eye(40, k=-1)).astype(dtype)  # of an even size, which is regular
    b = rng.standard_normal((2, len(A))).astype(dtype)
    assert lapack_band_factors(sp.csc_array(A)) is not None
    factors: Any = prepare(sp.csr_array(A), b[0], method="scipy-direct").preconditioner
    for found, M in ((factors, A), (factors.T, A.T), (factors.conj().T, A.conj().T)):
        expected = np.linalg.solve(M.astype(np.complex128), b[0])
        tolerance = (2e-4 if dtype in ("float32", "complex64") else 1e-9) * np.abs(expected).max()
        np.testing.assert_allclose(found @ b[0], expected, atol=tolerance)
    result = linear_solve(sp.csr_array(A), b, method="scipy-direct", axis=-1)
    residual = b - result.x @ A.T
    assert result.converged.all() and np.linalg.norm(residual) <= 1e-3 * np.linalg.norm(b)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_factors_of_a_band_have_all_digits_of_single_precision(dtype: str) -> None:
    """Where factors in single precision itself have lost two or more of every three."""
    n, i = 1000, np.arange(1, 1001)
    A = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n)).astype(dtype)
    factors: Any = prepare(A, np.ones(n, dtype), method="scipy-direct").preconditioner
    exact = i * (n + 1 - i) / 2
    assert factors.dtype == dtype
    np.testing.assert_allclose(factors @ np.ones(n, dtype), exact, rtol=1e-6)


def test_wide_matrices_are_no_bands() -> None:
    grid = sp.kron(sp.eye_array(40), banded(40, 1, 1)) + sp.kron(banded(40, 1, 1), sp.eye_array(40))
    assert lapack_band_factors(sp.csc_array(grid)) is None
    assert lapack_band_factors(sp.csc_array((5, 5))) is None
    with pytest.raises(RuntimeError, match="singular"):
        lapack_band_factors(sp.csc_array(np.ones((2, 2))))


@pytest.mark.filterwarnings("ignore::krylix.SingularMatrixWarning")
def test_factors_of_a_band_tell_who_made_them_and_what_they_take() -> None:
    """LAPACK made those of a singular one, too; all are in double precision."""
    path = np.diag(np.r_[1.0, np.full(38, 2.0), 1.0]) - np.eye(40, k=1) - np.eye(40, k=-1)
    for A in (path, path + np.eye(40)):
        solver = prepare(sp.csr_array(A.astype(np.float32)), method="sparse-direct")
        factors: Any = solver.preconditioner
        assert "factors by LAPACK" in solver.explain()
        assert factors.nbytes == 8 * factors.numbers > 0
