"""Solving with functions whose matrix is traced on the way: coefficients of other traces, systems that mix."""

from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import UnsupportedOperation, as_operator, linear_solve

jax = lazy("jax")
jnp = lazy("jax.numpy")

N = 6
rng = np.random.default_rng(3)


@pytest.fixture(scope="module", autouse=True)
def constants() -> None:
    """Collecting tests imports no framework."""
    global B
    B = jnp.asarray(rng.standard_normal((3, N)))


def chain(u: Any, c: Any = 1.0) -> Any:
    p = jnp.pad(u, 1)
    return 3 * c * u - p[2:] - p[:-2]


@pytest.mark.merge
@pytest.mark.parametrize(
    "method",
    ["CG", pytest.param("scipy-direct", marks=pytest.mark.slow), pytest.param("direct", marks=pytest.mark.slow)],
)
def test_closed_over_coefficients(method: str) -> None:
    """The matrix made inside of one trace is not used outside of it."""
    c = jnp.asarray(1 + rng.random(N))

    def loss(c: Any) -> Any:
        x = linear_solve(
            lambda u: chain(u, c), B[0], method=method, preconditioner="jacobi" if method == "CG" else None
        )
        return (x.x**2).sum()

    def expected(c: Any) -> Any:
        return (jnp.linalg.solve(jax.jacfwd(chain)(B[0], c), B[0]) ** 2).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(loss))(c), jax.grad(expected)(c), rtol=1e-3, atol=1e-4)
    pair = jnp.stack([c, 2 * c])
    np.testing.assert_allclose(jax.vmap(loss)(pair), jax.vmap(expected)(pair), rtol=1e-3)


def test_known_matrices_are_traced_once() -> None:
    operator = as_operator(chain, like=B[0])
    assert operator.matrix() is operator.matrix()


@pytest.mark.merge
@pytest.mark.parametrize("method", ["direct", pytest.param("scipy-direct", marks=pytest.mark.slow)])
def test_a_linear_function_of_other_operations(method: str) -> None:
    """A Schur complement has a linear solve inside, whose own operations are not linear: products give the entries."""
    A = jnp.diag(jnp.arange(2.0, 2.0 + N)) + 0.1

    def schur(u: Any) -> Any:
        return 3 * u - linear_solve(A, u, method="CG", rtol=1e-13).x

    wanted = np.linalg.solve(3 * np.eye(N) - np.linalg.inv(A), B[0])
    for solve in (linear_solve, jax.jit(linear_solve, static_argnums=0, static_argnames=("method", "rtol"))):
        np.testing.assert_allclose(solve(schur, B[0], method=method, rtol=1e-10).x, wanted, rtol=1e-8)


def test_systems_that_mix() -> None:
    """Products are what they are, but there are no entries of one system."""

    def mixing(u: Any) -> Any:
        return jax.vmap(chain)(u) + 0.1 * u[::-1]

    def solve(b: Any, method: str = "scipy-direct", preconditioner: str | None = None) -> Any:
        return linear_solve(mixing, b, batch_ndim=1, method=method, preconditioner=preconditioner, rtol=1e-8).x

    np.testing.assert_allclose(mixing(solve(B, "scipy-GMRES")), B, atol=1e-6)
    for method, preconditioner in (("scipy-direct", None), ("direct", None), ("biCG-stab(2)", "jacobi")):
        with pytest.raises(UnsupportedOperation, match="mixes them"):
            solve(B, method, preconditioner)
    with pytest.raises(UnsupportedOperation, match="mixes them"):
        jax.jit(solve)(B)
