"""Null vectors of dense matrices and of batches are those of their systems; against pseudo-inverses."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gradients import gradient
from krylix import SingularMatrixWarning, choose_backend, linear_solve
from modes import array, compiled, library, to_numpy

rng = np.random.default_rng(0)
METHODS = ["auto", "CG", "MINRES", "GMRES", "biCG-stab(2)", "direct", "scipy-direct", "scipy-GMres"]


def path(n: int, ends: float = 0.0) -> np.ndarray:
    A = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    A[0, 0] = A[-1, -1] = 1 + ends
    return A


def matrices() -> list[np.ndarray]:
    """Of 12 unknowns: closed; of three regions, one of them a row of zeros; open; regular in a random order."""
    several = sp.block_diag([path(5), path(6), np.zeros((1, 1))]).toarray()
    order = np.random.default_rng(1).permutation(12)
    return [path(12), several[order][:, order], path(12, 1.0), path(12) + np.diag(np.arange(12.0) / 12)]


def expected(A: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.pinv(A, rcond=1e-10) @ b


def right_hand_sides() -> np.ndarray:
    return np.stack([A @ np.random.default_rng(i).standard_normal(12) for i, A in enumerate(matrices())])


@pytest.mark.parametrize("method", METHODS)
def test_dense_is_sparse(method: str) -> None:
    A, b = matrices()[1], right_hand_sides()[1]
    for operand in (A, sp.csr_array(A)):
        for x0 in (None, 3 + np.arange(12.0)):
            x = linear_solve(operand, b, method=method, x0=x0).x
            np.testing.assert_allclose(x, expected(A, b), atol=1e-8)
            labels = np.argmax(np.eye(3)[[0] * 5 + [1] * 6 + [2]], 1)[np.random.default_rng(1).permutation(12)]
            assert max(abs(x[labels == i].mean()) for i in range(3)) < 1e-14


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("form", ["dense", "list of csr", "list of dense"])
def test_a_batch_is_its_systems(form: str, method: str) -> None:
    A, b = matrices(), right_hand_sides()
    operand: Any = {"dense": np.stack(A), "list of csr": [sp.csr_array(M) for M in A], "list of dense": A}[form]
    found = linear_solve(operand, b, method=method, x0=np.full((4, 12), 7.0))
    np.testing.assert_allclose(found.x, [expected(*one) for one in zip(A, b)], atol=1e-8)
    assert np.abs(found.x[0].mean()) < 1e-14
    # what no x reaches is taken off the right-hand side of that system alone
    b = b + np.array([1, 0, 0, 0])[:, None]
    with pytest.warns(SingularMatrixWarning, match="b of 1 of 4 systems has a component in constants"):
        again = linear_solve(operand, b, method=method)
    np.testing.assert_allclose(again.x, found.x, atol=1e-8)
    np.testing.assert_array_equal(again.consistent, [False, True, True, True])
    np.testing.assert_allclose(again.null_part, [12**0.5, 0, 0, 0], atol=1e-12)


@pytest.mark.parametrize("mode", ["jax", "torch", "tf", "jax-jit", "tf-function"])
@pytest.mark.compiled_by_default(modes=("jax-jit",))
def test_other_libraries(mode: str) -> None:
    A, b = np.stack(matrices()), right_hand_sides()
    for method in ("auto",) if mode == "jax-jit" else ("auto", "CG"):  # there CG in `test_gradients_of_batches`
        solve = compiled(mode, lambda A, b, x0, m=method: linear_solve(A, b, x0=x0, method=m).x)
        x = to_numpy(solve(array(mode, A), array(mode, b), array(mode, np.full((4, 12), 7.0))))
        np.testing.assert_allclose(x[[0, 2, 3]], [expected(A[i], b[i]) for i in (0, 2, 3)], atol=1e-7)


@pytest.mark.parametrize("mode", ["torch", "jax-jit"])
def test_gradients_of_batches(mode: str) -> None:
    some = [0, 2, 3] if mode == "jax-jit" else [0, 1, 2, 3]  # one region, of matrices that are traced
    A, b, xp = np.stack(matrices())[some], right_hand_sides()[some], choose_backend(library(mode)).xp

    def by_b(b: Any) -> Any:
        return gradient(mode, lambda b: xp.sum(xp.sin(linear_solve(array(mode, A), b, method="CG").x)), b)

    found = to_numpy(compiled(mode, by_b)(array(mode, b)))
    x = [expected(*one) for one in zip(A, b)]
    np.testing.assert_allclose(found, [expected(M.T, np.cos(v)) for M, v in zip(A, x)], atol=1e-8)


@pytest.mark.parametrize("method", ["auto", "CG", "direct", "scipy-direct"])
def test_singular_is_said_of_each_system(method: str) -> None:
    A, b = np.stack(matrices()), right_hand_sides()
    result = linear_solve(A, b, method=method)
    np.testing.assert_array_equal(result.singular, [True, True, False, False])


@pytest.mark.needs("jax")
@pytest.mark.parametrize("method", ["CG", "direct"])
def test_empty_rows_beside_a_regular_rest_in_programs(method: str) -> None:
    """The solution, the null part of b at rounding level and the gradient, as eagerly; against the pseudo-inverse."""
    import jax
    import jax.numpy as jnp

    A = 3 * np.eye(8) - np.eye(8, k=1) - np.eye(8, k=-1)
    A[3] = A[:, 3] = 0
    b = A @ np.arange(8.0)
    weights = np.random.default_rng(0).standard_normal(8)

    @jax.jit
    @partial(jax.grad, has_aux=True)
    def by_b(b: Any, A: Any) -> Any:
        result = linear_solve(A, b, x0=jnp.full(8, 5.0), method=method, on_failure="status")
        return jnp.sum(weights * result.x), (result.x, result.converged, result.singular, result.null_part)

    slope, (x, converged, singular, _) = by_b(b, A)
    assert converged and singular
    np.testing.assert_allclose(x, expected(A, b), atol=1e-9)
    np.testing.assert_allclose(slope, expected(A.T, weights), atol=1e-9)
    _, (_, converged, _, null_part) = by_b(1e-7 * b + 1e-16, A)
    assert converged
    np.testing.assert_allclose(null_part, 1e-16, rtol=1e-3)
