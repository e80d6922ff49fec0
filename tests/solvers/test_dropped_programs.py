"""Programs of JAX that nobody can call any more while they still run: what they ask of the host is still there."""

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from frameworks import lazy
from krylix import linear_solve

jax = lazy("jax")
jnp = lazy("jax.numpy")

N = 40
RNG = np.random.default_rng(0)
CONDUCTIVITY, SCALE = RNG.uniform(1, 2, N - 1), RNG.uniform(1, 2, N)


def late(b: Any) -> Any:
    """b, after a tenth of a second, in which what is garbage has long been collected."""
    start = jnp.ones((300, 300)) / 300 + 0 * b[0]
    M = jax.lax.fori_loop(0, 30, lambda i, M: 0.5 * (M @ M) + 0.1 * jnp.sin(M), start)
    return b + 1e-300 * M[0, 0]


def line(k: Any, d: Any) -> Callable[[Any], Any]:
    """Diffusion along a line with walls, in other units at each point: one null vector."""

    def apply(u: Any) -> Any:
        v = u * d
        flux = k * (v[1:] - v[:-1])
        return (jnp.pad(flux, (1, 0)) - jnp.pad(flux, (0, 1))) * d

    return apply


def dropped(solve: Callable[..., Any], *arrays: Any) -> Any:
    """What a program finds that was let go of when it had begun."""
    gc.freeze()  # what was there before is no part of it, and takes long to look through
    found = jax.jit(lambda *arrays: solve(*arrays))(*arrays)
    gc.collect()
    gc.unfreeze()
    return found


def test_null_vectors() -> None:
    k, d = CONDUCTIVITY, SCALE
    differences = np.diff(np.eye(N) * d, axis=0)
    matrix = differences.T * k @ differences
    b = matrix @ RNG.normal(size=N)
    x = dropped(lambda k, d, b: linear_solve(line(k, d), late(b), method="banded-direct").x, k, d, b)
    np.testing.assert_allclose(x, np.linalg.pinv(matrix, rcond=1e-12) @ np.asarray(b), rtol=1e-7, atol=1e-9)


def test_messages() -> None:
    b = np.cos(np.arange(8.0))
    with pytest.raises(RuntimeError, match=r"CG reached the limit of iterations after 2 iterations: residual norm \d"):
        np.asarray(dropped(lambda b: linear_solve(lambda u: 3 * u - jnp.roll(u, 1) - jnp.roll(u, -1) / 2, late(b),
                                                  method="CG", max_iter=2).x, b))  # fmt: skip
