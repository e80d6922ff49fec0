"""Where the method that was chosen fails, factors made on the host solve it: eagerly, compiled, and backward."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from frameworks import jax, jnp, tf, torch
from krylix import linear_solve
from krylix.solvers.factors import sparse
from modes import EAGER, array, compiled, to_numpy

N = 40
rng = np.random.default_rng(0)
K = 10.0 ** rng.uniform(-3, 3, N)
B = rng.standard_normal(N)
FEW_LANES = 12  # unknowns where TensorFlow runs a solve for each
FEW = 3  # iterations, which no iteration gets along with, and factors do
MODES = ["numpy", "jax", "jax-jit", "torch", "tf", "tf-function"]


def function_of(mode: str) -> Callable[[Any, Any], Any]:
    """Three couplings in the library of the mode."""
    if mode == "torch":
        pad = torch.nn.functional.pad
    else:
        module = {"jax": "jax.numpy", "tf": "tensorflow"}.get(mode.split("-")[0], "numpy")
        pad = lambda u, width: import_module(module).pad(u, [width])  # noqa: E731

    def f(u: Any, k: Any) -> Any:
        before, after, far = pad(u, (1, 0))[:-1], pad(u, (0, 1))[1:], pad(u, (0, 9))[9:]
        return 3 * k * u - k * before - 1.5 * k * after + 0.01 * far

    return f


def dense(k: np.ndarray) -> np.ndarray:
    f = function_of("numpy")
    return np.stack([f(e, k) for e in np.eye(len(k))], axis=1)


def exact(k: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.solve(dense(k), b)


def solver(mode: str, **settings: Any) -> Callable[[Any, Any], Any]:
    """Begins with an iteration, as a preconditioner is given."""
    f = function_of(mode)
    return lambda b, k: linear_solve(f, b, args=(k,), max_iter=FEW, preconditioner="jacobi", **settings)


@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize("mode", MODES)
def test_climbs(mode: str) -> None:
    result = compiled(mode, solver(mode))(array(mode, B), array(mode, K))
    np.testing.assert_allclose(to_numpy(result.x), exact(K, B), rtol=1e-8, atol=1e-8 * np.abs(exact(K, B)).max())
    assert bool(np.all(to_numpy(result.converged)))


@pytest.mark.needs("jax")
@pytest.mark.merge
@pytest.mark.parametrize("kind", ["reverse", "forward", "vectorised"])
def test_derivatives_climb_too(kind: str) -> None:
    """Against finite differences."""
    solve = solver("jax")

    def loss(b: Any, k: Any) -> Any:
        return jnp.sum(jnp.sin(solve(b, k).x))

    def reference(b: np.ndarray, k: np.ndarray) -> float:
        return float(np.sum(np.sin(exact(k, b))))

    if kind == "vectorised":
        many = jax.jit(jax.vmap(lambda b: solve(b, K).x))(np.stack([B, 2 * B]))
        np.testing.assert_allclose(many, [exact(K, B), 2 * exact(K, B)], rtol=1e-7, atol=1e-9)
        return
    if kind == "reverse":
        gradients = jax.jit(jax.grad(loss, (0, 1)))(B, K)
    else:
        tangent = jax.jit(lambda db, dk: jax.jvp(loss, (jnp.asarray(B), jnp.asarray(K)), (db, dk))[1])
    direction, h = rng.standard_normal(N), 1e-6
    for i, step in enumerate((direction, K * direction)):
        db, dk = step * (i == 0), step * (i == 1)
        expected = (reference(B + h * db, K + h * dk) - reference(B - h * db, K - h * dk)) / (2 * h)
        found = gradients[i] @ step if kind == "reverse" else tangent(db, dk)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.needs("torch")
def test_torch_derivatives_climb_too() -> None:
    b, k = (torch.tensor(v, requires_grad=True) for v in (B, K))
    x = solver("torch")(b, k).x
    weights = rng.standard_normal(N)
    (x * torch.tensor(weights)).sum().backward()
    y = np.linalg.solve(dense(K).T, weights)
    np.testing.assert_allclose(b.grad, y, rtol=1e-7, atol=1e-9 * np.abs(y).max())


@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
@pytest.mark.compiled_by_default(modes=("jax-jit",))
def test_nothing_is_factorised_on_success(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    factorise = sparse.examined_sparse

    def counted(*given: Any) -> Any:
        made.append(1)
        return factorise(*given)

    monkeypatch.setattr(sparse, "examined_sparse", counted)
    f, easy = function_of(mode), 1 + rng.random(N)

    def solve(b: Any, k: Any) -> Any:
        return linear_solve(f, b, args=(k,), preconditioner="jacobi").x

    if mode == "jax-jit":  # where a condition of many lanes would run both branches
        gradient = jax.grad(lambda b, k: solve(b, k).sum())
        found = jax.jit(jax.vmap(gradient, (0, None)))(np.stack([B, 2 * B]), easy)
        expected = np.stack([np.linalg.solve(dense(easy).T, np.ones(N))] * 2)
    else:
        found, expected = to_numpy(compiled(mode, solve)(array(mode, B), array(mode, easy))), exact(easy, B)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7 * np.abs(expected).max())
    assert not made


@pytest.mark.needs("jax")
def test_exported_programs_keep_the_failure() -> None:
    """They cannot call the host, as those of `test_climbs` do: x is NaN, and the status tells."""
    solve = solver("jax", on_failure="status")
    exported = jax.export.export(jax.jit(lambda b, k: solve(b, k).status))(B, K)
    assert int(jax.export.deserialize(exported.serialize()).call(B, K)) != 1


def in_tensorflow(systems: str) -> tuple[Any, Any, Any, np.ndarray]:
    """How to solve easy systems, where no lane asks the host, or hard ones, where each does; A's inverse."""
    f = function_of("tf")
    k = K[:FEW_LANES] if systems == "hard" else 1 + rng.random(FEW_LANES)
    solve = solver("tf") if systems == "hard" else lambda b, k: linear_solve(f, b, args=(k,), preconditioner="jacobi")
    return solve, tf.constant(k), tf.constant(B[:FEW_LANES]), np.linalg.inv(dense(k))


@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize(
    "systems", [pytest.param("easy", marks=pytest.mark.slow), pytest.param("hard", marks=pytest.mark.merge)]
)
def test_tensorflow_lanes(systems: str) -> None:
    solve, k, b, inverse = in_tensorflow(systems)
    lanes = tf.vectorized_map(lambda b: solve(b, k).x, tf.stack([b, 2 * b]))
    x = inverse @ b.numpy()
    np.testing.assert_allclose(lanes, [x, 2 * x], rtol=1e-6, atol=1e-6 * np.abs(x).max())


@pytest.mark.merge
@pytest.mark.needs("tensorflow")
@pytest.mark.parametrize("systems", [pytest.param("easy", marks=pytest.mark.slow), "hard"])
def test_tensorflow_jacobians(systems: str) -> None:
    solve, k, b, inverse = in_tensorflow(systems)
    with tf.GradientTape() as tape:
        tape.watch(b)
        x = solve(b, k).x
    np.testing.assert_allclose(tape.jacobian(x, b), inverse, rtol=1e-6, atol=1e-8 * np.abs(inverse).max())


@pytest.mark.parametrize("mode", ["numpy", pytest.param("jax", marks=pytest.mark.slow), "jax-jit", "torch", "tf"])
@pytest.mark.compiled_by_default(modes=("jax-jit",))
def test_only_systems_that_failed_are_solved_again(mode: str) -> None:
    """Of a batch; and none for a right-hand side that is not finite."""

    modules = {"jax": "jax.numpy", "torch": "torch", "tf": "tensorflow", "numpy": "numpy"}
    roll = import_module(modules[mode.split("-")[0]]).roll

    def solve(b: Any) -> Any:
        return linear_solve(
            lambda u: 4 * u - 2 * roll(u, 1, -1) - roll(u, 9, -1), b, batch_ndim=1, max_iter=FEW, on_failure="status"
        )

    rows = np.stack([np.ones(N), np.full(N, np.nan), B, np.zeros(N)])  # the first is an eigenvector
    found = compiled(mode, solve)(array(mode, rows))
    A = 4 * np.eye(N) - 2 * np.roll(np.eye(N), 1, 0) - np.roll(np.eye(N), 9, 0)
    assert list(to_numpy(found.status)) == [1, 5, 1, 1]
    assert list(to_numpy(found.iterations)[[1, 3]]) == [0, 0] and to_numpy(found.function_evaluations)[0] > 1
    np.testing.assert_allclose(to_numpy(found.x)[[0, 2]], [np.ones(N), np.linalg.solve(A, B)], rtol=1e-7)
    if mode in EAGER:
        first = solve(array(mode, rows[:1]))
        np.testing.assert_array_equal(to_numpy(found.iterations)[0], to_numpy(first.iterations)[0])


def test_the_last_of_several_limits_decides() -> None:
    f, k = function_of("numpy"), np.ones(N)
    found = linear_solve(f, B, args=(k,), max_iter=[1, 2, 40], on_failure="status")
    assert found.converged[-1] and not found.converged[0]
    assert "direct" not in found.method and list(found.iterations[:2]) == [1, 2]


def test_methods_that_were_named_do_not_climb() -> None:
    result = linear_solve(function_of("numpy"), B, args=(K,), method="GMRES", max_iter=FEW, on_failure="status")
    assert not result.converged and result.method == "GMRES"
