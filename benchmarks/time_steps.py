"""Seconds of several implicit time steps with one matrix: prepared once, beside solving from scratch and SciPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp
import scipy.sparse.linalg as spl

from krylix import linear_solve, prepare

from .measure import compare, per_call
from .problems import poisson_matrix
from .settings import Settings, missing
from .table import Row

STEPS = 20
Step = Callable[[Any], Any]


def rows(settings: Settings) -> Iterator[Row]:
    grid = settings.grid_of_blocks
    heat = sp.csc_array(sp.eye_array(grid * grid) + 0.1 * poisson_matrix(grid, "float64"))
    yield from direct_rows(settings, heat, grid)
    yield from krylov_rows(settings, sp.csr_array(heat), grid)
    yield from jax_rows(settings)


def direct_rows(settings: Settings, heat: Any, grid: int) -> Iterator[Row]:
    what = f"{STEPS} heat steps {grid}², scipy-direct, prepare included"
    b = np.ones(grid * grid)

    def prepared() -> Step:
        solver = prepare(heat, b, method="scipy-direct")
        return lambda u: solver.solve(u).x

    def scipy() -> Step:
        return spl.factorized(heat)

    krylix = steps(prepared, b)

    def scratch() -> Step:
        return lambda u: linear_solve(heat, u, method="scipy-direct").x

    yield Row(what, "linear_solve in each step", compare(krylix, steps(scratch, b), settings.repeats))
    yield Row(what, "scipy factorized", compare(krylix, steps(scipy, b), settings.repeats))


def krylov_rows(settings: Settings, heat: Any, grid: int) -> Iterator[Row]:
    b = np.random.default_rng(0).standard_normal(grid * grid)

    def prepared() -> Step:
        solver = prepare(heat, b, method="CG")
        return lambda u: solver.solve(u, x0=u).x

    def scratch() -> Step:
        return lambda u: linear_solve(heat, u, x0=u, method="CG", preconditioner="jacobi").x

    what = f"{STEPS} heat steps {grid}², CG with Jacobi"
    yield Row(what, "linear_solve in each step", compare(steps(prepared, b), steps(scratch, b), settings.repeats))


def jax_rows(settings: Settings) -> Iterator[Row]:
    n = min(500, settings.grid_of_blocks**2)
    what = f"{STEPS} steps in lax.scan, dense n = {n}, direct, JAX"
    if missing("jax"):
        yield Row(what, "linear_solve in each step", missing="jax is not installed")
        return
    import jax
    import jax.numpy as jnp

    A = jnp.asarray(np.random.default_rng(0).standard_normal((n, n)) / np.sqrt(n) + 3 * np.eye(n))
    b = jnp.ones(n)

    def program(step: Callable[[Any, Any], Any]) -> Callable[[], Any]:
        compiled = jax.jit(lambda A, b: jax.lax.scan(lambda u, _: (step(A, u), None), b, None, length=STEPS)[0])
        return lambda: compiled(A, b).block_until_ready()

    solver = prepare(A, b, method="direct")
    pair = (program(lambda A, u: solver.solve(u).x), program(lambda A, u: linear_solve(A, u, method="direct").x))
    yield Row(what, "linear_solve in each step", compare(*map(per_call, pair), settings.repeats))


def steps(make: Callable[[], Step], u: np.ndarray) -> Callable[[], float]:
    """Seconds of setting up and `STEPS` steps."""

    def run() -> np.ndarray:
        step, v = make(), u
        for _ in range(STEPS):
            v = step(v)
        return v

    return per_call(run)
