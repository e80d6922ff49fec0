"""The part of b in null vectors: at rounding level it is reported, above sqrt(eps) it fails; backward it never does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gradients import gradient
from krylix import NotConverged, linear_solve, prepare
from modes import array, compiled, to_numpy

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
def test_small_parts_are_reported(method: str, dtype: str, small: float, large: float, size: float) -> None:
    A = sp.csr_array(periodic().astype(dtype))
    rtol = 1e-12 if dtype == "float64" else 1e-5
    b = right_hand_side(small, size, dtype)
    result = linear_solve(A, b, method=method, rtol=rtol)
    expected = np.linalg.pinv(periodic(), rcond=1e-10) @ b.astype(float)
    np.testing.assert_allclose(result.x, expected, atol=1e3 * rtol * size)
    assert abs(result.x.astype(float).mean()) < 10 * np.finfo(dtype).eps * np.abs(result.x).max()
    np.testing.assert_allclose(result.null_part, small * size, rtol=1e-2)
    np.testing.assert_allclose(result.residual, b - A @ result.x, atol=1e-6 * size if dtype == "float32" else 1e-14)
    assert result.residual_norm <= result.tolerance
    with pytest.raises(NotConverged, match="no x leaves a residual norm below"):
        linear_solve(A, right_hand_side(large, size, dtype), method=method, rtol=rtol)


def test_a_tolerance_may_allow_more() -> None:
    b = right_hand_side(1e-3, 1.0)
    assert linear_solve(sp.csr_array(periodic()), b, method="CG", rtol=1e-2).converged
    assert linear_solve(sp.csr_array(periodic()), b, method="CG", atol=1e-2).converged


def test_constants_alone_have_no_solution() -> None:
    A = sp.csr_array(periodic())
    for b in (np.ones(N), 1e-12 * np.ones(N)):
        for method in METHODS:
            with pytest.raises(NotConverged):
                linear_solve(A, b, method=method)


@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf-function"])
def test_other_libraries(mode: str) -> None:
    def solve(b: Any) -> Any:
        found = linear_solve(sp.csr_array(periodic()), b, method="CG", rtol=1e-12, on_failure="status")
        return found.x, found.null_part, found.converged

    b = np.stack([right_hand_side(1e-8, 1e-9), right_hand_side(1e-6, 1.0)])
    x, part, converged = map(to_numpy, compiled(mode, solve)(array(mode, b)))
    np.testing.assert_allclose(x, b @ np.linalg.pinv(periodic(), rcond=1e-10), atol=1e-8)
    np.testing.assert_allclose(part, [1e-17, 1e-6], rtol=1e-2)
    np.testing.assert_array_equal(converged, [True, False])


def projected(u: np.ndarray, solve: Any) -> tuple[np.ndarray, np.ndarray]:
    """A velocity field without its divergence, and the divergence that it had; periodic."""
    b = sum(u[k] - np.roll(u[k], 1, k) for k in range(2))
    q = solve(b)
    return np.stack([u[k] - (np.roll(q, -1, k) - q) for k in range(2)]), b


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
