"""Systems on grids, the function handed to `linear_solve` and nothing else said, beside pyamg and a fast transform."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.fft import dstn, idstn

from krylix import linear_solve, matrix_from_function

from .measure import compare, per_call
from .settings import Settings, missing
from .table import Row

RTOL = 1e-8


def rows(settings: Settings) -> Iterator[Row]:
    n = settings.grid
    b = np.random.default_rng(0).standard_normal((n, n))
    for name, k in coefficients(n).items():
        yield from of(name, k, b, settings)
    yield transform(b, settings)


def coefficients(n: int) -> dict[str, np.ndarray | None]:
    """Of -div k grad on cells, zero outside; None: constant."""
    rng, x = np.random.default_rng(1), np.linspace(0, 1, n)
    blocks = 10.0 ** np.kron(rng.uniform(-2, 2, (8, 8)), np.ones((n // 8, n // 8)))
    wall = np.ones((n, n))
    wall[n // 4 : n // 4 + max(n // 64, 1), : 3 * n // 4] = 0
    return {
        "constant": None,
        "smooth": 1 + 0.9 * np.outer(np.sin(7 * x), np.cos(5 * x)),
        "blocks of 1e4": blocks,
        "a wall": wall,
    }


def operator(k: np.ndarray | None, xp: Any) -> Callable[[Any], Any]:
    if k is None:

        def constant(u: Any) -> Any:
            p = xp.pad(u, 1)
            return 4 * u - p[2:, 1:-1] - p[:-2, 1:-1] - p[1:-1, 2:] - p[1:-1, :-2]

        return constant
    c = np.pad(k, 1, mode="edge")
    across = 2 * c[1:, 1:-1] * c[:-1, 1:-1] / np.maximum(c[1:, 1:-1] + c[:-1, 1:-1], 1e-300)
    along = 2 * c[1:-1, 1:] * c[1:-1, :-1] / np.maximum(c[1:-1, 1:] + c[1:-1, :-1], 1e-300)

    def diffusion(u: Any) -> Any:
        p = xp.pad(u, 1)
        flow, other = across * (p[1:, 1:-1] - p[:-1, 1:-1]), along * (p[1:-1, 1:] - p[1:-1, :-1])
        return flow[:-1] - flow[1:] + other[:, :-1] - other[:, 1:]

    return diffusion


def of(name: str, k: np.ndarray | None, b: np.ndarray, settings: Settings) -> Iterator[Row]:
    import pyamg

    f = operator(k, np)
    b = np.where(k == 0, 0, b) if k is not None else b
    A = sp.csr_array(matrix_from_function(f, b)[0].to_scipy())
    if k is not None and np.any(k == 0):  # pyamg wants no rows of zeros
        A = sp.csr_array(A + sp.diags_array((k == 0).reshape(-1) * 1.0))

    def theirs() -> np.ndarray:
        solver = pyamg.ruge_stuben_solver(A)
        return solver.solve(b.reshape(-1), tol=RTOL, accel="cg")

    found = linear_solve(f, b, rtol=RTOL)
    with_what = "" if found.preconditioner is None else f" + {found.preconditioner}"
    what = f"{name} {len(b)}²: {found.method}{with_what}, {int(found.iterations)} iterations"
    pair = (per_call(lambda: linear_solve(f, b, rtol=RTOL)), per_call(theirs))
    yield Row(f"{what}, NumPy", "pyamg RS + CG", compare(*pair, settings.repeats), budget=0.25)
    if missing("jax"):
        yield Row(f"{what}, jax.jit", "pyamg RS + CG", missing="jax is not installed")
        return
    import jax
    import jax.numpy as jnp

    g, rhs = operator(k, jnp), jnp.asarray(b)
    solve = jax.jit(lambda b: linear_solve(g, b, rtol=RTOL).x)
    pair = (per_call(lambda: solve(rhs).block_until_ready()), per_call(theirs))
    yield Row(f"{what}, jax.jit, compiled before", "pyamg RS + CG", compare(*pair, settings.repeats), budget=1 / 8)


def transform(b: np.ndarray, settings: Settings) -> Row:
    """The recognised operator, beside a solve by somebody who knows which transform it is."""
    n = len(b)
    waves = 2 - 2 * np.cos(np.pi * np.arange(1, n + 1) / (n + 1))
    values = waves[:, None] + waves

    def theirs() -> np.ndarray:
        return idstn(dstn(b, type=1) / values, type=1)

    f = operator(None, np)
    pair = (per_call(lambda: linear_solve(f, b, rtol=RTOL)), per_call(theirs))
    return Row(f"constant {n}², NumPy", "scipy.fft, which knows it", compare(*pair, settings.repeats), budget=1.5)
