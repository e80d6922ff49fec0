"""Sparse Jacobians of non-linear functions against jacfwd."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix.sparse.tracing.matrix_from_function import jacobian_matrix

jax = lazy("jax")
jnp, lax = lazy("jax.numpy"), lazy("jax.lax")


rng = np.random.default_rng(4)


@pytest.fixture(scope="module", autouse=True)
def constants() -> None:
    """Collecting tests imports no framework."""
    global X
    X = jnp.asarray(rng.standard_normal((5, 4)))


def cubed(u: Any) -> Any:
    """With a rule for the reverse derivative only."""
    cube = jax.custom_vjp(lambda u: u**3)
    cube.defvjp(lambda u: (u**3, u), lambda u, g: (3 * u**2 * g,))
    return cube(u)


def reaction(u: Any) -> Any:
    p = jnp.pad(u, 1, mode="wrap")
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u + jnp.exp(-u) * u


def burgers(u: Any) -> Any:
    left = jnp.concatenate([u[:1] * 0, u[:-1]])
    return jnp.where(u > 0, u * (u - left), u * (jnp.roll(u, -1, 0) - u)) + jax.nn.relu(u)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "reaction": reaction,
    "burgers": burgers,
    "norm": lambda u: u / jnp.linalg.norm(u),
    "sort": lambda u: jnp.sort(u, 1) * u[:, ::-1],
    "max": lambda u: u.max(0) + u.min(),
    "products": lambda u: u.T @ u,
    "scan": lambda u: lax.scan(lambda c, x: (jnp.sin(c) + x, c * x), u[0], u)[1],
    "while": lambda u: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.cos(c[1]) * u), (0, u))[1],
    "branches": lambda u: lax.cond(u[0, 0] > 0, lambda v: v**2, lambda v: jnp.exp(v), u),
    "linear": lambda u: 3 * u + 1,
    "constant": lambda u: jnp.ones(3),
    "softmax": lambda u: jax.nn.softmax(u, 1),
}


IN_PROGRAMS = ("reaction", "burgers", "norm", "products", "scan", "softmax")
V = np.linspace(-1, 2, 20)


@cache
def by_jax() -> tuple[dict[str, Any], dict[str, Any]]:
    """The Jacobians by JAX, and the products of ours with a vector, in one program."""

    def program(x: Any) -> Any:
        dense = {name: jax.jacfwd(f)(x).reshape(-1, x.size) for name, f in FUNCTIONS.items()}
        return dense, {name: jacobian_matrix(FUNCTIONS[name], x) @ V for name in IN_PROGRAMS}

    found: tuple[dict[str, Any], dict[str, Any]] = jax.jit(program)(X)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_against_jacfwd(name: str) -> None:
    expected = by_jax()[0][name]
    matrix = jacobian_matrix(FUNCTIONS[name], X)
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-12, atol=1e-13)
    assert matrix.nnz == np.count_nonzero(matrix.toarray())


@pytest.mark.parametrize("name", IN_PROGRAMS)
def test_inside_jit(name: str) -> None:
    dense, products = by_jax()
    np.testing.assert_allclose(products[name], dense[name] @ V, rtol=1e-12, atol=1e-13)


def test_rule_for_the_reverse_derivative_only() -> None:
    expected = np.diag(3 * np.ravel(X) ** 2)
    for format in (None, "csr"):
        matrix = jacobian_matrix(lambda u: cubed(u), X, format=format)
        np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-13)
        assert format in (None, matrix.format)
    np.testing.assert_allclose(jacobian_matrix(lambda u: jnp.roll(cubed(u), 1, 0)[:2], X).shape, (8, 20))


def test_containers_and_arguments() -> None:
    x = {"a": X[0], "b": jnp.asarray(2.0)}
    matrix = jacobian_matrix(lambda x, s, *, t: [x["a"] ** 2 * x["b"] * s, t * x["b"] ** 3], x, 3.0, t=2.0)
    a = np.asarray(X[0])
    expected = np.block([[np.diag(12 * a), 3 * a[:, None] ** 2], [np.zeros((1, 4)), np.full((1, 1), 24.0)]])
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-13)


def test_holomorphic() -> None:
    z = jnp.asarray(rng.standard_normal(4) + 1j * rng.standard_normal(4))

    def f(u: Any) -> Any:
        return u**2 * jnp.roll(u, 1) + jnp.exp(u)

    matrix, expected = jacobian_matrix(f, z), jax.jit(jax.jacfwd(f, holomorphic=True))(z)
    np.testing.assert_allclose(matrix.toarray(), expected, rtol=1e-12)


def test_prune() -> None:
    x = jnp.zeros(4)
    assert jacobian_matrix(lambda u: u**2 + jnp.roll(u, 1), x).nnz == 4
    assert jacobian_matrix(lambda u: u**2 + jnp.roll(u, 1), x, prune=False).nnz == 8


def test_refused() -> None:
    with pytest.raises(TypeError, match="x has the dtype int"):
        jacobian_matrix(lambda u: u, jnp.arange(3))
    with pytest.raises(TypeError, match="an output"):
        jacobian_matrix(lambda u: jnp.argmax(u), X)


def test_newton() -> None:
    """The Jacobian solves a non-linear system."""
    x = jnp.zeros((5, 4))
    b = jnp.asarray(rng.standard_normal((5, 4)))
    f = lambda u: u + 0.2 * u**3 - 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 1)) - b  # noqa: E731
    for _ in range(8):
        x = x - jnp.linalg.solve(jacobian_matrix(f, x).toarray(), f(x).ravel()).reshape(5, 4)
    assert float(jnp.abs(f(x)).max()) < 1e-12
