"""Seconds of whole solves, to a relative residual of 1e-10, with many right-hand sides at once or in two precisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from krylix import linear_solve

from .measure import compare, per_call
from .problems import poisson_function, poisson_matrix, right_hand_side
from .settings import Settings, missing
from .table import Row

RTOL = 1e-10
SYSTEMS = 16
Solve = Callable[[], Any]  # -> x


def rows(settings: Settings) -> Iterator[Row]:
    yield from block_rows(settings)
    few = replace(settings, repeats=min(settings.repeats, 3))  # these solves take half a minute each
    yield from mixed_rows(few)
    yield from mixed_rows_jax(few)


def block_rows(settings: Settings) -> Iterator[Row]:
    grid = settings.grid_of_blocks
    A = sp.csr_array(poisson_matrix(grid, "float64"))
    b = np.random.default_rng(0).standard_normal((SYSTEMS, grid * grid))

    def block() -> np.ndarray:
        return linear_solve(A, b, method="block-CG", rtol=RTOL).x

    def one_by_one() -> np.ndarray:
        return np.stack([linear_solve(A, row, method="CG", rtol=RTOL).x for row in b])

    check(lambda x: b - (A @ x.T).T, b, block, one_by_one)
    pair = (per_call(block), per_call(one_by_one))
    what = f"{SYSTEMS} right-hand sides, Poisson {grid}², block-CG, csr_array"
    yield Row(what, f"{SYSTEMS} times CG", compare(*pair, settings.repeats), budget=0.5)


def mixed_rows(settings: Settings) -> Iterator[Row]:
    A, b = poisson_matrix(settings.grid, "float64"), right_hand_side(settings.grid, "float64").ravel()
    for name, matrix in {"dia_array": A, "csr_array": sp.csr_array(A)}.items():
        mixed, plain = (
            lambda matrix=matrix, m=m: linear_solve(matrix, b, method=m, rtol=RTOL).x for m in ("mixed-CG", "CG")
        )
        check(lambda x: b - A @ x, b, mixed, plain)
        pair = (per_call(mixed), per_call(plain))
        yield Row(f"Poisson {settings.grid}², mixed-CG, {name}", "CG in double", compare(*pair, settings.repeats))


def mixed_rows_jax(settings: Settings) -> Iterator[Row]:
    what = f"Poisson {settings.grid}², mixed-CG, JAX function in jit"
    if missing("jax"):
        yield Row(what, "CG in double", missing="jax is not installed")
        return
    import jax
    import jax.numpy as jnp

    laplace = poisson_function(lambda x: jnp.pad(x, 1))
    b = jnp.asarray(right_hand_side(settings.grid, "float64"))

    def solver(method: str) -> Solve:
        program = jax.jit(lambda b: linear_solve(laplace, b, method=method, rtol=RTOL, on_failure="status").x)
        return lambda: program(b).block_until_ready()

    mixed, plain = solver("mixed-CG"), solver("CG")
    check(lambda x: np.asarray(b - laplace(x)), np.asarray(b), mixed, plain)
    yield Row(what, "CG in double", compare(per_call(mixed), per_call(plain), settings.repeats))


def check(residual: Callable[[Any], np.ndarray], b: np.ndarray, *solves: Solve) -> None:
    """Both members have solved what they are timed for."""
    for solve in solves:
        reached = float(np.linalg.norm(residual(solve())) / np.linalg.norm(b))
        if not reached <= 1.1 * RTOL:
            raise RuntimeError(f"a relative residual of {reached:.1e} instead of {RTOL:.1e}")
