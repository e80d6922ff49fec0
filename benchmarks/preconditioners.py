"""Preconditioners: seconds of set-up, of one application and of whole solves, beside those of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import cg, splu

from krylix import as_operator, linear_solve, preconditioner, prepare

from .measure import compare, per_call
from .problems import convection_step, poisson_matrix, right_hand_side
from .settings import Settings, missing
from .stencils import mesh
from .table import Row

RTOL = 1e-8
_SMALLEST = 20  # unknowns of the coarsest level where everything is tiny


def rows(settings: Settings) -> Iterator[Row]:
    yield from amg_rows(settings)
    yield from ilu_rows(settings)
    yield factors_many_times(settings)


def amg_rows(settings: Settings) -> Iterator[Row]:
    """Smoothed aggregation, beside pyamg's own with its defaults: symmetric Gauss-Seidel."""
    for what, A in amg_problems(settings).items():
        yield from amg_of(what, A, settings)
    yield from amg_solves(replace(settings, repeats=min(settings.repeats, 3)))


def amg_problems(settings: Settings) -> dict[str, sp.csr_array]:
    k, points = settings.grid_to_tolerance, min(settings.grid_in_3d, 40)
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(points, points))
    identity, plane = sp.eye_array(points), sp.csr_array(poisson_matrix(points, "float64"))
    box = sp.kron(line, sp.eye_array(points * points)) + sp.kron(identity, plane)
    found = {
        f"Poisson {k}²": poisson_matrix(k, "float64"),
        f"Poisson {points}³": box,
        "triangles": of_edges(mesh(settings.nodes), settings.nodes),
    }
    return {name: sp.csr_array(A) for name, A in found.items()}


def of_edges(edges: np.ndarray, nodes: int) -> sp.csr_array:
    """The Laplacian of a graph, with a hundredth of the identity."""
    ones = sp.coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), (nodes, nodes))
    couplings = ones + ones.T
    return sp.csr_array(sp.diags_array(couplings.sum(axis=1) + 0.01) - couplings)


def amg_of(what: str, A: sp.csr_array, settings: Settings) -> Iterator[Row]:
    """Set-up, one cycle in NumPy and in jax.jit, and new numbers for the pattern inside of jax.jit."""
    import pyamg

    n, repeats = A.shape[0], settings.repeats
    options: dict[str, Any] = {} if n > 1000 else {"max_coarse": _SMALLEST}
    what = f"amg, {what}, {n} unknowns"

    def theirs() -> Any:
        return pyamg.smoothed_aggregation_solver(A)

    def made(like: Any = None) -> Any:
        return preconditioner(A, "amg", like=like, **options)

    cycle, r = theirs().aspreconditioner(), np.random.default_rng(0).standard_normal(n)
    M = made()
    setup = per_call(theirs)
    yield Row(f"{what}: set-up, NumPy", "pyamg", compare(per_call(made), setup, repeats), budget=1.5)
    pair = (per_call(lambda: M @ r, 5), per_call(lambda: cycle @ r, 5))
    yield Row(f"{what}: cycle, NumPy", "pyamg", compare(*pair, repeats), budget=1 / 1.5)
    if missing("jax"):
        yield Row(f"{what}: cycle, jax.jit", "pyamg", missing="jax is not installed")
        return
    yield from amg_in_jit(what, A, r, cycle, theirs, made, options, settings)


def amg_in_jit(
    what: str,
    A: sp.csr_array,
    r: np.ndarray,
    cycle: Any,
    theirs: Callable[[], Any],
    made: Callable[..., Any],
    options: dict[str, Any],
    settings: Settings,
) -> Iterator[Row]:
    import jax
    import jax.numpy as jnp

    repeats, like = settings.repeats, jnp.asarray(r)
    pair = (per_call(lambda: made(like)), per_call(theirs))
    yield Row(f"{what}: set-up for JAX", "pyamg", compare(*pair, repeats), budget=1.5)
    M, apply = made(like), jax.jit(lambda M, r: M @ r)
    compiled = per_call(lambda: jax.jit(lambda M, r: M @ r).lower(M, like).compile())
    yield Row(f"{what}: compiling a cycle", "nothing", compare(compiled, lambda: 0.0, 1), budget_seconds=3.0)
    pair = (per_call(lambda: apply(M, like).block_until_ready(), 5), per_call(lambda: cycle @ r, 5))
    yield Row(f"{what}: cycle, jax.jit", "pyamg", compare(*pair, repeats), budget=1 / 3)
    pattern = as_operator(A, like)
    renew = jax.jit(lambda values: preconditioner(pattern.with_values(values), "amg", **options))
    values = pattern.values
    pair = (per_call(lambda: jax.block_until_ready(jax.tree.leaves(renew(values)))), per_call(theirs))
    yield Row(f"{what}: new numbers, jax.jit", "pyamg's set-up", compare(*pair, repeats), budget=1.0)


def amg_solves(settings: Settings) -> Iterator[Row]:
    """CG with one cycle a step, to 1e-8, without set-up."""
    import pyamg

    k = settings.grid
    A, b = sp.csr_array(poisson_matrix(k, "float64")), right_hand_side(k, "float64").ravel()
    cycle = pyamg.smoothed_aggregation_solver(A).aspreconditioner()

    def theirs() -> np.ndarray:
        return cg(A, b, rtol=RTOL, M=cycle)[0]

    def ours(A: Any, M: Any, b: Any) -> Any:
        return linear_solve(A, b, method="CG", preconditioner=M, rtol=RTOL).x

    options: dict[str, Any] = {} if k > 100 else {"max_coarse": _SMALLEST}
    what = f"amg-CG, Poisson {k}²"
    M = preconditioner(A, "amg", **options)
    pair = (per_call(lambda: ours(A, M, b)), per_call(theirs))
    yield Row(f"{what}, NumPy", "scipy cg with pyamg", compare(*pair, settings.repeats), budget=0.7)
    if missing("jax"):
        yield Row(f"{what}, jax.jit", "scipy cg with pyamg", missing="jax is not installed")
        return
    import jax
    import jax.numpy as jnp

    like = jnp.asarray(b)
    solve = jax.jit(ours)
    arguments = as_operator(A, like), preconditioner(A, "amg", like=like, **options), like
    pair = (per_call(lambda: solve(*arguments).block_until_ready()), per_call(theirs))
    yield Row(f"{what}, jax.jit", "scipy cg with pyamg", compare(*pair, settings.repeats), budget=0.7)


def ilu_rows(settings: Settings) -> Iterator[Row]:
    """Implicit steps of convection, in jax.jit where there is JAX, beside the same method without a preconditioner."""
    grid = min(settings.grid_to_tolerance, 300)
    for courant in (10, 50, 200):
        A = convection_step(grid, courant)
        b = np.random.default_rng(0).standard_normal(grid * grid)
        M = preconditioner(A, "ilu")
        pair = (_steps(A, b, M), _steps(A, b, None))
        what = f"ilu, convection {grid}², Courant number {courant}: biCG-stab"
        yield Row(what, "no preconditioner", compare(*pair, settings.repeats), budget=0.75)


def _steps(A: sp.csr_array, b: np.ndarray, M: Any) -> Callable[[], float]:
    if missing("jax"):
        return per_call(lambda: linear_solve(A, b, method="biCG-stab", preconditioner=M, rtol=RTOL).x)
    import jax
    import jax.numpy as jnp

    right = jnp.asarray(b)
    M = None if M is None else M.to("jax", right)
    matrix = as_operator(A, right)
    solve = jax.jit(lambda A, M, b: linear_solve(A, b, method="biCG-stab", preconditioner=M, rtol=RTOL).x)
    return per_call(lambda: solve(matrix, M, right).block_until_ready())


def factors_many_times(settings: Settings) -> Row:
    """82 right-hand sides one after the other, as eigenvalue methods ask for them."""
    A, rows = sp.csr_array(poisson_matrix(97, "float64")), np.random.default_rng(0).standard_normal((82, 97 * 97))

    def ours() -> None:
        solver = prepare(A, rows[0])
        for b in rows:
            solver.solve(b)

    def theirs() -> None:
        factors = splu(sp.csc_array(A))
        for b in rows:
            factors.solve(b)

    pair = (per_call(ours), per_call(theirs))
    return Row("prepare and 82 solves, 9409 unknowns", "SuperLU", compare(*pair, settings.repeats), budget=1.1)
