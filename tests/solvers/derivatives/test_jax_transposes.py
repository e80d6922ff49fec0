"""Functions with a reverse rule of their own, and the transpose of a solve, against the dense inverse."""

from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import linear_solve

N = 6
MATRIX = np.diag(np.full(N, 3.0)) + 0.7 * np.eye(N, k=1) - 0.3 * np.eye(N, k=-1)
WEIGHTS = np.linspace(-1, 2, N)

jax = lazy("jax")
jnp = lazy("jax.numpy")

B, C = np.cos(np.arange(N)), 1 + np.arange(N) / 7


def with_rule(function: Callable[..., Any], forward: Callable[..., Any], backward: Callable[..., Any]) -> Any:
    """The function with this reverse rule."""
    found = jax.custom_vjp(function)
    found.defvjp(forward, backward)
    return found


def scaled(u: Any, c: Any) -> Any:
    return c * (jnp.asarray(MATRIX) @ u)


def host_product(A: np.ndarray, u: Any) -> Any:
    shape = jax.ShapeDtypeStruct(u.shape, u.dtype)
    return jax.pure_callback(lambda v: A @ np.asarray(v), shape, u, vmap_method="sequential")


def on_host(u: Any) -> Any:
    return host_product(MATRIX, u)


def loss(b: Any, c: Any) -> Any:
    product = with_rule(
        scaled,
        lambda u, c: (scaled(u, c), (u, c)),
        lambda known, w: (jnp.asarray(MATRIX).T @ (known[1] * w), w * (jnp.asarray(MATRIX) @ known[0])),
    )
    x = linear_solve(lambda u: product(u, c), b, method="biCG-stab(2)", rtol=1e-13).x
    return (jnp.asarray(WEIGHTS) * x**2).sum()


def exact(b: Any, c: Any) -> Any:
    return (jnp.asarray(WEIGHTS) * (jnp.linalg.inv(c[:, None] * jnp.asarray(MATRIX)) @ b) ** 2).sum()


TRANSFORMS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "grad": lambda f: jax.grad(f, (0, 1)),
    "grad of grad": lambda f: jax.jacrev(jax.jacrev(f, 1), (0, 1)),
    "vmap of grad": lambda f: lambda b, c: jax.vmap(jax.grad(f, (0, 1)))(jnp.stack([b, 2 * b]), jnp.stack([c, 3 * c])),
    "jvp by b": lambda f: lambda b, c: jax.jvp(lambda b: f(b, c), (b,), (c,))[1],
    "hessian by b": lambda f: jax.hessian(f),
}


@pytest.mark.parametrize(
    "transform",
    [
        pytest.param(t, marks=pytest.mark.slow if t == "grad of grad" else () if t == "grad" else pytest.mark.merge)
        for t in TRANSFORMS
    ],
)
def test_a_function_with_a_reverse_rule(transform: str) -> None:
    found, wanted = (jax.jit(TRANSFORMS[transform](f))(B, C) for f in (loss, exact))
    for a, w in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, w, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("method", ["biCG-stab(2)", pytest.param("direct", marks=pytest.mark.merge)])
def test_a_reverse_rule_of_what_jax_cannot_see(method: str) -> None:
    """Neither the function nor its rule has operations that JAX could transpose."""
    product = with_rule(on_host, lambda u: (on_host(u), None), lambda _, w: (host_product(MATRIX.T, w),))
    gradient = jax.jit(jax.grad(lambda b: linear_solve(product, b, method=method).x @ WEIGHTS))(B)
    np.testing.assert_allclose(gradient, np.linalg.solve(MATRIX.T, WEIGHTS), rtol=1e-9)


def test_the_rule_of_a_non_linear_function_is_no_transpose() -> None:
    """Its pullback is another one at every point. Linearity cannot be tested where the function hides its values."""

    def bent(u: Any, c: Any) -> Any:
        return 3 * u + c * u**2

    def solve(b: Any, c: Any) -> Any:
        A = with_rule(
            bent, lambda u, c: (bent(u, c), (u, c)), lambda known, w: (w * (3 + 2 * known[1] * known[0]), None)
        )
        return linear_solve(A, b, args=(c,), method="biCG-stab(2)", on_failure="status").x.sum()

    with pytest.raises(TypeError):
        jax.jit(jax.grad(solve))(B, 0.0)


def test_forward_derivatives_are_left_to_the_rule() -> None:
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jit(lambda c: jax.jvp(lambda c: loss(jnp.asarray(B), c), (c,), (c,))[1])(C)


@pytest.mark.parametrize("method", ["CG", *(pytest.param(m, marks=pytest.mark.merge) for m in ("direct", "GMRES"))])
def test_the_transpose_of_a_solve(method: str) -> None:
    A = MATRIX + MATRIX.T if method == "CG" else MATRIX
    settings = {} if method == "direct" else {"x0": np.ones(N), "preconditioner": "jacobi"}

    def solve(b: Any) -> Any:
        return linear_solve(jnp.asarray(A), b, method=method, **settings).x

    def once(c: Any) -> Any:
        return jax.linear_transpose(solve, B)(c)[0]

    np.testing.assert_allclose(jax.jit(once)(B), np.linalg.solve(A.T, B), rtol=1e-8)
    if method == "CG":
        twice = jax.jit(lambda c: jax.linear_transpose(once, B)(c)[0])(B)
        np.testing.assert_allclose(twice, np.linalg.solve(A, B), rtol=1e-8)


class Axis(Enum):
    LANES = 1


@pytest.mark.merge
def test_collectives_of_vmap() -> None:
    """A function that sums over the lanes of `vmap` is one system of each lane, whose derivative sums likewise."""

    def lane(k: Any, b: Any) -> Any:
        total = jax.lax.psum(k, Axis.LANES)
        return linear_solve(lambda u: (2 + total) * u - 0.5 * jnp.roll(u, 1), b, method="GMRES", rtol=1e-12).x

    def total(k: Any, B: Any) -> Any:
        return (jax.vmap(lane, axis_name=Axis.LANES)(k, B) ** 2).sum()

    def by_hand(k: Any, B: Any) -> Any:
        A = (2 + k.sum()) * jnp.eye(N) - 0.5 * jnp.roll(jnp.eye(N), 1, 0)
        return (jnp.linalg.solve(A, B.T) ** 2).sum()

    k, both = jnp.asarray([1.0, 2.0]), jnp.stack([B, 2 + B])
    for found, wanted in zip(*(jax.jit(jax.grad(f, (0, 1)))(k, both) for f in (total, by_hand)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8)


def test_traced_when_a_derivative_is_asked_for() -> None:
    """The transposed solve is no part of a program without derivatives."""
    traced = []

    def stencil(u: Any) -> Any:
        return 3 * u - jnp.roll(u, 1)

    def backward(_: None, c: Any) -> tuple[Any]:
        traced.append(c)
        return (3 * c - jnp.roll(c, -1),)

    A = with_rule(stencil, lambda u: (stencil(u), None), backward)
    solve = jax.jit(lambda b: linear_solve(A, b, method="CGS", rtol=1e-12).x)
    solve.trace(B)
    assert not traced
    found = jax.jit(jax.grad(lambda b: solve(b).sum()))(B)
    assert traced
    A = 3 * np.eye(N) - np.roll(np.eye(N), 1, 0)
    np.testing.assert_allclose(found, np.linalg.solve(A.T, np.ones(N)), rtol=1e-9)


@pytest.mark.parametrize("method", ["CG", pytest.param("direct", marks=pytest.mark.merge)])
@pytest.mark.parametrize(
    "transform",
    [lambda f: f, lambda f: jax.grad(f), lambda f: jax.grad(jax.jit(f))],
    ids=["jit", "jit of grad", "grad of jit"],
)
def test_nothing_of_a_trace_outlives_it(method: str, transform: Callable[..., Any]) -> None:
    """JAX looks for leaks where a trace ends, before anything is compiled."""
    A = jnp.asarray(MATRIX + MATRIX.T)

    def loss(t: Any) -> Any:
        f = A + t * jnp.eye(N) if method == "direct" else lambda u: A @ u + t * u
        return linear_solve(f, jnp.asarray(B), method=method).x.sum()

    with jax.checking_leaks():
        jax.jit(transform(loss)).trace(1.0)


@pytest.mark.merge
def test_transpose_of_what_is_not_linear() -> None:
    with pytest.raises(TypeError, match="not linear in b"):
        jax.linear_transpose(lambda b: linear_solve(lambda u: 2 * u, b, method="CG", atol=1e-3).x, B)(B)
