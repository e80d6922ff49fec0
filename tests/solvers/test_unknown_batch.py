"""Batches whose size is not known while TensorFlow traces a function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cells import in_turn
from frameworks import lazy
from krylix import SolveResult, linear_solve
from krylix.solvers import Status

tf = lazy("tensorflow")
N = 5
MATRIX = 4 * np.eye(N) - np.eye(N, k=1) - 0.5 * np.eye(N, k=-1)
B = np.random.default_rng(0).standard_normal((3, N))


def unknown() -> Any:
    return tf.TensorSpec([None, N], tf.float64)


def traced(function: Any, *specs: Any, **settings: Any) -> Any:
    return tf.function(function, input_signature=specs or (unknown(),), **settings)


KINDS = {
    "dense": lambda: tf.constant(MATRIX),
    "sparse": lambda: tf.sparse.from_dense(MATRIX),
    "numpy": lambda: MATRIX,
    "function": lambda: lambda x: tf.linalg.matvec(tf.constant(MATRIX), x),
}


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        *in_turn(KINDS, ["biCG-stab", "direct"]),
        *(pytest.param(kind, "scipy-direct", marks=pytest.mark.merge) for kind in KINDS),
    ],
)
def test_each_system(kind: str, method: str) -> None:
    A = KINDS[kind]()
    axes = {"batch_ndim": 1} if kind == "function" else {}
    solve = traced(lambda b: linear_solve(A, b, method=method, **axes))
    for b in (B, B[:1], 3 * B[:2]):
        found = solve(b)
        assert isinstance(found, SolveResult)
        np.testing.assert_allclose(found.x, np.linalg.solve(MATRIX, b.T).T, rtol=1e-8)
        assert found.converged.shape == (len(b),) and np.all(found.converged)
        assert found.residual_norm.shape == found.iterations.shape == (len(b),)
    assert solve(B[:0]).x.shape == (0, N)
    assert solve.get_concrete_function().structured_outputs.x.shape.as_list() == [None, N]


def test_more_axes_and_a_start() -> None:
    spec = tf.TensorSpec([None, 2, N], tf.float64)
    b = np.stack([B, 2 * B], 1)
    exact = np.linalg.solve(MATRIX, b.reshape(-1, N).T).T.reshape(b.shape)
    found = traced(lambda b, x0: linear_solve(MATRIX, b, x0=x0, method="biCG-stab"), spec, spec)(b, exact)
    np.testing.assert_allclose(found.x, exact, rtol=1e-12)
    assert found.iterations.numpy().tolist() == [[0, 0]] * 3


@pytest.mark.merge
def test_derivatives() -> None:
    def loss(M: Any, b: Any) -> Any:
        return tf.reduce_sum(linear_solve(M, b, method="biCG-stab", rtol=1e-12).x ** 3)

    with tf.GradientTape() as tape:
        M, b = tf.constant(MATRIX), tf.constant(B)
        tape.watch((M, b))
        value = traced(loss, tf.TensorSpec([N, N], tf.float64), unknown())(M, b)
    found = tape.gradient(value, (M, b))
    x = np.linalg.solve(MATRIX, B.T).T
    y = np.linalg.solve(MATRIX.T, 3 * x.T**2).T
    np.testing.assert_allclose(found[1], y, rtol=1e-9)
    np.testing.assert_allclose(found[0], -y.T @ x, rtol=1e-9)


@pytest.mark.merge
def test_failures() -> None:
    singular = np.diag([1.0, 2, 3, 4, 0])
    status = traced(lambda b: linear_solve(singular, b, method="CG", nullspace=None, on_failure="status").status)(B)
    assert not np.any(np.asarray(status) == Status.CONVERGED)
    with pytest.raises(tf.errors.UnknownError, match="CG"):
        traced(lambda b: linear_solve(singular, b, method="CG", nullspace=None).x)(B)


@pytest.mark.parametrize(
    ("shape", "settings"),
    [
        ([2, None], {}),
        ([None, N], {"history": True}),
        ([None, N], {"rtol": np.array([1e-3, 1e-4])}),
        ([None, N], {"max_iter": (1, 2)}),
    ],
)
def test_what_is_not_taken_apart(shape: Any, settings: Any) -> None:
    with pytest.raises(ValueError, match=r"expected one that is known.*TensorSpec"):
        traced(lambda b: linear_solve(MATRIX, b, method="GMRES", **settings).x, tf.TensorSpec(shape, tf.float64))(B[:2])


@pytest.mark.merge
def test_matrices_of_an_unknown_number() -> None:
    spec = tf.TensorSpec([None, N, N], tf.float64)
    with pytest.raises(ValueError, match="expected one that is known"):
        traced(lambda M, b: linear_solve(M, b, method="direct").x, spec, unknown())(np.stack([MATRIX] * 3), B)
