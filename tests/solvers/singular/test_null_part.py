"""The part of b in null vectors is taken off; above sqrt(eps) that is warned of, but not in backward solves."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gradients import gradient
from krylix import ConvergenceError, SingularMatrixWarning, choose_backend, linear_solve, prepare
from modes import array, compiled, library, to_numpy

N = 24
METHODS = ["auto", "CG", "MINRES", "GMRES", "biCG-stab(2)", "IDR(4)", "direct", "scipy-direct", "scipy-GMres"]


def periodic(n: int = N) -> np.ndarray:
    return 2 * np.eye(n) - np.roll(np.eye(n), 1, 0) - np.roll(np.eye(n), -1, 0)


def right_hand_side(relative: float, size: float, dtype: str = "float64") -> np.ndarray:
    """In the range of the matrix, but for a part in the constants of that relative norm."""
    b = np.sin(2 * np.pi * np.arange(N) / N) + 0.3 * np.cos(6 * np.pi * np.arange(N) / N)
    b = b / np.linalg.norm(b) + relative / np.sqrt(N)
    return (size * b).astype(dtype)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("dtype", "small", "large"), [("float64", 1e-8, 1e-6), ("float32", 1e-4, 1e-2)])
@pytest.mark.parametrize("size", [1.0, 1e-9])
def test_parts_are_taken_off(method: str, dtype: str, small: float, large: float, size: float) -> None:
    """Residual, tolerance and x are those of the rest; a part that is no rounding is warned of."""
    A = sp.csr_array(periodic().astype(dtype))
    rtol = 1e-12 if dtype == "float64" else 1e-5
    for relative in (small, large):
        b = right_hand_side(relative, size, dtype)
        with warnings.catch_warnings(record=True, action="always") as said:
            result = linear_solve(A, b, method=method, rtol=rtol)
        assert [w.category for w in said] == [SingularMatrixWarning] * (relative == large)
        assert result.consistent == (relative == small) and result.converged
        expected = np.linalg.pinv(periodic(), rcond=1e-10) @ b.astype(float)
        np.testing.assert_allclose(result.x, expected, atol=1e3 * rtol * size)
        assert abs(result.x.astype(float).mean()) < 10 * np.finfo(dtype).eps * np.abs(result.x).max()
        np.testing.assert_allclose(result.null_part, relative * size, rtol=1e-2)
        rest = b.astype(float) - b.mean(dtype=float) - A.astype(float) @ result.x
        np.testing.assert_allclose(result.residual, rest, atol=1e-6 * size if dtype == "float32" else 1e-14)
        assert result.residual_norm <= result.tolerance <= 1.1 * rtol * size


def test_constants_alone_leave_nothing() -> None:
    A = sp.csr_array(periodic())
    for b in (np.ones(N), 1e-12 * np.ones(N)):
        for method in METHODS:
            with pytest.warns(SingularMatrixWarning, match="has a component in constants"):
                result = linear_solve(A, b, x0=np.ones(N), method=method)
            assert not result.x.any() and not result.consistent and result.residual_norm == 0


@pytest.mark.parametrize("method", ["auto", "CG", "GMRES", "direct", "scipy-direct"])
def test_as_it_stands(method: str) -> None:
    """`nullspace=None`: nothing is taken off, and a part above the tolerance is a failure."""
    A: Any = periodic() if method == "direct" else sp.csr_array(periodic())
    with pytest.raises(ConvergenceError, match="no x leaves a residual norm below"):
        linear_solve(A, right_hand_side(1e-6, 1.0), method=method, nullspace=None)
    warnings.simplefilter("ignore", SingularMatrixWarning)  # of factors
    b = right_hand_side(1e-3, 1.0)
    result = linear_solve(A, b, method=method, nullspace=None, rtol=1e-2)
    assert result.null_part == 0 and result.consistent
    np.testing.assert_allclose(result.residual, b - A @ result.x, atol=1e-13)
    assert 1e-3 - 1e-13 <= result.residual_norm <= result.tolerance  # the part of b, up to the rounding of A x


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_least_squares(dtype: str) -> None:
    """A Neumann problem whose source has a mean, for each system of a batch, with a start; warned of once."""
    A = (2 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)).astype(dtype)
    A[0, 0] = A[-1, -1] = 1
    b = np.random.default_rng(0).standard_normal((3, N)).astype(dtype)
    b = b + 1j * np.cos(b) if dtype == "complex128" else b
    b[1] -= b[1].mean()
    given = np.ones((1, N))
    with warnings.catch_warnings(record=True, action="default") as said:
        for _ in range(3):
            results = [
                linear_solve(operand, b, x0=1e3 + b, method=method, nullspace=null, batch_ndim=batch_ndim)
                for operand, batch_ndim in ((sp.csr_array(A), 0), (lambda u: u @ A.T, 1))
                for method in ("auto", "CG", "GMRES")
                for null in ("auto", "constant", given)
            ]
    assert {w.category for w in said} == {SingularMatrixWarning}
    assert len(said) == len({str(w.message) for w in said})
    for result in results:
        np.testing.assert_allclose(result.x, np.linalg.lstsq(A, b.T)[0].T, atol=1e-8)
        np.testing.assert_array_equal(result.consistent, [False, True, False])
        np.testing.assert_allclose(result.null_part, np.abs(b.mean(1)) * N**0.5, atol=1e-14)
        np.testing.assert_array_equal(result.converged, True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("nullspace", ["auto", "constant"])
def test_norms_that_overflow(nullspace: str, dtype: str) -> None:
    """A residual that is not finite is never converged; squares may overflow."""
    f = lambda u: 2 * u - np.roll(u, 1) - np.roll(u, -1)  # noqa: E731
    b, most = right_hand_side(0.1, 1.0), np.finfo(dtype).max
    b = (b / np.abs(b).max()).astype(dtype)
    for size in (0.9 * most, 1e-3 * most):
        with warnings.catch_warnings(action="ignore", category=SingularMatrixWarning):
            result = linear_solve(f, (size * b).astype(dtype), nullspace=nullspace, on_failure="status")
        assert result.converged == (size < 0.2 * most)
        assert not result.converged or np.isfinite(result.residual_norm)
    np.testing.assert_allclose(result.x / size, np.linalg.pinv(periodic(), rcond=1e-10) @ b, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf-function"])
def test_other_libraries(mode: str) -> None:
    """Also with gradients, which are not warned of."""
    A, xp = sp.csr_array(periodic()), choose_backend(library(mode)).xp

    def solve(b: Any, w: Any) -> Any:
        found = linear_solve(A, b, method="CG", rtol=1e-12)
        numbers = found.x, found.null_part, found.consistent
        if mode == "numpy":
            return *numbers, found.vjp(w).b
        return *numbers, gradient(mode, lambda b: xp.sum(w * linear_solve(A, b, method="CG").x), b)

    b = np.stack([right_hand_side(1e-8, 1e-9), right_hand_side(1e-6, 1.0)])
    function, inverse = compiled(mode, solve), np.linalg.pinv(periodic(), rcond=1e-10)
    with pytest.warns(SingularMatrixWarning, match="CG: b of 1 of 2 systems has a component in constants"):
        x, part, consistent, slope = map(to_numpy, function(array(mode, b), array(mode, 1 + b)))
    np.testing.assert_allclose(x, b @ inverse, atol=1e-8)
    np.testing.assert_allclose(part, [1e-17, 1e-6], rtol=1e-2)
    np.testing.assert_array_equal(consistent, [True, False])
    np.testing.assert_allclose(slope, (1 + b) @ inverse, atol=1e-8)
    with warnings.catch_warnings(action="error"):
        function(array(mode, b[[0, 0]]), array(mode, 1 + b))


def projected(u: np.ndarray, solve: Any) -> tuple[np.ndarray, np.ndarray]:
    """A velocity field without its divergence, and the divergence that it had; periodic."""
    b = sum(u[k] - np.roll(u[k], 1, k) for k in range(2))
    q = solve(b)
    return np.stack([u[k] - (np.roll(q, -1, k) - q) for k in range(2)]), b


@pytest.mark.filterwarnings("ignore::krylix.SingularMatrixWarning")
@pytest.mark.parametrize("method", ["auto", "CG", "fast-direct", "multigrid"])
def test_projecting_twice(method: str) -> None:
    """The second right-hand side is what the first tolerance left, and its mean is rounding."""

    def minus_laplacian(q: np.ndarray) -> np.ndarray:
        return 4 * q - sum(np.roll(q, s, k) for s in (1, -1) for k in (0, 1))

    settings: Any = {"method": "CG", "preconditioner": "multigrid"} if method == "multigrid" else {"method": method}
    u = np.random.default_rng(0).standard_normal((2, 32, 32))
    for rtol in (1e-10, 1e-7):
        v, first = projected(u, lambda b, r=rtol: linear_solve(minus_laplacian, -b, rtol=r, **settings).x)
        w, second = projected(v, lambda b: linear_solve(minus_laplacian, -b, rtol=1e-3, **settings).x)
        assert np.linalg.norm(second) < 1e-6 * np.linalg.norm(first)
        np.testing.assert_allclose(v, w, atol=1e-6)


@pytest.mark.parametrize("mode", ["jax-jit", "torch"])
def test_backward_solves_do_not_raise(mode: str) -> None:
    """Whatever is left of a cotangent without its constants may be rounding, with constants in it again."""
    A, expected = sp.csr_array(periodic()), np.linalg.pinv(periodic(), rcond=1e-10)

    def by_b(b: Any, w: Any) -> Any:
        return gradient(mode, lambda b: (w * linear_solve(A, b, method="CG").x).sum(), b)

    function, b = compiled(mode, by_b), array(mode, right_hand_side(1e-9, 1.0))
    for scale in (1.0, 1e-19):
        for weights in (scale * np.ones(N), scale * (1e6 + np.arange(N))):
            found = to_numpy(function(b, array(mode, weights)))
            np.testing.assert_allclose(found, expected @ weights, atol=1e-9 * np.linalg.norm(weights))


def test_null_space_that_is_given() -> None:
    """Of a symmetric matrix, whose transpose has it too."""
    for operand in (sp.csr_array(periodic()), lambda u: 2 * u - np.roll(u, 1) - np.roll(u, -1)):
        result = linear_solve(operand, right_hand_side(1e-9, 1.0), method="CG", nullspace="constant", rtol=1e-12)
        np.testing.assert_allclose(result.null_part, 1e-9, rtol=1e-2)


def test_prepared_solvers_too() -> None:
    solver = prepare(sp.csr_array(periodic()), np.ones(N), method="scipy-direct")
    np.testing.assert_allclose(solver.solve(right_hand_side(1e-9, 1.0)).null_part, 1e-9, rtol=1e-2)
