"""Derivatives of least squares: exact where the normal equations determine x, refused where they do not."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from krylix import linear_solve
from krylix.solvers import METHODS

NAMES = tuple(name for name, method in METHODS.items() if method.least_squares)
DAMP = 0.6


def normal(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, *shape])
    x = rng.standard_normal(shape)
    return (x + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else x).astype(dtype)


def loss_of(solution: Callable[..., Any]) -> Callable[..., Any]:
    import jax.numpy as jnp

    def loss(A: Any, b: Any) -> Any:
        x = solution(A, b)
        return jnp.sum(jnp.cos(jnp.arange(len(x))) * jnp.abs(x) ** 2 + jnp.real(x))

    return loss


@pytest.mark.merge
@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    ("method", "case", "dtype"),
    [
        ("LSMR", "overdetermined", "complex128"),
        ("LSMR", "damped wide", "float64"),
        pytest.param("CGLS", "overdetermined", "float64", marks=pytest.mark.slow),
        pytest.param("CGLS", "damped", "complex128", marks=pytest.mark.slow),
    ],
)
def test_jax_derivatives(method: str, case: str, dtype: str) -> None:
    import jax
    import jax.numpy as jnp

    damp = DAMP if "damped" in case else 0.0
    matrix = jnp.asarray(normal((3, 5) if case == "damped wide" else (6, 3), dtype))
    b = jnp.asarray(normal((matrix.shape[0],), dtype, seed=1))

    def formula(A: Any, b: Any) -> Any:
        return jnp.linalg.solve(A.conj().T @ A + damp**2 * jnp.eye(A.shape[1]), A.conj().T @ b)

    def ours(A: Any, b: Any) -> Any:
        return linear_solve(A, b, method=type(METHODS[method])(damp), rtol=1e-14, atol=1e-13).x

    def transforms(f: Any) -> list[Any]:
        step = (0.3 * matrix[::-1], 2 * b[::-1])

        @jax.jit
        def all_of_them(A: Any, b: Any) -> Any:
            first, forward = jax.grad(f, (0, 1))(A, b), jax.jvp(f, (A, b), step)
            second = jax.grad(lambda A, b: jnp.sum(jnp.abs(jax.grad(f)(A, b)) ** 2), (0, 1))(A, b)
            return first, forward, second

        return jax.tree.leaves(all_of_them(matrix, b))

    for found, wanted in zip(transforms(loss_of(ours)), transforms(loss_of(formula)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-7, atol=1e-8 * float(jnp.abs(wanted).max()))


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_jax_derivatives_of_a_sparse_matrix_and_a_function() -> None:
    import jax
    import jax.numpy as jnp
    from jax.experimental import sparse

    dense = normal((6, 3), "float64") * (np.arange(18).reshape(6, 3) % 2)
    pattern, b = sparse.BCOO.fromdense(dense), jnp.asarray(normal((6,), "float64", seed=1))

    def by_matrix(values: Any) -> Any:
        return linear_solve(sparse.BCOO((values, pattern.indices), shape=(6, 3)), b, method="LSMR", rtol=1e-13).x.sum()

    def by_function(values: Any) -> Any:
        A = jnp.zeros((6, 3)).at[tuple(pattern.indices.T)].set(values)
        return linear_solve(lambda x: A @ x, b, x0=jnp.zeros(3), method="CGLS", rtol=1e-13).x.sum()

    def formula(values: Any) -> Any:
        A = jnp.zeros((6, 3)).at[tuple(pattern.indices.T)].set(values)
        return jnp.linalg.solve(A.T @ A, A.T @ b).sum()

    wanted = jax.jit(jax.grad(formula))(pattern.data)
    for found in (jax.jit(jax.grad(by_matrix))(pattern.data), jax.jit(jax.grad(by_function))(pattern.data)):
        np.testing.assert_allclose(found, wanted, rtol=1e-8)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("method", NAMES)
def test_jax_derivatives_of_underdetermined_problems_are_refused(method: str) -> None:
    """The normal equations do not know how the null space of A turns: half of the derivative would be missing."""
    import jax
    import jax.numpy as jnp

    matrix, b = jnp.asarray(normal((3, 5), "float64")), jnp.asarray(normal((3,), "float64", seed=1))

    def loss(A: Any, b: Any) -> Any:
        return jnp.sum(linear_solve(A, b, method=method).x)

    for transform in (jax.grad, jax.jacfwd, lambda f: jax.grad(f, 1)):
        with pytest.raises(TypeError, match=r"3 rows and 5 columns.*damp > 0"):
            jax.jit(transform(loss))(matrix, b)
    np.testing.assert_allclose(jax.jit(loss)(matrix, b), (np.linalg.pinv(matrix) @ b).sum(), rtol=1e-8)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("damp", [0.0, DAMP])
@pytest.mark.parametrize("method", NAMES)
def test_torch_derivatives(method: str, damp: float) -> None:
    import torch

    settings = type(METHODS[method])(damp)
    A = torch.tensor(normal((6, 3), "float64"), requires_grad=True)
    b = torch.tensor(normal((6,), "float64", seed=1), requires_grad=True)

    def solution(A: Any, b: Any) -> Any:
        return linear_solve(A, b, method=settings, rtol=1e-13).x

    assert torch.autograd.gradcheck(solution, (A, b)) and torch.autograd.gradgradcheck(solution, (A, b))
    if not damp:
        with pytest.raises(TypeError, match="3 rows and 6 columns"):
            solution(A.T, b[:3]).sum().backward()
