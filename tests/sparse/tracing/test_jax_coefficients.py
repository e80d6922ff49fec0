"""Coefficients inside jit, grad and vmap: NumPy where they are known, else traced arrays with derivatives."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix.sparse.tracing.matrix_from_function import matrix_from_function

jax = lazy("jax")
jnp, lax = lazy("jax.numpy"), lazy("jax.lax")
N = 6
rng = np.random.default_rng(1)
K = rng.random((N, N)) + 0.5
MASK = rng.random((N, N)) > 0.3
INDEX = rng.integers(0, N, 9)


@pytest.fixture(scope="module", autouse=True)
def constants() -> None:
    """Collecting tests imports no framework."""
    global LIKE
    LIKE = jax.ShapeDtypeStruct((N, N), np.dtype(float))


def diffusion(u: Any, k: Any) -> Any:
    p, kp = jnp.pad(u, 1), jnp.pad(k, 1, mode="edge")
    x = 0.5 * (kp[2:, 1:-1] + k) * (p[2:, 1:-1] - u) - 0.5 * (k + kp[:-2, 1:-1]) * (u - p[:-2, 1:-1])
    return x + 0.5 * (kp[1:-1, 2:] + k) * (p[1:-1, 2:] - u) - 0.5 * (k + kp[1:-1, :-2]) * (u - p[1:-1, :-2])


FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "diffusion": diffusion,
    "masked": lambda u, k: jnp.where(MASK, diffusion(u, k), u),
    "zeros": lambda u, k: MASK * (k * u + jnp.roll(u, 1, 0)),
    "scalar": lambda u, k: k[0, 0] * u + k.sum() * u[::-1],
    "divide": lambda u, k: u / k + k,
    "where-traced": lambda u, k: jnp.where(k > 1, u, 2 * u[::-1]) + k,
    "where-scalar": lambda u, k: lax.select_n(k[0, 0] > 1, u, k),
    "nan-safe": lambda u, k: jnp.where(k > 0.9, u / jnp.where(k > 0.9, k - 0.9, 0.0), u),
    "cond": lambda u, k: lax.cond(k[0, 0] > 1, lambda v: 2 * v, lambda v: k * v.T, u),
    "matrix": lambda u, k: k @ u + u @ k.T,
    "einsum": lambda u, k: jnp.einsum("ij,ij->i", k, u),
    "gather": lambda u, k: k.ravel()[INDEX] * u.ravel()[INDEX + 4],
    "scatter": lambda u, k: jnp.zeros(N).at[INDEX].add(k.ravel()[:9] * u.ravel()[3:12]),
    "set": lambda u, k: u.at[0].set(k[0]).at[np.array([2, 2, 3])].set(k[:3] * u[:3]),
    "multiply": lambda u, k: u.at[np.array([1, 2, 4])].multiply(k[:3], unique_indices=True),
    "convolve": lambda u, k: jax.scipy.signal.convolve2d(u, k[:3, :3], mode="same"),
    "scan": lambda u, k: lax.scan(lambda c, x: (x[0] * c + x[1], c * 2), k[0], (k, u)),
    "relu": lambda u, k: jax.nn.softplus(k - 1) * u,
    "remat": lambda u, k: jax.checkpoint(lambda q: jnp.exp(q))(k) * u,
    "loop-of-constants": lambda u, k: lax.fori_loop(0, 3, lambda i, q: q * k + i, k) * u,
    "cumsum": lambda u, k: jnp.cumsum(k * u, 0) + jnp.cumsum(k, 1),
    "fft": lambda u, k: jnp.fft.ifft(k * jnp.fft.fft(u)).real,
    "dense-sum": lambda u, k: (k * u).sum() + k,
    "reshape": lambda u, k: (k * u).ravel()[5:23].reshape(6, 3)[::-1] * k[:, :3],
    "stack": lambda u, k: jnp.stack([k * u, k, u], 1),
    "pad": lambda u, k: lax.pad(k * u, k[0, 0], [(1, 1, 0), (0, 2, 1)]),
    "dynamic": lambda u, k: lax.dynamic_update_slice(k, k[:2] * u[:2], (1, 0)),
}


def joined(tree: Any) -> Any:
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def both_ways(name: str, k: Any) -> list[Any]:
    """A sum of elements and its gradient, through the matrix and through the function."""
    f, u = FUNCTIONS[name], np.random.default_rng(2).standard_normal((N, N))

    def by_matrix(k: Any) -> Any:
        matrix, bias = matrix_from_function(f, LIKE, k)
        assert name == "nan-safe" or matrix.constant is None
        return matrix @ u.ravel() + joined(bias)

    def weighted(y: Any) -> Any:
        return (np.random.default_rng(3).standard_normal(y.shape) * y).sum()

    ways = (by_matrix, lambda k: joined(f(jnp.asarray(u), k)))
    return [jax.value_and_grad(lambda k, way=way: weighted(way(k)))(k) for way in ways]


@cache
def sums_and_gradients() -> dict[str, Any]:
    """Those of all functions, in one program."""
    found: dict[str, Any] = jax.jit(lambda k: {name: both_ways(name, k) for name in FUNCTIONS})(K)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_traced(name: str) -> None:
    """The product and its gradient, through the matrix and through the function."""
    by_matrix, directly = sums_and_gradients()[name]
    for found, expected in zip(by_matrix, directly, strict=True):
        assert np.isfinite(expected).all()
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


@pytest.mark.merge
def test_derivatives_of_second_order() -> None:
    u = jnp.asarray(rng.standard_normal((N, N)))

    def g(k: Any) -> Any:
        matrix, _ = matrix_from_function(lambda u: diffusion(u, k**2), LIKE)
        return matrix @ u.ravel()

    lazy("jax.test_util").check_grads(jax.jit(g), (jnp.asarray(K),), order=2, rtol=1e-6)


def test_vmap() -> None:
    u, ks = jnp.asarray(rng.standard_normal((N, N))), rng.random((3, N, N)) + 0.5

    def g(k: Any) -> Any:
        return matrix_from_function(diffusion, LIKE, k)[0] @ u.ravel()

    found, expected = jax.jit(lambda ks: (jax.vmap(g)(ks), [diffusion(u, k).ravel() for k in ks]))(ks)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.merge
def test_eager_transformations() -> None:
    u = jnp.asarray(rng.standard_normal((N, N)))
    products = jax.vmap(lambda k: matrix_from_function(diffusion, LIKE, k)[0] @ u.ravel())(jnp.stack([K, 2 * K]))
    np.testing.assert_allclose(products, [diffusion(u, k).ravel() for k in (K, 2 * K)], rtol=1e-12)
    found = jax.grad(lambda k: (matrix_from_function(diffusion, LIKE, k)[0] @ u.ravel()).sum())(jnp.asarray(K))
    np.testing.assert_allclose(found, jax.grad(lambda k: diffusion(u, k).sum())(jnp.asarray(K)), rtol=1e-11, atol=1e-13)


def test_pattern_does_not_depend_on_traced_values() -> None:
    nnz = []

    @jax.jit
    def g(k: Any) -> Any:
        matrix, _ = matrix_from_function(lambda u: MASK * (k * u), LIKE, format="csr")
        nnz.append(matrix.nnz)
        return k

    g(jnp.asarray(K))
    assert nnz == [int(MASK.sum())]  # the known zeros of the mask are no entries


def known_in_jit(make: Callable[[Any], Any], wrap: Callable[[Any], Any] | None = None) -> Any:
    """What `matrix.constant` is inside jit for f(u) = make(argument) * u."""
    found = []

    def g(a: Any) -> Any:
        coefficient = make(a)
        matrix, _ = matrix_from_function(lambda u: coefficient * u, LIKE)
        found.append(None if matrix.constant is None else matrix.toarray().diagonal().reshape(N, N))
        return a * 1.0

    (wrap or jax.jit)(g)(2.0)
    return found[0]


X = np.linspace(0, 1, N)[:, None] * np.ones((N, N))
CONSTANTS: dict[str, tuple[Callable[[Any], Any], np.ndarray]] = {
    "jnp": (lambda a: 1 + jnp.linspace(0, 1, N)[:, None] * jnp.ones((N, N)), 1 + X),
    "where": (
        lambda a: jnp.where(jnp.asarray(MASK), (1 + jnp.asarray(X)) ** 2, 0.5),
        np.where(MASK, (1 + X) ** 2, 0.5),
    ),
    "jit": (lambda a: jax.jit(jnp.exp)(jnp.asarray(X)), np.exp(X)),
    "relu": (lambda a: jax.nn.relu(jnp.asarray(X) - 0.5), np.maximum(X - 0.5, 0)),
    "loop": (lambda a: lax.fori_loop(0, 3, lambda i, q: q * 2, jnp.asarray(X)), 8 * X),
    "long-loop": (lambda a: lax.fori_loop(0, 1000, lambda i, q: q + 1, jnp.asarray(X)), 1000 + X),
    "set": (lambda a: jnp.asarray(X).at[0].set(7.0), np.concatenate([np.full((1, N), 7.0), X[1:]])),
}


@pytest.mark.parametrize("name", CONSTANTS)
def test_constants_of_the_compiled_function_are_known(name: str) -> None:
    make, expected = CONSTANTS[name]
    np.testing.assert_allclose(known_in_jit(make), expected, rtol=1e-14)


def test_constants_under_transformations() -> None:
    make, expected = CONSTANTS["jnp"]
    for wrap in (jax.grad, jax.vmap, lambda g: jax.jit(jax.grad(g)), lambda g: jax.jit(lambda a: jax.jit(g)(a))):
        argument = wrap if wrap is not jax.vmap else lambda g: lambda a: jax.vmap(g)(jnp.full(2, a))
        np.testing.assert_allclose(known_in_jit(make, argument), expected, rtol=1e-14)


def test_arguments_are_not_known() -> None:
    assert known_in_jit(lambda a: a * jnp.ones((N, N))) is None
    assert known_in_jit(lambda a: jnp.ones((N, N)) + 0 * a) is None
    assert known_in_jit(lambda a: jax.jit(lambda b: b * jnp.ones((N, N)))(a)) is None


def test_loop_variables_are_not_known() -> None:
    kinds = []

    def body(c: Any, x: Any) -> Any:
        matrix, _ = matrix_from_function(lambda u: (c + jnp.ones((N, N))) * u, LIKE)
        kinds.append(matrix.constant is None)
        return c + 1, 0

    jax.jit(lambda: lax.scan(body, 0.0, jnp.arange(3))[0])()
    assert kinds == [True] * len(kinds)


def test_compile_time_evaluation() -> None:
    def make(a: Any) -> Any:
        with jax.ensure_compile_time_eval():
            return jnp.cos(jnp.asarray(X))

    np.testing.assert_allclose(known_in_jit(make), np.cos(X), rtol=1e-14)


def test_without_private_parts_of_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another version of JAX may keep no record of tracers: values stay traced then, and right."""
    from krylix.sparse.tracing.jax import interpreter

    def fail(x: Any) -> Any:
        raise AttributeError("parent")

    monkeypatch.setattr(interpreter, "_lowered", fail)
    assert known_in_jit(CONSTANTS["jnp"][0]) is None


def test_known_coefficients_are_not_aliased() -> None:
    """The matrix does not change when the user writes into an array that the function closes over."""
    k, c = K.copy(), K.copy()
    functions = (lambda u: k * u + c, lambda u: (k * u).ravel()[::-1] + c.ravel(), lambda u: k.T * u.T + c)
    for f in functions:
        for format in (None, "csr", "dia"):
            matrix, bias = matrix_from_function(f, LIKE, format=format)
            before = matrix.toarray(), np.array(bias)
            k += 1
            c += 1
            np.testing.assert_array_equal(matrix.toarray(), before[0])
            np.testing.assert_array_equal(bias, before[1])


def test_result_as_output_of_jit() -> None:
    matrix, bias = jax.jit(lambda k: matrix_from_function(lambda u: diffusion(u, k) + 1, LIKE))(jnp.asarray(K))
    u = rng.standard_normal((N, N))
    np.testing.assert_allclose(matrix @ jnp.asarray(u).ravel() + 0, np.asarray(diffusion(u, K)).ravel(), atol=1e-13)
    np.testing.assert_array_equal(bias, np.ones((N, N)))
