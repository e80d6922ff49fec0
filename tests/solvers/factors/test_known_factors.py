"""What is known while a function is compiled is factorised then, once, however often it runs and is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from cells import in_turn
from frameworks import jax, jnp, tf
from krylix import linear_solve, prepare
from krylix.solvers.factors import sparse
from krylix.solvers.methods import direct
from modes import array, compiled, to_numpy

N = 12
rng = np.random.default_rng(0)
A = sp.csr_array(np.diag(np.full(N, 4.0)) + np.eye(N, k=1) - 0.5 * np.eye(N, k=-3))
G = rng.standard_normal(N)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The factorisations, one entry each."""
    counted: list[str] = []

    def count(module: Any, name: str) -> None:
        function = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, **k: counted.append(name) or function(*a, **k))

    count(sparse, "examined_sparse")
    count(sparse, "factorise")  # of dense matrices
    count(direct, "factorise")
    return counted


def matrix_free(mode: str) -> Callable[[Any], Any]:
    pad = (jnp if mode == "jax-jit" else tf).pad
    return lambda u: 4 * u + pad(u[1:], [[0, 1]]) - 0.5 * pad(u[:-3], [[3, 0]])


def value_and_gradient(mode: str, solve: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, Any]]:
    """Compiled: `<G, x>` and its derivative by b."""
    if mode == "jax-jit":
        return jax.jit(jax.value_and_grad(lambda b: (solve(b) * G).sum()))

    @tf.function
    def both(b: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(b)
            value = tf.reduce_sum(solve(b) * G)
        return value, tape.gradient(value, b)

    return both


@pytest.mark.compiled_by_default("scipy-direct", "direct")
@pytest.mark.parametrize(
    ("mode", "method", "form"),
    [
        pytest.param(mode, method, form, marks=() if (form == lapack) == (method == "direct") else pytest.mark.merge)
        for mode, lapack in (("jax-jit", ""), ("tf-function", "dense"))  # whose programs take longest
        for method in ("scipy-direct", "direct")
        for form in ("SciPy", "dense", "function", "prepared")
    ],
)
def test_factors_of_what_is_known_are_made_once(mode: str, method: str, form: str, made: list[str]) -> None:
    matrix: Any = {"SciPy": A, "dense": A.toarray(), "prepared": A}.get(form)
    operator = matrix_free(mode) if form == "function" else matrix

    def solve(b: Any) -> Any:
        if form == "prepared":
            return prepare(operator, b, method=method).solve(b).x
        return linear_solve(operator, b, method=method).x

    both = value_and_gradient(mode, solve)
    for seed in range(3):
        b = np.random.default_rng(seed).standard_normal(N)
        value, gradient = both(array(mode, b))
        np.testing.assert_allclose(to_numpy(value), G @ np.linalg.solve(A.toarray(), b), rtol=1e-9)
        np.testing.assert_allclose(to_numpy(gradient), np.linalg.solve(A.toarray().T, G), rtol=1e-9)
        assert len(made) == 1, made


@pytest.mark.compiled_by_default("scipy-direct", "direct")
@pytest.mark.parametrize(
    ("mode", "method"), in_turn(["jax-jit", "tf-function"], ["direct", "scipy-direct"], tier="merge")
)
def test_factors_of_what_depends_on_an_argument_are_not_kept(mode: str, method: str) -> None:
    solve = compiled(mode, lambda c, b: linear_solve(lambda u: c * u, b, method=method).x)
    for c in (2.0, 5.0):
        x = solve(array(mode, np.full(N, c)), array(mode, G))
        np.testing.assert_allclose(to_numpy(x), G / c, rtol=1e-12)


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize(
    "method", ["scipy-direct", *(pytest.param(m, marks=pytest.mark.merge) for m in ("direct", "fast-direct", "CG"))]
)
def test_tensors_that_a_tf_function_closes_over(method: str, made: list[str]) -> None:
    """They are the same in every run: factors are made of them once, and derivatives by them stay."""
    grid, rng = (5, 6), np.random.default_rng(1)
    c, second = (tf.constant(k + rng.random(), tf.float64) for k in (3, 1))
    b = tf.constant(rng.standard_normal(grid))

    def f(u: Any) -> Any:
        p = tf.pad(u, [[1, 1], [1, 1]])
        return (c + 2) * u - p[2:, 1:-1] - p[:-2, 1:-1] - second * (p[1:-1, 2:] + p[1:-1, :-2])

    @tf.function
    def solve(b: Any) -> Any:
        return linear_solve(f, b, method=method, preconditioner="jacobi" if method == "CG" else None).x

    def matrix(c: float, s: float) -> np.ndarray:
        T = [np.eye(n, k=1) + np.eye(n, k=-1) for n in grid]
        return (c + 2) * np.eye(30) - np.kron(T[0], np.eye(6)) - s * np.kron(np.eye(5), T[1])

    M = matrix(float(c), float(second))
    for scale in (1.0, 2.0):
        np.testing.assert_allclose(solve(scale * b).numpy().ravel(), scale * np.linalg.solve(M, b.numpy().ravel()))
    if method in ("direct", "scipy-direct"):
        assert len(made) == 1
    with tf.GradientTape() as tape:
        tape.watch([c, second, b])
        value = tf.reduce_sum(solve(b) ** 2) / 2
    found = tape.gradient(value, [c, second, b])
    x = np.linalg.solve(M, b.numpy().ravel())
    y = np.linalg.solve(M.T, x)
    expected = [-y @ (matrix(1, 0) - matrix(0, 0)) @ x, -y @ (matrix(0, 1) - matrix(0, 0)) @ x, y.reshape(grid)]
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-9)


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize(("given", "method"), in_turn(["variable", "argument"], ["direct", "biCG-stab"], tier="merge"))
def test_variables_and_arguments_of_a_tf_function_are_not_known(given: str, method: str) -> None:
    """They change between runs of one program."""
    variable, b = tf.Variable(4.0, dtype=tf.float64), tf.constant(np.arange(1.0, 13))
    shift = tf.constant(1.0, tf.float64)

    def operator(scale: Any) -> Callable[[Any], Any]:
        return lambda u: (scale + shift) * u + tf.pad(u[1:], [[0, 1]])

    @tf.function
    def solve(b: Any, scale: Any) -> Any:
        scale = variable if given == "variable" else scale
        return linear_solve(
            operator(scale), b, method=method, preconditioner="ilu" if method == "biCG-stab" else None
        ).x

    for value in (4.0, 8.0):
        variable.assign(value)
        expected = np.linalg.solve((value + 1) * np.eye(N) + np.eye(N, k=1), b.numpy())
        np.testing.assert_allclose(solve(b, tf.constant(value, tf.float64)).numpy(), expected)
