"""Half a minute: one solve in every library, eager and compiled; a failure, gradients, a trace, the command line."""

from typing import Any

import numpy as np
import pytest

import krylix
from krylix import linear_solve
from krylix.__main__ import main
from modes import array, product, solve

N = 8
MATRIX = 2.5 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)
B = np.linspace(-1, 2, N)
SOLUTION = np.linalg.solve(MATRIX, B)
GRADIENT = np.linalg.solve(MATRIX.T, 2 * SOLUTION)  # of the sum of squares of x, by b


@pytest.mark.parametrize("mode", ["numpy", "jax", "jax-jit", "torch", "tf", "tf-function"])
def test_solve(mode: str) -> None:
    result = solve(mode, product(mode, array(mode, MATRIX)), B, method="CG")
    assert result.converged and np.linalg.norm(B - MATRIX @ result.x) <= 1e-10 * np.linalg.norm(B)
    np.testing.assert_allclose(result.x, SOLUTION, rtol=1e-8)


def test_automatic_choice() -> None:
    np.testing.assert_allclose(linear_solve(MATRIX, B).x, SOLUTION, rtol=1e-10)


def test_failure() -> None:
    with pytest.raises(krylix.NotConverged, match="limit of iterations") as caught:
        linear_solve(MATRIX, B, method="CG", max_iter=2)
    assert caught.value.result.iterations == 2 and not caught.value.result.converged


def test_gradient_in_numpy() -> None:
    result = linear_solve(MATRIX, B, method="CG", rtol=1e-12)
    np.testing.assert_allclose(result.vjp(2 * result.x).b, GRADIENT, rtol=1e-8)


@pytest.mark.needs("jax")
def test_gradient_in_jax() -> None:
    import jax

    def loss(b: Any) -> Any:
        return (linear_solve(array("jax", MATRIX), b, method="CG", rtol=1e-12).x ** 2).sum()

    np.testing.assert_allclose(jax.jit(jax.grad(loss))(array("jax", B)), GRADIENT, rtol=1e-8)


@pytest.mark.needs("torch")
def test_gradient_in_torch() -> None:
    b = array("torch", B).requires_grad_()
    (linear_solve(array("torch", MATRIX), b, method="CG", rtol=1e-12).x ** 2).sum().backward()
    np.testing.assert_allclose(b.grad, GRADIENT, rtol=1e-8)


@pytest.mark.needs("tensorflow")
def test_gradient_in_tensorflow() -> None:
    import tensorflow as tf

    b = tf.Variable(B)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(linear_solve(array("tf", MATRIX), b, method="CG", rtol=1e-12).x ** 2)
    np.testing.assert_allclose(tape.gradient(loss, b), GRADIENT, rtol=1e-8)


@pytest.mark.needs("jax")
def test_trace() -> None:
    import jax.numpy as jnp

    def function(u: Any) -> Any:
        return 2.5 * u - jnp.pad(u[1:], (0, 1)) - jnp.pad(u[:-1], (1, 0)) + 1

    matrix, bias = krylix.matrix_from_function(function, array("jax", B))
    assert np.array_equal(matrix.toarray(), MATRIX) and np.array_equal(bias, np.ones(N))


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["solve", "--example", "bar"]) == 0
    assert "converged" in capsys.readouterr().out
