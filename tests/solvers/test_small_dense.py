"""Small dense systems of the frameworks: NumPy's short way finds what their general way does, where nobody watches."""

from __future__ import annotations

import copy
import itertools
import pickle
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from krylix import ConvergenceError, choose_backend, convert, linear_solve
from krylix.solvers.results.result import NUMBERS
from modes import array, library, to_numpy

LINEAR_SOLVE: Any = sys.modules["krylix.solvers.linear_solve"]
N = 12
RNG = np.random.default_rng(3)
GENERAL = RNG.standard_normal((N, N)) + 4 * np.eye(N)
RING = 2 * np.eye(N) - np.roll(np.eye(N), 1, 0) - np.roll(np.eye(N), -1, 0)
MATRICES = {
    "general": GENERAL,
    "definite": GENERAL @ GENERAL.T + np.eye(N),
    "ring": RING,
    "rank one": np.outer(np.arange(1.0, N + 1), np.ones(N)),
    "NaN": np.where(np.eye(N) > 0, np.nan, GENERAL),
    "huge": 1e200 * GENERAL,
}
FRAMEWORKS = ("jax", "torch", "tf")


def where(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Calls a function where solves have `value` in place of one of their two ways."""

    def call(function: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(LINEAR_SOLVE, name, value)
            return function()

    return call


@pytest.fixture
def general_way(monkeypatch: pytest.MonkeyPatch) -> Any:
    return where("solve_small_dense", lambda request: None, monkeypatch)


@pytest.fixture
def short_way(monkeypatch: pytest.MonkeyPatch) -> Any:
    return where("run_for", None, monkeypatch)


def outcome(A: Any, b: Any, **settings: Any) -> Any:
    try:
        return linear_solve(A, b, **settings)
    except (ConvergenceError, ValueError) as error:
        return error


@pytest.mark.filterwarnings("ignore:.*:krylix.SingularMatrixWarning")
@pytest.mark.parametrize(
    ("name", "mode"), [*itertools.product(MATRICES, ("torch", "tf")), ("general", "jax"), ("ring", "jax")]
)
def test_results_are_those_of_the_general_way(mode: str, name: str, general_way: Any) -> None:
    dtypes = ("float64",) if mode == "jax" or name == "huge" else ("float64", "float32", "complex128", "complex64")
    for dtype in dtypes[::3] if mode == "tf" and name != "rank one" else dtypes[:1] if mode == "tf" else dtypes:
        own = MATRICES[name].astype(dtype)
        if dtype[0] == "c" and name == "general":
            own = own + 1j * np.roll(own, 1)
        A, b = array(mode, own), array(mode, (own @ np.arange(1.0, N + 1)).astype(dtype))
        found, expected = outcome(A, b), general_way(lambda A=A, b=b: outcome(A, b))
        assert type(found) is type(expected)
        if isinstance(expected, Exception):
            assert str(found) == str(expected)
            continue
        for name_ in ("x", "residual", "history", "checkpoints", "_background", "_why", *NUMBERS):
            one, other = getattr(found, name_), getattr(expected, name_)
            assert type(one) is type(other), name_
            if hasattr(other, "shape"):
                assert (one.dtype, one.shape) == (other.dtype, other.shape), name_
        for name_ in ("status", "iterations", "singular", "converged"):
            assert to_numpy(getattr(found, name_)) == to_numpy(getattr(expected, name_)), name_
        rtol = 1e-3 if dtype in ("float32", "complex64") else 1e-10
        np.testing.assert_allclose(to_numpy(found.x), to_numpy(expected.x), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("mode", FRAMEWORKS)
def test_the_short_way_is_taken(mode: str, short_way: Any) -> None:
    for name in ("general", "definite"):
        A, b = array(mode, MATRICES[name]), array(mode, np.arange(1.0, N + 1))
        for settings in ({}, {"method": "direct"}, {"rtol": 1e-4, "atol": 0.1}, {"nullspace": None}, {"axis": -1}):
            result = short_way(lambda A=A, b=b, settings=settings: linear_solve(A, b, **settings))
            np.testing.assert_allclose(to_numpy(result.x), np.linalg.solve(MATRICES[name], np.arange(1.0, N + 1)))


@pytest.mark.parametrize("mode", FRAMEWORKS)
def test_arrays_that_are_made_later(mode: str) -> None:
    """They are the result's own once they are read, in copies and other processes too."""
    A, b = array(mode, GENERAL), array(mode, np.ones(N))
    result = linear_solve(A, b)
    for other in (copy.copy(result), copy.deepcopy(result), pickle.loads(pickle.dumps(result)), replace(result)):
        assert repr(other) == repr(result)
        np.testing.assert_allclose(to_numpy(other.residual), np.ones(N) - GENERAL @ to_numpy(other.x), atol=1e-13)
    assert result.residual is result.residual
    assert choose_backend(result.residual).name == choose_backend(result.x).name == library(mode)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        result.nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.needs("jax")
def test_arrays_that_are_made_in_a_program_of_jax_stay_there() -> None:
    import jax
    import jax.numpy as jnp

    A, b = jnp.asarray(GENERAL), jnp.ones(N)
    result = linear_solve(A, b)
    inside = jax.jit(lambda y: y + result.residual)(b)
    np.testing.assert_allclose(inside, 1 + np.asarray(result.residual), atol=1e-14)
    assert isinstance(result.residual, jax.Array) and not isinstance(result.residual, jax.core.Tracer)
    assert int(jax.jit(lambda result: result.iterations + 1)(linear_solve(A, b))) == 2


@pytest.mark.needs("jax")
def test_modes_of_jax() -> None:
    """A user's own, that judge conversions or switch programs off; and b on a device of his choice."""
    import jax
    import jax.numpy as jnp

    A, b = jnp.asarray(GENERAL), jnp.ones(N)
    exact = np.linalg.solve(GENERAL, np.ones(N))
    with jax.disable_jit():
        assert isinstance(linear_solve(A, b).x, jax.Array)
    with jax.transfer_guard("disallow"):
        result = linear_solve(A, b)
        assert result.residual.shape == (N,)
    placed = jax.device_put(b, jax.local_devices(backend="cpu")[0])
    found = linear_solve(A, placed).x
    assert found.committed and not linear_solve(A, b).x.committed
    np.testing.assert_allclose(found, exact, rtol=1e-10)


@pytest.mark.needs("tensorflow")
def test_arrays_that_are_made_in_a_graph_stay_there() -> None:
    import tensorflow as tf

    A, b = tf.constant(GENERAL), tf.ones(N, tf.float64)
    result = linear_solve(A, b)
    inside = tf.function(lambda y: y + result.residual)(b)
    np.testing.assert_allclose(inside.numpy(), 1 + result.residual.numpy(), atol=1e-14)


@pytest.mark.needs("torch")
def test_derivatives_in_torch(short_way: Any) -> None:
    """What is recorded, or transformed, has derivatives to every order; only what is neither takes the short way."""
    import torch

    A, b = torch.as_tensor(GENERAL), torch.ones(N, dtype=torch.float64)
    tracked, own = b.clone().requires_grad_(), A.clone().requires_grad_()
    inverse = np.linalg.inv(GENERAL)
    (first,) = torch.autograd.grad((linear_solve(A, tracked).x ** 2).sum(), tracked, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), tracked)
    np.testing.assert_allclose(first.detach(), 2 * inverse.T @ inverse @ np.ones(N), rtol=1e-8)
    np.testing.assert_allclose(second, 2 * inverse.T @ inverse @ np.ones(N), rtol=1e-8)
    (gradient,) = torch.autograd.grad(linear_solve(own, b).x.sum(), own)
    np.testing.assert_allclose(gradient, -np.outer(inverse.sum(0), inverse.sum(1)), rtol=1e-8)
    with torch.no_grad():
        assert not short_way(lambda: linear_solve(own, tracked)).x.requires_grad
    grad = torch.func.grad(lambda b: (linear_solve(A, b).x ** 2).sum())(b)
    np.testing.assert_allclose(grad, first.detach(), rtol=1e-8)
    many = torch.func.vmap(lambda b: linear_solve(A, b).x)(torch.stack([b, 2 * b]))
    np.testing.assert_allclose(many[1], 2 * inverse.sum(1), rtol=1e-8)
    _, pushed = torch.func.jvp(lambda b: linear_solve(A, b).x, (b,), (b,))
    np.testing.assert_allclose(pushed, inverse.sum(1), rtol=1e-8)
    with torch.inference_mode():
        assert linear_solve(A, b).x.is_inference() and linear_solve(A, b).residual.is_inference()


@pytest.mark.needs("torch")
def test_memory_of_torch() -> None:
    """Views in any layout; nothing is written to, and results share no memory with what was given, nor each other."""
    import torch

    A = torch.as_tensor(np.kron(GENERAL, np.ones((2, 2))))[::2, ::2].T
    b = torch.ones(2 * N, dtype=torch.float64)[::2]
    before = A.clone()
    first, second = linear_solve(A, b), linear_solve(A, b)
    first.x.zero_()
    first.residual.add_(7)
    assert torch.equal(A, before) and bool((b == 1).all())
    np.testing.assert_allclose(second.x, np.linalg.solve(GENERAL.T, np.ones(N)), rtol=1e-10)
    complex_ = (A + 1j * A.T).conj()  # a view that conjugates when it is read
    x = linear_solve(complex_, b + 0j).x
    np.testing.assert_allclose(x, np.linalg.solve(complex_.resolve_conj().numpy(), np.ones(N)), rtol=1e-10)


@pytest.mark.needs("tensorflow")
def test_derivatives_in_tensorflow(short_way: Any) -> None:
    import tensorflow as tf

    A, b = tf.constant(GENERAL), tf.ones(N, tf.float64)
    inverse = np.linalg.inv(GENERAL)
    with tf.GradientTape() as outer:
        outer.watch(b)
        with tf.GradientTape() as inner:
            inner.watch(b)
            loss = tf.reduce_sum(linear_solve(A, b).x ** 2)
        first = inner.gradient(loss, b)
        total = tf.reduce_sum(first)
    expected = 2 * inverse.T @ inverse @ np.ones(N)
    np.testing.assert_allclose(first, expected, rtol=1e-8)
    np.testing.assert_allclose(outer.gradient(total, b), expected, rtol=1e-8)
    with tf.GradientTape() as tape:  # of something else
        tape.watch(total)
        x = short_way(lambda: linear_solve(A, b)).x
        product = total * tf.reduce_sum(x)
    np.testing.assert_allclose(tape.gradient(product, total), inverse.sum(), rtol=1e-8)
    with tf.autodiff.ForwardAccumulator(b, b), pytest.raises(RuntimeError, match="no forward"):
        linear_solve(A, b)
    variable = tf.Variable(GENERAL)
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(linear_solve(variable, b).x)
    np.testing.assert_allclose(tape.gradient(loss, variable), -np.outer(inverse.sum(0), inverse.sum(1)), rtol=1e-8)


@pytest.mark.parametrize("mode", FRAMEWORKS)
def test_other_libraries_are_not_mixed(mode: str) -> None:
    """A matrix of NumPy goes with any b; others are refused as ever."""
    b = array(mode, np.ones(N))
    np.testing.assert_allclose(to_numpy(linear_solve(GENERAL, b).x), np.linalg.solve(GENERAL, np.ones(N)), rtol=1e-10)
    other = "torch" if mode != "torch" else "tensorflow"
    if __import__("importlib.util").util.find_spec(other):
        with pytest.raises(TypeError, match="were given together"):
            linear_solve(convert(GENERAL, other), b)
