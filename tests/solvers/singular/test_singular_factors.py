"""Factors of singular matrices: what A does not determine is not in x, and the result says so; regular ones are not."""

from __future__ import annotations

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg

import krylix
from gradients import gradient
from krylix import NotConverged, SingularMatrixWarning, linear_solve, load_preconditioner, prepare
from krylix.solvers.factors import dense, singularity
from krylix.solvers.factors.protocol import ExactlySingular
from modes import array, solve, to_numpy

N = 12
RNG = np.random.default_rng(3)
METHODS = ["direct", "scipy-direct"]
QUIET = pytest.mark.filterwarnings("ignore::krylix.SingularMatrixWarning")


def _singular() -> dict[str, np.ndarray]:
    def low_rank(rank: int) -> np.ndarray:
        return RNG.standard_normal((N, rank)) @ RNG.standard_normal((rank, N))

    full = RNG.standard_normal((N, N)) + 4 * np.eye(N)
    found = {name: full.copy() for name in ("empty row and column", "empty column", "empty row", "far apart")}
    found["empty row and column"][5] = found["empty row and column"][:, 5] = 0
    found["empty column"][:, [2, 7]] = 0
    found["empty row"][3] = 0
    found["far apart"][0] = found["far apart"][:, -1] = 0  # its null vectors have no entry in common
    vectors = np.linalg.qr(RNG.standard_normal((N, N)))[0]
    found["symmetric"] = vectors @ np.diag([0.0, 0.0, *np.linspace(-2, 3, N - 2)]) @ vectors.T
    middle = np.r_[1, np.full(N - 2, 2), 1]
    found["path"] = np.diag(middle) - np.eye(N, k=1) - np.eye(N, k=-1)
    found["nilpotent"] = np.eye(N, k=1)
    found["no column a multiple"] = low_rank(N - 1)
    found["four times"] = low_rank(N - 4)
    found["rows of other units"] = 10.0 ** np.arange(-6, 6)[:, None] * low_rank(N - 1)
    return found


SINGULAR = _singular()
COMPILED = ["path", "far apart", "four times"]  # of one shape, so that they are one program


def as_given(method: str, mode: str, matrix: np.ndarray) -> Any:
    return sp.csr_array(matrix) if method == "scipy-direct" else array(mode, matrix)


def least_norm(matrix: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Rows of one size for the rank; the solution is that of the matrix itself."""
    wide = matrix.astype(np.result_type(matrix.dtype, np.float64))
    largest = np.abs(wide).max(1)
    weights = np.where(largest > 0, 1 / np.where(largest > 0, largest, 1), 1)
    x: np.ndarray = np.linalg.pinv(weights[:, None] * wide, rcond=1e-5) @ (weights * b)
    return x


def right_hand_side(matrix: np.ndarray) -> np.ndarray:
    b: np.ndarray = (matrix.astype(np.result_type(matrix.dtype, np.float64)) @ np.cos(np.arange(N))).astype(
        matrix.dtype
    )
    return b


def check(mode: str, method: str, name: str, dtype: Any) -> None:
    matrix = SINGULAR[name].astype(dtype)
    if np.dtype(dtype).kind == "c":
        matrix = (np.exp(1j * np.arange(N))[:, None] * matrix * np.exp(2j * np.arange(N))).astype(dtype)
    b = right_hand_side(matrix)
    result = solve(mode, as_given(method, mode, matrix), b, method=method, nullspace=None)
    expected = least_norm(matrix, b)
    tolerance = 2e-3 if np.finfo(dtype).eps > 1e-8 else 1e-8
    assert np.linalg.norm(result.x - expected) <= tolerance * np.linalg.norm(expected)
    assert result.converged and result.singular and "is singular" in result.message


@QUIET
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
@pytest.mark.parametrize("name", SINGULAR)
@pytest.mark.parametrize("method", METHODS)
def test_least_norm(method: str, name: str, dtype: str) -> None:
    check("numpy", method, name, np.dtype(dtype))


@QUIET
@pytest.mark.compiled_by_default("direct", modes=("jax-jit", "tf"))
@pytest.mark.parametrize("mode", ["jax", "jax-jit", "torch", "tf", "tf-function"])
@pytest.mark.parametrize("method", METHODS)
def test_least_norm_in_every_library(method: str, mode: str) -> None:
    for name in COMPILED:
        check(mode, method, name, np.float64)


@QUIET
@pytest.mark.compiled_by_default("direct", modes=("jax-jit",))
@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf"])
@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_its_systems(method: str, mode: str) -> None:
    """Regular and singular ones side by side."""
    matrices = [SINGULAR["path"] + np.eye(N), *(SINGULAR[name] for name in COMPILED)]
    b = np.stack([right_hand_side(matrix) for matrix in matrices])
    given: Any = array(mode, np.stack(matrices)) if method == "direct" else [sp.csr_array(m) for m in matrices]
    result = solve(mode, given, b, method=method)
    expected = [least_norm(matrix, rhs) for matrix, rhs in zip(matrices, b, strict=True)]
    np.testing.assert_allclose(result.x, expected, rtol=1e-8, atol=1e-9)
    np.testing.assert_array_equal(result.singular, [False, True, True, True])
    assert "3 of 4 systems are singular" in result.message


@QUIET
@pytest.mark.needs("jax")
@pytest.mark.merge
def test_vmap_and_gradients_in_jax() -> None:
    import jax
    import jax.numpy as jnp

    matrices = np.stack([SINGULAR["path"] + np.eye(N), *(SINGULAR[name] for name in COMPILED)])
    b = np.stack([right_hand_side(matrix) for matrix in matrices])
    weights = np.sin(np.arange(N))

    def loss(A: Any, b: Any) -> Any:
        return jnp.sum(weights * linear_solve(A, b, method="direct").x)

    found, (by_matrix, by_b) = jax.jit(jax.vmap(jax.value_and_grad(loss, (0, 1))))(jnp.asarray(matrices), b)
    for i, matrix in enumerate(matrices):
        x, y = least_norm(matrix, b[i]), np.linalg.pinv(matrix, rcond=1e-8).T @ weights
        np.testing.assert_allclose(found[i], weights @ x, rtol=1e-8, atol=1e-9)
        np.testing.assert_allclose(by_b[i], y, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(by_matrix[i], -np.outer(y, x), rtol=1e-7, atol=1e-8)


def _gradient(library: str, method: str, matrix: np.ndarray, b: np.ndarray, weights: np.ndarray) -> Any:
    """By b, of the sum of weights times x."""
    A: Any = as_given(method, library, matrix)
    if library == "numpy":
        return linear_solve(A, b, method=method).vjp(weights).b
    w = array(library, weights)
    return gradient(library, lambda b: (w * linear_solve(A, b, method=method).x).sum(), array(library, b))


@QUIET
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=pytest.mark.needs("torch"))])
def test_gradients(library: str, method: str) -> None:
    """Of a cotangent counts what x can have: the rest is no failure of the backward solve."""
    weights = np.sin(np.arange(N))
    for name in COMPILED:
        matrix = SINGULAR[name]
        found = to_numpy(_gradient(library, method, matrix, right_hand_side(matrix), weights))
        np.testing.assert_allclose(found, np.linalg.pinv(matrix, rcond=1e-8).T @ weights, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("method", METHODS)
def test_warnings(method: str) -> None:
    matrix = SINGULAR["empty column"]
    b = right_hand_side(matrix)
    with pytest.warns(SingularMatrixWarning, match=r"is singular.*nullspace") as caught:
        linear_solve(as_given(method, "numpy", matrix), b, method=method)
    assert caught[0].filename == __file__
    with pytest.warns(SingularMatrixWarning, match="of 1 of 2 systems is singular"):
        both = [as_given(method, "numpy", m) for m in (matrix, np.eye(N))]
        linear_solve(both if method == "scipy-direct" else np.stack(both), np.stack([b, b]), method=method)
    path = SINGULAR["path"]
    found = linear_solve(as_given(method, "numpy", path), right_hand_side(path), method=method)  # without a warning
    assert found.singular and "null vectors" in found.message
    assert not linear_solve(as_given(method, "numpy", path + np.eye(N)), b, method=method).singular
    assert linear_solve(as_given(method, "numpy", path), right_hand_side(path), method="CG").singular
    with pytest.raises(NotConverged):
        linear_solve(as_given(method, "numpy", matrix.T), np.ones(N), method=method)  # and no warning


@pytest.mark.parametrize("mode", ["numpy", "torch", "jax"])
def test_ill_conditioned(mode: str) -> None:
    """Where `scipy.linalg.solve` warns, too: the residual is small, and x has no digit."""
    with pytest.warns(scipy.linalg.LinAlgWarning, match="ill-conditioned"):
        result = solve(mode, array(mode, H := scipy.linalg.hilbert(N)), H @ np.ones(N), method="direct")
    assert result.converged and not result.singular
    H = scipy.linalg.hilbert(N - 2)
    solve("numpy", H, H @ np.ones(N - 2), method="direct")  # without a warning
    with pytest.warns(SingularMatrixWarning, match="ill-conditioned"):
        linear_solve(sp.csr_array(H := scipy.linalg.hilbert(N)), H @ np.ones(N), method="scipy-direct")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("method", METHODS)
def test_regular_is_not_singular(method: str, dtype: str) -> None:
    """Rows and columns of any size; long time steps, whose entries are exact."""
    n = 60
    well = np.where(RNG.random((n, n)) < 0.1, RNG.standard_normal((n, n)), 0) + 4 * np.eye(n)
    rows, columns = 10.0 ** RNG.uniform(-6, 6, (2, n))
    step = 1e6 if dtype == "float32" else 1e8
    path = np.diag(np.r_[1, np.full(n - 2, 2), 1]) - np.eye(n, k=1) - np.eye(n, k=-1)
    for matrix in (well, rows[:, None] * well, rows[:, None] * well * columns, np.eye(n) + step * path):
        A = matrix.astype(dtype)
        b = (A.astype(float) @ np.ones(n)).astype(dtype)
        result = linear_solve(as_given(method, "numpy", A), b, method=method)
        assert result.converged and not result.singular
    assert result.x.mean() > 0.5  # which a null vector would have taken


@QUIET
@pytest.mark.parametrize("method", METHODS)
def test_start_prepared_and_files(method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    matrix = SINGULAR["four times"]
    A, b = as_given(method, "numpy", matrix), right_hand_side(matrix)
    expected = least_norm(matrix, b)
    started = linear_solve(A, b, method=method, x0=np.full(N, 1e3))
    np.testing.assert_allclose(started.x, expected, rtol=1e-7, atol=1e-8)
    solver = prepare(A, b, method=method)
    solver.preconditioner.save(tmp_path / "factors.npz")
    np.testing.assert_allclose(
        load_preconditioner(tmp_path / "factors.npz") @ b, expected, rtol=1e-4, atol=1e-5
    )  # without refinement
    for module, name in ((dense, "seems_singular"), (singularity, "_factors")):
        monkeypatch.setattr(module, name, None)  # asked once, when it was prepared
    for _ in range(2):
        result = solver.solve(b)
        assert result.singular
        np.testing.assert_allclose(result.x, expected, rtol=1e-7, atol=1e-8)


@pytest.mark.filterwarnings("ignore::krylix.SingularMatrixWarning")
@pytest.mark.parametrize("method", ["direct", "scipy-direct"])
def test_no_random_singular_matrix_is_missed(method: str) -> None:
    """Whatever the vector is with which factors are tried: projectors and products of lower rank."""
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(5, 30))
        q = np.linalg.qr(rng.standard_normal((n, 1)))[0]
        for A in (np.eye(n) - q @ q.T, rng.standard_normal((n, n - 1)) @ rng.standard_normal((n - 1, n))):
            operand = A if method == "direct" else sp.csr_array(A)
            result = linear_solve(operand, A @ rng.standard_normal(n), method=method)
            assert result.singular, seed


@pytest.mark.parametrize("method", ["direct", "scipy-direct", "auto"])
def test_factors_obey_the_rule_of_stored_entries(method: str) -> None:
    """A shift that the entries show is no rounding: the mean of x is not taken off."""
    L = 2 * np.eye(16) - np.roll(np.eye(16), 1, 0) - np.roll(np.eye(16), -1, 0)
    A = (np.eye(16) + 3e6 * L).astype(np.float32)
    b = (1 + np.random.default_rng(1).standard_normal(16)).astype(np.float32)
    result = linear_solve(A, b, method=method, on_failure="status")
    assert not result.singular and abs(result.x.mean()) > 0.5


@QUIET
@pytest.mark.parametrize(("rights", "lefts"), [(1, 2), (2, 1), (0, 1)])
def test_either_side_may_have_more_null_vectors(rights: int, lefts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A singular value at the limit may be seen on one side only."""
    matrix = np.diag(np.r_[np.arange(1.0, 7), 0, 0])
    own = singularity.null_vectors_of_sparse

    def some(*args: Any) -> Any:
        right, left, singularity = own(*args)
        assert len(right) == len(left) == 2
        return right[:rights], left[:lefts], singularity

    monkeypatch.setattr(singularity, "null_vectors_of_sparse", some)
    b = matrix @ np.ones(8)
    for given, rhs in ((sp.csr_array(matrix), b), ([sp.csr_array(matrix), sp.eye_array(8)], np.stack([b, b]))):
        krylix.clear_setup_cache()
        result = linear_solve(given, rhs, method="scipy-direct")
        assert np.all(result.converged) and np.atleast_1d(result.singular)[0]
    krylix.clear_setup_cache()


def test_shifts_that_fail() -> None:
    """The better one serves; none is no factors."""
    matrix = sp.csc_array(np.diag([1.0, 2.0, 0.0]))
    for sizes in ([1e300, 1e200], [1e200, 1e300], [np.nan, 1e200], [None, 1e200], [1e200, None]):
        left = list(sizes)

        def factorise(_: Any, left: list[Any] = left) -> Any:
            size = left.pop(0)
            if size is None:
                raise ExactlySingular("Factor is exactly singular")
            return SimpleNamespace(solve=lambda b: size * np.ones_like(b))

        factors = singularity.shifted_factors(matrix, np.dtype(float), factorise)
        assert factors.solve(np.ones(1)) == 1e200 and not left

    def fails(_: Any) -> Any:
        raise ExactlySingular("Factor is exactly singular")

    with pytest.raises(ExactlySingular, match="either shift"):
        singularity.shifted_factors(matrix, np.dtype(float), fails)


def test_no_shift_makes_it_regular(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then x is no number, and the result a failure of a singular matrix."""

    def fails(*_: Any) -> Any:
        raise ExactlySingular("Factor is exactly singular")

    monkeypatch.setattr(singularity, "shifted_factors", fails)
    krylix.clear_setup_cache()
    result = linear_solve(sp.csr_array(np.ones((3, 3))), np.ones(3), method="scipy-direct", on_failure="status")
    assert not result.converged and result.singular
    krylix.clear_setup_cache()


def test_other_errors_of_libraries_are_not_singular(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise RuntimeError("something else")

    monkeypatch.setattr(scipy.sparse.linalg, "splu", fails)
    krylix.clear_setup_cache()
    with pytest.raises(RuntimeError, match="something else"):
        linear_solve(sp.csr_array(np.eye(60) + np.eye(60, k=40)), np.ones(60), method="scipy-direct")  # no band


def test_obstacles_on_a_grid_are_meant_so() -> None:
    """Rows and columns that are both empty make no warning, in a sparse matrix not even where only factors see them."""
    matrix = np.diag(np.r_[np.arange(1.0, 7), 0, 0])
    b, sparse_matrix = matrix @ np.ones(8), sp.csr_array(matrix)
    given = (matrix, "direct"), (sparse_matrix, "banded-direct"), (sparse_matrix, "scipy-direct")
    with warnings.catch_warnings(action="error"):
        assert all(linear_solve(A, b, method=method).singular for A, method in given)
        assert linear_solve(sparse_matrix, b, method="scipy-direct", nullspace=None).singular
    for A, method in given[:2]:
        with pytest.warns(SingularMatrixWarning, match="is singular"):
            linear_solve(A, b, method=method, nullspace=None)
