"""The automatic choice where coefficients are arguments of a compiled function: what it takes, and that x is right.

Facts hold for random positive arguments. Here are special ones, for which the choice may be wrong and x may not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from best_factors import BEST_FACTORS
from frameworks import jax, jnp, tf
from krylix import linear_solve, matrix_from_function, prepare
from modes import array, compiled, library, to_numpy

MODES = ("jax-jit", "tf-function")
SHAPE = (34, 33)
rng = np.random.default_rng(5)
B = rng.standard_normal(SHAPE)
SMOOTH = np.exp(np.sin(np.linspace(0, 7, SHAPE[0]))[:, None] * np.cos(np.linspace(0, 5, SHAPE[1])))
ROUGH = np.exp(rng.standard_normal(SHAPE))
NOTHING_IN_A_PART = np.where(np.arange(SHAPE[0])[:, None] < 9, 0.0, SMOOTH)
BOTH_SIGNS = np.where(np.arange(SHAPE[1]) < 15, -1.0, 1.0) * SMOOTH


def functions(xp: Any) -> dict[str, Callable[[Any, Any], Any]]:
    def pad(u: Any, **settings: Any) -> Any:
        return xp.pad(u, [[1, 1], [1, 1]], **settings)

    def diffusion(u: Any, k: Any) -> Any:
        p, c = pad(u), pad(k, constant_values=1)
        down = (c[1:, 1:-1] + c[:-1, 1:-1]) * (p[1:, 1:-1] - p[:-1, 1:-1])
        right = (c[1:-1, 1:] + c[1:-1, :-1]) * (p[1:-1, 1:] - p[1:-1, :-1])
        return down[:-1] - down[1:] + right[:, :-1] - right[:, 1:]

    def closed(u: Any, k: Any) -> Any:
        """No flow through walls, and a bit of reaction: nearly singular."""
        p, c = pad(u), pad(k)
        down = c[1:, 1:-1] * c[:-1, 1:-1] * (p[1:, 1:-1] - p[:-1, 1:-1])
        right = c[1:-1, 1:] * c[1:-1, :-1] * (p[1:-1, 1:] - p[1:-1, :-1])
        return down[:-1] - down[1:] + right[:, :-1] - right[:, 1:]

    def convection(u: Any, k: Any) -> Any:
        return diffusion(u, k) + 2 * k * (u - pad(u)[:-2, 1:-1])

    def scaled(u: Any, k: Any) -> Any:
        """Symmetric where k is one number."""
        return k * diffusion(u, 0 * k + 1)

    def waves(u: Any, k: Any) -> Any:
        return diffusion(u, 0 * k + 1) - 3 * k * u

    def lopsided(u: Any, k: Any) -> Any:
        """Symmetric for positive k."""
        return diffusion(u, abs(k)) + 3 * (abs(k) - k) * (u - pad(u)[1:-1, 2:])

    return {f.__name__: f for f in (diffusion, closed, convection, scaled, waves, lopsided)}


def dense(name: str, k: np.ndarray) -> np.ndarray:
    f = functions(np)[name]
    return matrix_from_function(lambda u: f(u, k), np.zeros(SHAPE))[0].toarray()


def solve_in(mode: str, name: str, **settings: Any) -> Callable[[Any, Any], Any]:
    f = functions(jnp if library(mode) == "jax" else tf)[name]
    return compiled(mode, lambda k, b: linear_solve(f, b, args=(k,), **settings))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.compiled_by_default(modes=("jax-jit", "tf-function"))
@pytest.mark.parametrize(
    ("name", "method"),
    [("diffusion", "CG"), ("convection", BEST_FACTORS), ("scaled", BEST_FACTORS), ("waves", BEST_FACTORS)],
)
def test_choice(mode: str, name: str, method: str) -> None:
    if mode == "tf-function" and method != "CG":
        # graphs factorise only after a failure, or after many iterations
        method = f"{BEST_FACTORS} (after MINRES had taken 1536 iterations)" if name == "waves" else "biCG-stab(2)"
    result = solve_in(mode, name)(array(mode, ROUGH), array(mode, B))
    assert result.method == method
    expected = np.linalg.solve(dense(name, ROUGH), B.reshape(-1)).reshape(SHAPE)
    np.testing.assert_allclose(to_numpy(result.x), expected, atol=1e-6 * np.abs(expected).max())


@pytest.mark.needs("jax")
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("diffusion", "symmetric, diagonal of one sign"),
        ("waves", "symmetric, no sign of being definite"),
        ("convection", "not known to be symmetric"),
    ],
)
def test_explanation(name: str, found: str) -> None:
    said: list[str] = []

    def program(k: Any, b: Any) -> Any:
        said.append(str(prepare(lambda u: functions(jnp)[name](u, k), b).explain()))
        return b

    jax.jit(program)(ROUGH, B)
    assert f"; for random values of the arguments: {found}\n" in said[0]


SPECIAL = {
    "zero": ("diffusion", 0 * SMOOTH),
    "zero in a region": ("diffusion", NOTHING_IN_A_PART),
    "negative": ("diffusion", -SMOOTH - 1),
    "both signs": ("diffusion", BOTH_SIGNS),
    "huge": ("diffusion", 1e200 * ROUGH),
    "tiny": ("diffusion", 1e-200 * ROUGH),
    "waves of few points": ("waves", 0.3 * SMOOTH),
    "one number": ("scaled", 0 * SMOOTH + 2),
    "unsymmetric": ("lopsided", BOTH_SIGNS),
}


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", SPECIAL)
def test_special_arguments(name: str) -> None:
    """x is that of NumPy, by least squares where no x reaches b, which the result says; or the solve raises."""
    f, k = SPECIAL[name]
    A, b = dense(f, k), B.reshape(-1)
    result = solve_in("jax-jit", f, on_failure="status")(k, B)
    x = to_numpy(result.x).reshape(-1)
    if bool(result.converged):
        reached = b if bool(result.consistent) else A @ np.linalg.lstsq(A, b, rcond=1e-12)[0]
        assert np.linalg.norm(reached - A @ x) <= 1e-7 * np.linalg.norm(b)
        if np.linalg.cond(A) < 1e10:
            expected = np.linalg.solve(A, b)
            np.testing.assert_allclose(x, expected, atol=1e-6 * np.abs(expected).max())
        return
    with pytest.raises(Exception, match="did not converge"):
        jax.block_until_ready(solve_in("jax-jit", f)(k, B).x)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("policy", ["raise", "status", "nan"])
def test_nan(policy: str) -> None:
    k = SMOOTH.copy()
    k[4, 5] = np.nan
    solve = solve_in("jax-jit", "diffusion", on_failure=policy)
    if policy == "raise":
        with pytest.raises(Exception, match=r"not finite|NaN|diverged"):
            jax.block_until_ready(solve(k, B).x)
    else:
        result = solve(k, B)
        assert not bool(result.converged) and bool(jnp.isnan(result.x).all()) == (policy == "nan")


@pytest.mark.needs("jax")
@pytest.mark.parametrize("name", ["diffusion", "convection", "lopsided"])
def test_derivatives(name: str) -> None:
    """First and second ones with respect to k and b, of one k and of lanes, beside finite differences of NumPy's x."""
    f = functions(jnp)[name]
    weights, direction = rng.standard_normal(SHAPE), rng.standard_normal(SHAPE)

    def loss(t: Any, k: Any) -> Any:
        c = k + t * direction * abs(k)
        return jnp.sum(jnp.asarray(weights) * linear_solve(f, jnp.asarray(B) * (1 + t), args=(c,), rtol=1e-12).x ** 2)

    def reference(t: float, k: np.ndarray) -> float:
        x = np.linalg.solve(dense(name, k + t * direction * abs(k)), B.reshape(-1) * (1 + t)).reshape(SHAPE)
        return float(np.sum(weights * x**2))

    lanes = np.stack([SMOOTH, ROUGH] if name != "lopsided" else [SMOOTH, BOTH_SIGNS])
    first = jax.jit(jax.vmap(jax.grad(loss), (None, 0)))(0.0, lanes)
    second = jax.jit(jax.grad(jax.grad(loss)))(0.0, lanes[1])
    h = 1e-4
    for lane, found in zip(lanes, first, strict=True):
        values = [reference(t, lane) for t in (-2 * h, -h, 0.0, h, 2 * h)]
        expected = (values[0] - 8 * values[1] + 8 * values[3] - values[4]) / (12 * h)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    curvature = (-values[0] + 16 * values[1] - 30 * values[2] + 16 * values[3] - values[4]) / (12 * h * h)
    np.testing.assert_allclose(second, curvature, rtol=1e-4)


@pytest.mark.needs("tensorflow")
def test_under_a_tape() -> None:
    """In a graph that records derivatives the choice is the same, and the gradient that of NumPy."""
    f, methods = functions(tf)["diffusion"], []
    weights = rng.standard_normal(SHAPE)

    @tf.function(autograph=False)
    def gradient(k: Any, b: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(b)
            result = linear_solve(f, b, args=(k,), rtol=1e-12)
            loss = tf.reduce_sum(result.x * weights)
        methods.append(result.method)
        return tape.gradient(loss, b)

    found = gradient(tf.constant(ROUGH), tf.constant(B))
    expected = np.linalg.solve(dense("diffusion", ROUGH).T, weights.reshape(-1)).reshape(SHAPE)
    np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())
    assert set(methods) == {"CG"}
