"""Some elements of a function, computed from what they need, against all of them."""

from functools import cache
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix.backends import get_backend

jax = lazy("jax")
jnp, lax = lazy("jax.numpy"), lazy("jax.lax")
jax_sample = lazy("krylix.sparse.tracing.jax.sample")
jax_interpreter = lazy("krylix.sparse.tracing.jax.interpreter")

rng = np.random.default_rng(0)
X = rng.standard_normal((40, 30))
C = rng.standard_normal((40, 30))
KERNEL = rng.standard_normal((4, 1, 3, 2))

FUNCTIONS = {
    "stencil": lambda u: jnp.pad(u, 1)[2:, 1:-1] - 2 * u + jnp.roll(u, 1, 0) + jnp.roll(u, 0, 1),
    "pads": lambda u: jnp.pad(jnp.pad(u, 2, mode="wrap"), 1, mode="reflect"),
    "interior": lambda u: lax.pad(u, 1.5, [(-1, 2, 1), (3, -2, 2)]),
    "arithmetic": lambda u: (u * C + C[0]) / (1 + C[:, :1] ** 2) - 3 * C.T[:30].sum(),
    "moved": lambda u: (u.T[::-1, ::2]).reshape(3, 200)[:, None, :50] + jnp.ones((3, 4, 1)),
    "sums": lambda u: u[:, :6].sum(1) + jnp.concatenate([u, 2 * u[:3]]).sum(),
    "sum of axes": lambda u: u.reshape(8, 5, 10, 3).sum((1, 3)),
    "convolved": lambda u: lax.conv_general_dilated(
        jnp.stack([u, 2 * u])[None], KERNEL, (2, 1), [(1, -1), (2, 3)], (1, 2), (2, 3), feature_group_count=2
    ),
    "channels last": lambda u: lax.conv_general_dilated(
        u[None, ..., None], KERNEL.transpose(2, 3, 1, 0), (1, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    ),
    "whole": lambda u: jnp.cumsum(u, 0)[3:] + jnp.take(u, np.arange(5, 42), axis=0, mode="clip") @ C[:30] @ C.T[:, :30],
    "scattered": lambda u: jnp.zeros((50, 30)).at[np.arange(40) + 3].add(u)[1:] * 2,
    "masked": lambda u: jnp.where(C > 0, u, lax.select_n(C[0, 0] > 0, u[::-1], 2 * u)),
    "calls": lambda u: (
        jax.jit(lambda x: jax.checkpoint(lambda y: 2 * y)(x) + 1)(u)[1:]
        + lax.fori_loop(0, 2, lambda i, v: v * i, u)[:-1]
    ),
    "constant": lambda u: jnp.asarray(C),
    "input": lambda u: u,
    "dtypes": lambda u: (u.astype(jnp.complex64) * 2j).imag.astype(jnp.float64),
    "scalar": lambda u: u[3, 4] * 2,
}


@cache
def images() -> dict[str, Any]:
    """By JAX, in one program."""
    found: dict[str, Any] = jax.jit(lambda u: {name: f(u) for name, f in FUNCTIONS.items()})(X)
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("count", [1, 25, 500])
def test_elements(name: str, count: int) -> None:
    expected = np.ravel(images()[name])
    program = jax.make_jaxpr(FUNCTIONS[name])(X)
    wanted = np.unique(np.random.default_rng(count).integers(0, expected.size, count))
    asked: list[int] = []

    def inputs(number: int, where: Any) -> np.ndarray:
        asked.append(X.size if where is None else len(where))
        return X.ravel() if where is None else X.ravel()[where]

    interpreter = jax_interpreter.JaxprInterpreter(get_backend("jax"))
    (found,) = jax_sample.sampled(program, interpreter, inputs, [wanted])
    np.testing.assert_allclose(found, expected[wanted], rtol=1e-5 if name == "dtypes" else 1e-12, atol=1e-12)
    if name in ("stencil", "pads", "interior", "moved", "convolved", "input", "scalar") and count == 1:
        assert asked[0] <= 20  # not the whole input


def test_outputs_and_constants() -> None:
    program = jax.make_jaxpr(lambda x: (x[0] * 2, x[1][::-1], jnp.ones(3)))([np.zeros(50), np.zeros(60)])
    x = [rng.standard_normal(50), rng.standard_normal(60)]
    interpreter = jax_interpreter.JaxprInterpreter(get_backend("jax"))
    wanted = [np.array([3, 4]), np.array([0, 59]), np.array([1])]
    found = jax_sample.sampled(program, interpreter, lambda i, w: x[i] if w is None else x[i][w], wanted)
    for a, b in zip(found, [2 * x[0][3:5], x[1][[59, 0]], [1.0]]):
        np.testing.assert_array_equal(a, b)
