"""Null vectors of matrices that are arguments of compiled functions, and of batches; against pseudo-inverses."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import pytest

from krylix import linear_solve
from krylix.sparse import DIA
from modes import array, compiled, library, to_numpy

rng = np.random.default_rng(0)
SHAPE = (6, 7)
N = SHAPE[0] * SHAPE[1]
TRACED = ["jax-jit", "tf-function"]


def closed(mode: str, k: Any, shift: Any = 0.0) -> Any:
    """`-div(k grad u) + shift u` with no flow through the boundary; k = 0 in obstacles."""
    pad = import_module({"jax": "jax.numpy"}.get(library(mode), library(mode))).pad

    def f(u: Any) -> Any:
        down = k[1:] * k[:-1] * (u[1:] - u[:-1])
        right = k[:, 1:] * k[:, :-1] * (u[:, 1:] - u[:, :-1])
        down = pad(down, [[1, 0], [0, 0]]) - pad(down, [[0, 1], [0, 0]])
        return down + pad(right, [[0, 0], [1, 0]]) - pad(right, [[0, 0], [0, 1]]) + shift * u

    return f


def dense(k: np.ndarray, shift: float = 0.0) -> np.ndarray:
    f = closed("numpy", k, shift)
    return np.stack([f(e.reshape(SHAPE)).reshape(-1) for e in np.eye(N)], axis=1)


def coefficients(kind: str) -> np.ndarray:
    k = 1 + np.random.default_rng(1).random(SHAPE)
    if kind == "obstacle":
        k[2:4, 3:5] = 0
    return k


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize("kind", [pytest.param("closed", marks=pytest.mark.merge), "obstacle"])
@pytest.mark.parametrize("mode", TRACED)
def test_solutions(mode: str, kind: str) -> None:
    """Without the part that A does not see, though x0 has one, nor that which no x reaches; least squares."""
    k = coefficients(kind)
    A, start = dense(k), rng.standard_normal(SHAPE)
    b = (A @ rng.standard_normal(N)).reshape(SHAPE)
    settings: dict[str, Any] = {"on_failure": "status", "rtol": 1e-11}

    def solve(k: Any, b: Any, x0: Any) -> Any:
        result = linear_solve(closed(mode, k), b, x0=x0, **settings)
        return result.x, result.converged, result.consistent

    run = compiled(mode, solve)
    expected = np.linalg.pinv(A) @ b.reshape(-1)
    for right in (b, b + 1):
        x, converged, consistent = run(array(mode, k), array(mode, right), array(mode, start))
        assert bool(converged) and bool(consistent) == (right is b)
        np.testing.assert_allclose(to_numpy(x).reshape(-1), expected, atol=1e-8 * np.abs(expected).max())


@pytest.mark.needs("jax")
@pytest.mark.parametrize("kind", ["closed", pytest.param("obstacle", marks=pytest.mark.merge)])
def test_gradients(kind: str) -> None:
    """Of a loss that sees the mean, by coefficients and right-hand side: those of the pseudo-inverse."""
    import jax

    k, weights = coefficients(kind), rng.standard_normal(SHAPE)
    fluid = k > 0
    b = (dense(k) @ rng.standard_normal(N)).reshape(SHAPE)
    dk, db = rng.standard_normal(SHAPE) * fluid, rng.standard_normal(SHAPE)

    def loss(k: Any, b: Any) -> Any:
        x = linear_solve(closed("jax", k), b, rtol=1e-12).x
        return (weights * x * x).sum()

    def reference(t: float) -> float:
        right = b + t * db
        inside = np.where(fluid, right - right[fluid].mean(), 0).reshape(-1)
        x = np.linalg.pinv(dense(k + t * dk)) @ inside
        return float(weights.reshape(-1) @ x**2)

    by_k, by_b = jax.jit(jax.grad(loss, argnums=(0, 1)))(k, b)
    expected = (reference(1e-6) - reference(-1e-6)) / 2e-6
    assert float((by_k * dk).sum() + (by_b * db).sum()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.merge
@pytest.mark.needs("jax")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_what_is_nearly_singular_is_left_alone(dtype: str) -> None:
    """The mean of x is then what the shift makes it, much larger than the rest; and one program serves both."""
    import jax

    k, b = coefficients("closed").astype(dtype), rng.standard_normal(SHAPE) + 1
    program = jax.jit(lambda k, b, s: linear_solve(closed("jax", k, s), b, on_failure="status"))
    shift = 5e-4
    result = program(k, b.astype(dtype), np.asarray(shift, dtype))
    x = np.linalg.solve(dense(k.astype(float), float(np.asarray(shift, dtype))), b.reshape(-1))
    assert bool(result.converged)
    np.testing.assert_allclose(np.asarray(result.x).mean(), x.mean(), rtol=0.05 if dtype == "float32" else 1e-3)
    consistent = program(k, (b - b.mean()).astype(dtype), np.asarray(0, dtype))
    assert bool(consistent.converged) and abs(float(consistent.x.mean())) < 1e-5


@pytest.mark.needs("jax")
def test_lanes() -> None:
    """One singular, one nearly, where the mean of x is what the shift makes it, and one not; in one program."""
    import jax

    k, b = coefficients("closed"), rng.standard_normal(SHAPE)
    shifts = np.array([0.0, 5e-4, 0.3])
    rows = b - b.mean() + np.array([0, 1, 0])[:, None, None]
    solve = jax.jit(jax.vmap(lambda s, b: linear_solve(closed("jax", k, s), b, rtol=1e-11).x))
    for x, shift, row in zip(np.asarray(solve(shifts, rows)), shifts, rows, strict=True):
        expected = (np.linalg.pinv(dense(k, shift)) @ row.reshape(-1)).reshape(SHAPE)
        np.testing.assert_allclose(x, expected, atol=1e-8 * max(1, np.abs(expected).max()))


@pytest.mark.parametrize("mode", ["numpy", "jax", "torch", "tf"])
def test_batches_of_matrices(mode: str) -> None:
    """Of which some are singular; each is told apart."""
    A = np.stack([dense(coefficients("closed")), dense(coefficients("closed"), 0.5), dense(coefficients("obstacle"))])
    offsets = [-SHAPE[1], -1, 0, 1, SHAPE[1]]
    values = np.zeros((3, 5, N))
    for k, offset in enumerate(offsets):
        values[:, k, max(0, -offset) : N - max(0, offset)] = np.diagonal(A, offset, 1, 2)
    b = np.einsum("kij,kj->ki", A, rng.standard_normal((3, N)))
    result = linear_solve(DIA(array(mode, values), offsets, (N, N)), array(mode, b), rtol=1e-11)
    expected = [np.linalg.pinv(M) @ row for M, row in zip(A, b, strict=True)]
    np.testing.assert_allclose(to_numpy(result.x), expected, atol=1e-7)


@pytest.mark.needs("jax")
def test_nobody_looks_where_the_caller_says_so() -> None:
    """`nullspace=None`, and a method that is named: x keeps about the mean that x0 has."""
    import jax

    k, b = coefficients("closed"), rng.standard_normal(SHAPE)
    b -= b.mean()
    for settings in ({"nullspace": None}, {"method": "CG"}):
        x = jax.jit(lambda k, b, s=settings: linear_solve(closed("jax", k), b, x0=0 * b + 3, **s).x)(k, b)
        assert float(x.mean()) == pytest.approx(3, abs=0.1)


@pytest.mark.needs("torch")
def test_lanes_of_torch_are_left_alone() -> None:
    """In which no branch may look at values: `auto` solves for them as before."""
    import torch

    n = 6
    d, b = torch.full((2, n), 3.0, dtype=torch.float64), torch.ones(2, n, dtype=torch.float64)

    def solve(d: Any, b: Any) -> Any:
        one = torch.ones(n, dtype=torch.float64)
        return linear_solve(DIA(torch.stack([-one, d, -one]), [-1, 0, 1], (n, n)), b, rtol=1e-12).x

    A = 3 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    expected = np.linalg.solve(A, np.ones(n))
    np.testing.assert_allclose(torch.func.vmap(solve)(d, b), [expected] * 2, rtol=1e-8)
    gradient = torch.func.vmap(torch.func.grad(lambda d, b: solve(d, b).sum()))(d, b)
    np.testing.assert_allclose(gradient, [-np.linalg.solve(A.T, np.ones(n)) * expected] * 2, rtol=1e-7)


@pytest.mark.filterwarnings("ignore::krylix.SingularMatrixWarning")
def test_a_system_of_a_batch_is_solved_as_alone() -> None:
    """With x0 in an empty row of a system that is regular else, beside one that maps constants to zero."""
    n, offsets = 6, [-1, 0, 1]
    singular = np.stack([-np.ones(n), np.r_[1, 2 * np.ones(n - 2), 1], -np.ones(n)])
    regular = singular + np.array([[0], [0.5], [0]])
    regular[:, 3] = 0
    regular[2, 2] = regular[0, 4] = 0
    b, x0 = np.array([[1.0, -1, 0, 0, 0, 0], [1, 2, 3, 0, 5, 6]]), np.full((2, n), 7.0)
    both = linear_solve(DIA(np.stack([singular, regular]), offsets, (n, n)), b, x0=x0).x[1]
    alone = linear_solve(DIA(regular[None], offsets, (n, n)), b[1:], x0=x0[1:]).x[0]
    np.testing.assert_array_equal(both, alone)


@pytest.mark.merge
@pytest.mark.needs("jax")
def test_short_of_the_last_digits_regular_is_regular() -> None:
    """Diffusion with a long time step in single precision, whose entries are exact; x and its gradient are ones."""
    import jax

    n, k = 32, 3e5
    offsets = [1 - n, -1, 0, 1, n - 1]
    values = np.zeros((5, n), np.float32)
    values[0, -1] = values[4, 0] = values[1, 1:] = values[3, :-1] = -k
    values[2] = 1 + 2 * k
    loss = jax.jit(jax.grad(lambda b, v: linear_solve(DIA(v, offsets, (n, n)), b, on_failure="status").x.sum()))
    wave = np.cos(2 * np.pi * np.arange(n) / n).astype(np.float32)
    gradient = np.asarray(loss(wave - wave.mean(), values))
    assert np.all(np.isnan(gradient)) or np.allclose(gradient, 1, rtol=0.1)  # no zero in silence
    x = linear_solve(DIA(values[None], offsets, (n, n)), np.ones((1, n), np.float32)).x
    np.testing.assert_allclose(x, 1, rtol=0.01)
