"""What is known while a function is compiled is factorised then, once, however often it runs and is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import linear_solve, prepare
from krylix.solvers.methods.direct import dense, superlu
from modes import array, to_numpy

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

    count(superlu, "_factorise")
    count(superlu, "factorise")  # of dense matrices
    count(dense, "factorise")
    return counted


def matrix_free(mode: str) -> Callable[[Any], Any]:
    if mode == "jax-jit":
        import jax.numpy as jnp

        return lambda u: 4 * u + jnp.pad(u[1:], (0, 1)) - 0.5 * jnp.pad(u[:-3], (3, 0))
    import tensorflow as tf

    return lambda u: 4 * u + tf.pad(u[1:], [[0, 1]]) - 0.5 * tf.pad(u[:-3], [[3, 0]])


def value_and_gradient(mode: str, solve: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, Any]]:
    """Compiled: `<G, x>` and its derivative by b."""
    if mode == "jax-jit":
        import jax

        return jax.jit(jax.value_and_grad(lambda b: (solve(b) * G).sum()))
    import tensorflow as tf

    @tf.function
    def both(b: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(b)
            value = tf.reduce_sum(solve(b) * G)
        return value, tape.gradient(value, b)

    return both


@pytest.mark.parametrize("form", ["SciPy", "dense", "function", "prepared"])
@pytest.mark.compiled_by_default("scipy-direct", "direct")
@pytest.mark.parametrize("method", ["scipy-direct", "direct"])
@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_factors_of_what_is_known_are_made_once(mode: str, method: str, form: str, made: list[str]) -> None:
    matrix: Any = {"SciPy": A, "dense": A.toarray(), "prepared": A}.get(form)
    operator = matrix_free(mode) if form == "function" else matrix

    def solve(b: Any) -> Any:
        if form == "prepared":
            return prepare(operator, b, method=method).solve(b).x
        return linear_solve(operator, b, method=method).x

    compiled = value_and_gradient(mode, solve)
    for seed in range(3):
        b = np.random.default_rng(seed).standard_normal(N)
        value, gradient = compiled(array(mode, b))
        np.testing.assert_allclose(to_numpy(value), G @ np.linalg.solve(A.toarray(), b), rtol=1e-9)
        np.testing.assert_allclose(to_numpy(gradient), np.linalg.solve(A.toarray().T, G), rtol=1e-9)
        assert len(made) == 1, made


@pytest.mark.compiled_by_default("scipy-direct", "direct")
@pytest.mark.parametrize("method", ["scipy-direct", "direct"])
@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_factors_of_what_depends_on_an_argument_are_not_kept(mode: str, method: str) -> None:
    from modes import compiled

    solve = compiled(mode, lambda c, b: linear_solve(lambda u: c * u, b, method=method).x)
    for c in (2.0, 5.0):
        x = solve(array(mode, np.full(N, c)), array(mode, G))
        np.testing.assert_allclose(to_numpy(x), G / c, rtol=1e-12)
