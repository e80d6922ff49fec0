"""Rectangular, rank-deficient and damped problems: the least-squares solution of least norm, and what is said of it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import scipy.sparse.linalg as spl

import krylix
from krylix import linear_solve
from krylix.solvers import CGLS, LSMR, METHODS
from krylix.sparse import DenseOperator, NormalOperator
from modes import array, product, solve
from problems import make_operator

pytestmark = pytest.mark.compiled_by_default()

NAMES = tuple(name for name, method in METHODS.items() if method.least_squares)
MODES = ("numpy", "jax", "jax-jit", "torch", "tf", "tf-function")
EAGER = ("numpy", "torch")  # quick: nothing is compiled
DAMP = 0.6
CASES = ("overdetermined", "underdetermined", "rank-deficient", "wide rank-deficient", "damped", "damped square")


def normal(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)


def matrix_of(case: str, dtype: str) -> np.ndarray:
    if case == "rank-deficient":
        return normal((9, 3), dtype) @ normal((3, 5), dtype)
    if case == "wide rank-deficient":
        return normal((5, 3), dtype) @ normal((3, 9), dtype)
    return normal({"underdetermined": (5, 9), "damped square": (6, 6)}.get(case, (9, 5)), dtype)


def settings_of(method: str, case: str) -> Any:
    return type(METHODS[method])(damp=DAMP) if "damped" in case else method


def exact_of(case: str, matrix: np.ndarray, b: np.ndarray) -> np.ndarray:
    """By NumPy in double precision, for rows b."""
    wide = matrix.astype(np.complex128 if matrix.dtype.kind == "c" else np.float64)
    n = wide.shape[1]
    if "damped" in case:
        wide, b = np.concatenate([wide, DAMP * np.eye(n)]), np.concatenate([b, np.zeros((*b.shape[:-1], n))], -1)
    return b @ np.linalg.pinv(wide, rcond=1e-6).T


def check(result: Any, matrix: np.ndarray, b: np.ndarray, damp: float = 0.0) -> None:
    """The claims of the result, computed here in double precision."""
    assert result.x.shape == (*b.shape[:-1], matrix.shape[1]) and result.residual.shape == b.shape
    adjoint = matrix.conj().astype(np.complex128)
    r = b - result.x.astype(np.complex128) @ matrix.T
    size = np.linalg.norm(np.abs(b) @ np.abs(matrix) + np.abs(result.x), axis=-1)
    rounding = 50 * np.finfo(result.x.dtype).eps * size
    s = np.linalg.norm(r @ adjoint - damp**2 * result.x, axis=-1)
    np.testing.assert_allclose(result.residual, r, atol=100 * np.finfo(result.x.dtype).eps * np.abs(b).max())
    assert np.all(np.abs(s - result.residual_norm) <= rounding)
    assert np.all((s <= result.tolerance + rounding) | ~result.converged)


@pytest.mark.parametrize("dtype", ["float64", "complex128", "float32", "complex64"])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", NAMES)
def test_solution_of_least_norm(method: str, mode: str, dtype: str) -> None:
    if mode not in EAGER and dtype in ("float32", "complex128"):
        pytest.skip("one real and one complex dtype where each case is compiled")
    for case in CASES if mode in EAGER else CASES[::2]:
        matrix = matrix_of(case, dtype)
        b = normal((2, len(matrix)), dtype, seed=1)
        result = solve(mode, make_operator(mode, "dense", matrix), b, method=settings_of(method, case))
        assert result.converged.all() and result.x.dtype == np.dtype(dtype)
        assert "normal residual" in result.message and result.method == method
        check(result, matrix, b, DAMP if "damped" in case else 0.0)
        limit = 1e-3 if dtype in ("float32", "complex64") else 1e-7
        np.testing.assert_allclose(result.x, exact_of(case, matrix, b), rtol=limit, atol=limit, err_msg=case)


@pytest.mark.parametrize(("kind", "mode"), [
    pytest.param(kind, mode, marks=pytest.mark.slow if mode == "jax-jit" and kind not in ("native", "function") else ())
    for kind in ("scipy", "LinearOperator", "native", "function")
    for mode in MODES
])  # fmt: skip
@pytest.mark.parametrize("method", NAMES)
def test_operators(method: str, mode: str, kind: str) -> None:
    """A rectangular function learns the shape of x from x0."""
    dtype = "complex128" if kind in ("function", "native") else "float64"
    for case in ("overdetermined", "underdetermined", "damped") if mode in EAGER else CASES[:1]:
        matrix = matrix_of(case, dtype)
        b = normal((3, len(matrix)), dtype, seed=2)
        start = np.zeros((3, matrix.shape[1]), dtype) if kind == "function" else None
        batch = {"batch_ndim": 1} if kind == "function" else {}
        A = make_operator(mode, kind, matrix)
        result = solve(mode, A, b, start, method=settings_of(method, case), **batch)
        check(result, matrix, b, DAMP if "damped" in case else 0.0)
        np.testing.assert_allclose(result.x, exact_of(case, matrix, b), rtol=1e-7, atol=1e-8, err_msg=case)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", NAMES)
def test_functions_on_grids_and_affine_functions(method: str, mode: str) -> None:
    """x has the shape of x0, the result that of b; a constant part is taken off."""
    matrix = normal((8, 6), "float64")
    multiply, shift = product(mode, array(mode, matrix)), array(mode, np.linspace(0, 1, 8).reshape(2, 4))

    def A(x: Any) -> Any:
        bk = krylix.choose_backend(x)
        return bk.reshape(multiply(bk.reshape(x, (3, 6))), (3, 2, 4)) + shift

    b = normal((3, 2, 4), "float64", seed=3)
    result = solve(mode, A, b, np.ones((3, 3, 2)), method=method, batch_ndim=1)
    wanted = (b - np.linspace(0, 1, 8).reshape(2, 4)).reshape(3, 8) @ np.linalg.pinv(matrix).T
    np.testing.assert_allclose(result.x, wanted.reshape(3, 3, 2), rtol=1e-7, atol=1e-8)
    assert result.residual.shape == b.shape and result.iterations.shape == (3,)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", NAMES)
def test_batches(method: str, mode: str) -> None:
    """One matrix per system; zero, NaN and scaled right-hand sides; an exact start."""
    matrices = np.stack([normal((7, 4), "float64"), 30 * normal((7, 4), "float64", seed=1)])
    b = normal((2, 7), "float64", seed=2)
    result = solve(mode, make_operator(mode, "dense", matrices), b, method=method)
    wanted = np.stack([np.linalg.lstsq(m, row)[0] for m, row in zip(matrices, b, strict=True)])
    np.testing.assert_allclose(result.x, wanted, rtol=1e-7)
    matrix = matrices[0]
    rows = np.stack([b[0], 0 * b[0], np.nan * b[0], 1e6 * b[0], 1e-30 * b[0]])
    result = solve(mode, make_operator(mode, "dense", matrix), rows, method=method, on_failure="status", history=True)
    assert result.converged.tolist() == [True, True, False, True, True]
    assert result.diverged.tolist() == [False, False, True, False, False]
    assert result.iterations[[1, 2]].tolist() == [0, 0] and not result.x[[1, 2]].any()
    for k in (0, 3, 4):
        np.testing.assert_allclose(result.x[k], wanted[0] * [1, 0, 0, 1e6, 1e-30][k], rtol=1e-8)
    starts = np.stack([wanted[0], 1e6 * wanted[0]])
    again = solve(mode, make_operator(mode, "dense", matrix), rows[[0, 3]], starts, method=method)
    assert again.iterations.tolist() == [0, 0] and np.array_equal(again.x, starts)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", NAMES)
def test_units_in_single_precision(method: str, mode: str) -> None:
    """Squares of these right-hand sides, and of these matrices, overflow or vanish."""
    matrix, b = normal((7, 4), "float32"), normal((7,), "float32", seed=1)
    wanted = np.linalg.lstsq(matrix.astype(float), b.astype(float))[0]
    for of_A, of_b in ((1, 1e-30), (1, 1e30), (1e-12, 1), (1e12, 1)):
        A = make_operator(mode, "dense", matrix * np.float32(of_A))
        result = solve(mode, A, b * np.float32(of_b), method=method)
        np.testing.assert_allclose(result.x.astype(float) / of_b * of_A, wanted, rtol=1e-3, err_msg=f"{of_A} {of_b}")


@pytest.mark.parametrize("damp", [0.0, DAMP])
@pytest.mark.parametrize("square", [False, True])
@pytest.mark.parametrize("cls", [LSMR, CGLS])
def test_steps_are_those_of_the_paper(cls: Any, square: bool, damp: float) -> None:
    """x after k steps is SciPy's; the recurrence's residual is the true one; every product is counted."""
    matrix = normal((9, 9) if square else (12, 7), "float64")
    b, calls = normal((len(matrix),), "float64", seed=1), [0]

    def counted(multiply: Any) -> Any:
        def call(v: np.ndarray) -> np.ndarray:
            calls[0] += 1
            return multiply @ v

        return call

    def rmatvec(v: np.ndarray) -> np.ndarray:
        calls[0] += int(np.any(v))  # a zero vector only asks whether there is a transpose
        return matrix.T @ v

    A = spl.LinearOperator(matrix.shape, matvec=counted(matrix), rmatvec=rmatvec, dtype=float)
    for k in (1, 2, 4):
        result = linear_solve(A, b, method=cls(damp), max_iter=k, on_failure="status", history=True)
        reference = spl.lsmr if cls is LSMR else spl.lsqr
        limit = {"maxiter": k} if cls is LSMR else {"iter_lim": k}
        wanted = reference(matrix, b, damp, atol=0, btol=0, conlim=0, **limit)[0]
        np.testing.assert_allclose(result.x, wanted, rtol=1e-10)
        np.testing.assert_allclose(result.history[-1], result.residual_norm, rtol=1e-9)
        assert result.iterations == k and not result.converged
    for start in (None, np.ones(matrix.shape[1])):
        calls[0] = 0
        result = linear_solve(A, b, x0=start, method=cls(damp))
        assert result.function_evaluations == calls[0]
        np.testing.assert_allclose(result.x, np.linalg.solve(matrix.T @ matrix + damp**2 * np.eye(len(result.x)),
                                                             matrix.T @ b), rtol=1e-6)  # fmt: skip


@pytest.mark.parametrize("method", NAMES)
def test_checkpoints_history_and_limits(method: str) -> None:
    matrix = normal((30, 12), "float64") * np.logspace(0, 1, 12)
    b = normal((2, 30), "float64", seed=1)
    result = solve("numpy", matrix, b, method=method, max_iter=(2, 5, 100), history=True, on_failure="status")
    assert result.x.shape == (3, 2, 12) and result.residual.shape == (3, 2, 30)
    for i, limit in enumerate((2, 5)):
        single = solve("numpy", matrix, b, method=method, max_iter=limit, on_failure="status")
        np.testing.assert_allclose(result.x[i], single.x, rtol=1e-9)
        np.testing.assert_allclose(result.residual[i], single.residual, rtol=1e-9)
    assert result.converged[2].all() and solve("numpy", matrix, b, method=method, max_iter=(99,)).x.shape == (1, 2, 12)
    with pytest.raises(krylix.NotConverged, match="limit of iterations after 3 iterations: normal residual norm") as e:
        linear_solve(matrix, b, method=method, max_iter=3)
    assert e.value.result.residual.shape == b.shape
    if method == "LSMR":
        norms = result.history[2]
        assert (np.diff(norms, axis=0)[np.isfinite(np.diff(norms, axis=0))] <= 0).all()


@pytest.mark.parametrize("method", NAMES)
def test_known_null_vectors_and_offset(method: str) -> None:
    matrix = normal((7, 4), "float64")
    matrix -= matrix.mean(axis=1, keepdims=True)  # constants are null vectors
    b = normal((7,), "float64", seed=1)
    result = solve("numpy", matrix, b, np.ones(4), method=method, nullspace="constant")
    np.testing.assert_allclose(result.x, np.linalg.pinv(matrix) @ b, rtol=1e-7)
    for A in (matrix, sp.csr_array(matrix)):
        moved = solve("numpy", A, b, method=method, matrix_offset=0.5)
        np.testing.assert_allclose(moved.x, np.linalg.lstsq(matrix + 0.5, b)[0], rtol=1e-7)


@pytest.mark.parametrize("method", NAMES)
def test_square_systems_without_solution_stop_early(method: str) -> None:
    """A square system asks for A x = b: that there is none is noticed, long before the limit of iterations."""
    matrix = np.diag([1.0, 2, 3, 0])
    result = solve("numpy", matrix, np.ones(4), method=method, max_iter=500, nullspace=None, on_failure="status")
    assert not result.converged and result.iterations < 50
    np.testing.assert_allclose(result.x, [1, 1 / 2, 1 / 3, 0], rtol=1e-9)


WIDE = np.ones((3, 4))
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "auto": (lambda: linear_solve(np.ones((4, 3)), np.ones(4)), ValueError, r"\(4, 3\); auto needs a square.*'LSMR'"),
    "CG": (lambda: linear_solve(WIDE, np.ones(3), method="CG"), ValueError, "CG needs a square matrix.*'LSMR'"),
    "b": (lambda: linear_solve(WIDE, np.ones(4), method="LSMR"), ValueError, r"expected b of shape \(..., 3\)"),
    "x0": (lambda: linear_solve(WIDE, np.ones(3), x0=np.ones(3), method="LSMR"), ValueError, r"expected \(4,\).*4 col"),
    "no x0": (lambda: linear_solve(lambda x: WIDE @ x, np.ones(3), method="CGLS"), ValueError, "give x0"),
    "x0 of another batch": (
        lambda: linear_solve(lambda x: x @ WIDE.T, np.ones((2, 3)), x0=np.ones((1, 4)), batch_ndim=1, method="CGLS"),
        ValueError, "batch axes"),
    "damp": (lambda: LSMR(-1.0), ValueError, "damp >= 0; got -1.0"),
    "damp NaN": (lambda: CGLS(np.nan), ValueError, "CGLS needs a finite"),
    "preconditioner": (
        lambda: linear_solve(WIDE, np.ones(3), method="LSMR", preconditioner="jacobi"), ValueError, "no precond"),
    "no rmatvec": (
        lambda: linear_solve(spl.LinearOperator((3, 4), matvec=lambda v: WIDE @ v, dtype=float), np.ones(3),
                             method="LSMR"), krylix.UnsupportedOperation, "rmatvec"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    call, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        call()


@pytest.mark.parametrize("method", NAMES)
def test_not_finite_is_never_converged(method: str) -> None:
    for value in (np.nan, np.inf):
        matrix = normal((5, 3), "float64")
        matrix[2, 1] = value
        result = solve("numpy", matrix, np.ones(5), method=method, on_failure="status")
        assert not result.converged and not np.isnan(result.x).any()


@pytest.mark.parametrize("systems", [None, 2])
def test_normal_operator(systems: int | None) -> None:
    bk = krylix.choose_backend("numpy")
    shape = (5, 3) if systems is None else (systems, 5, 3)
    matrix = normal(shape, "complex128")
    N = NormalOperator(DenseOperator(bk, matrix), DAMP)
    wanted = np.swapaxes(matrix.conj(), -1, -2) @ matrix + DAMP**2 * np.eye(3)
    np.testing.assert_allclose(N.dense(), wanted)
    np.testing.assert_allclose(N.transpose().dense(), np.swapaxes(wanted, -1, -2))
    np.testing.assert_allclose(N.conj().dense(), wanted.conj())
    np.testing.assert_allclose(N.diagonals(), np.atleast_2d(np.diagonal(wanted, axis1=-2, axis2=-1)))
    assert N.shape == (3, 3) and N.systems == systems and N.as_container().is_container
    arrays, rebuild = N.for_host()
    np.testing.assert_allclose(rebuild(arrays).dense(), wanted)
    one = N.per_system(0)
    np.testing.assert_allclose(one @ np.eye(3), wanted if systems is None else wanted[0])
