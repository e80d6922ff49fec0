"""Solves with grids that are spread over four virtual devices, in a process of their own.

Prints a line of JSON for each: collectives in a step and outside of steps, whether x is spread as b is, and the error
beside a dense solve. Arguments: names of solves; without any, all of them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from fast_compilation import FLAGS

os.environ.update(JAX_ENABLE_X64="1", XLA_FLAGS=" ".join((*FLAGS, "--xla_force_host_platform_device_count=4")))

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from collectives import collectives
from krylix import linear_solve
from krylix.sparse import Stencil

N, SYSTEMS = 16, 8
AXES = {"rows": (4, 1), "columns": (1, 4), "both": (2, 2)}
STAR = {(0, 0): 4.1, (-1, 0): -1.0, (1, 0): -1.0, (0, -1): -1.0, (0, 1): -1.0}


def shifted(u: Any, shift: tuple[int, int]) -> Any:
    widths = [(0, 0)] * (u.ndim - 2) + [(-s, s) for s in shift]
    return lax.pad(u, jnp.zeros((), u.dtype), [(*w, 0) for w in widths])


def star(u: Any, coefficients: Any = STAR) -> Any:
    return sum(c * shifted(u, shift) for shift, c in coefficients.items())


def periodic(u: Any) -> Any:
    return 4 * u - sum(jnp.roll(u, s, axis) for s in (1, -1) for axis in (-1, -2))


def dense(function: Callable[[Any], Any]) -> np.ndarray:
    columns = np.eye(N * N).reshape(N * N, N, N)
    return np.asarray(jax.vmap(function)(columns)).reshape(N * N, N * N).T


class Solve(NamedTuple):
    """`solve(b)` with b spread by `spec` over the mesh, and what NumPy finds."""

    mesh: str
    spec: tuple[str | None, ...]
    b: np.ndarray
    solve: Callable[[Any], Any]
    expected: np.ndarray


def solves() -> Iterator[tuple[str, Solve]]:
    grid = np.random.default_rng(0).normal(size=(N, N))
    balanced = grid - grid.mean()
    many = np.random.default_rng(1).normal(size=(SYSTEMS, N, N))

    def exact(function: Any, b: np.ndarray) -> np.ndarray:
        return np.linalg.lstsq(dense(function), b.reshape(-1, N * N).T)[0].T.reshape(b.shape)

    def solve(b: Any, A: Any = star, method: str = "CG", **settings: Any) -> Any:
        return linear_solve(A, b, method=method, rtol=1e-10, **settings).x

    def energy(b: Any) -> Any:
        return 0.5 * jnp.sum(solve(b) ** 2)

    for mesh in AXES:
        yield f"CG, {mesh}", Solve(mesh, ("i", "j"), grid, solve, exact(star, grid))
    rows = {"mesh": "rows", "spec": ("i",), "b": grid.ravel(), "expected": exact(star, grid).ravel()}
    stencil = Stencil(list(STAR.values()), list(STAR), (N, N))
    yield "stencil, rows", Solve(solve=partial(solve, A=stencil), **rows)
    yield "diagonals of numbers, rows", Solve(solve=partial(solve, A=stencil.to("dia")), **rows)
    arrays = [c + 0.2 * grid**2 if c > 0 else np.full((N, N), c) for c in STAR.values()]

    def varying(u: Any) -> Any:
        return star(u) + 0.2 * grid**2 * u

    stencil_of_arrays = Stencil(arrays, list(STAR), (N, N))
    one = Solve(**{**rows, "expected": exact(varying, grid).ravel()}, solve=partial(solve, A=stencil_of_arrays))
    yield "stencil of arrays, rows", one
    diagonals = partial(solve, A=stencil_of_arrays.to("dia"))
    yield "diagonals, rows", one._replace(solve=diagonals)
    yield "GMRES with diagonals, rows", one._replace(solve=partial(diagonals, method="GMRES(9)"))
    wrapped = dict.fromkeys([(-1, 0), (1, 0), (0, -1), (0, 1), (N - 1, 0), (1 - N, 0), (0, N - 1), (0, 1 - N)], -0.9)
    periodic_stencil = Stencil([4.0, *wrapped.values()], [(0, 0), *wrapped], (N, N))
    one = Solve(solve=partial(solve, A=periodic_stencil), **rows)
    yield "periodic stencil, rows", one._replace(expected=exact(lambda u: 0.9 * periodic(u) + 0.4 * u, grid).ravel())
    flat = {"mesh": "both", "spec": ("i", "j"), "b": grid, "expected": exact(star, grid)}
    yield "stencil, both", Solve(solve=lambda b: solve(b.reshape(-1), A=stencil).reshape(N, N), **flat)
    for method in ("biCG-stab(2)", "MINRES", "mixed-CG", "FGMRES(9)", "IDR(4)"):
        yield f"{method}, both", Solve(solve=partial(solve, method=method), **flat)
    yield "jacobi, both", Solve(solve=partial(solve, preconditioner="jacobi", x0=np.ones((N, N))), **flat)
    yield "a function as M, both", Solve(solve=partial(solve, preconditioner=lambda r: r / 4), **flat)
    weights = 1 + grid**2

    def weighted(b: Any) -> Any:  # not known when it is compiled
        return solve(b, lambda u: star(u) + (1 + b**2) * u + 1, x0=b)

    expected = exact(lambda u: star(u) + weights * u, grid - 1)
    yield "traced coefficients, both", Solve("both", ("i", "j"), grid, weighted, expected)
    yield "null space, both", Solve("both", ("i", "j"), balanced, partial(solve, A=periodic), exact(periodic, balanced))
    twice = exact(star, exact(star, grid))

    def of_two(b: Any) -> Any:
        return solve({"a": b, "b": 2 * b}, lambda u: {"a": star(u["a"]), "b": 2 * u["b"]})["a"]

    yield "container, both", Solve(solve=of_two, **flat)
    yield "ssor, both", Solve(solve=partial(solve, preconditioner="ssor"), **flat)
    yield "several limits, both", Solve(solve=lambda b: solve(b, max_iter=[50, 500])[1], **flat)
    for mesh in ("rows", "both"):
        yield f"gradient, {mesh}", Solve(mesh, ("i", "j"), grid, jax.grad(energy), twice)
    batch = {"b": many, "solve": partial(solve, batch_ndim=1), "expected": exact(star, many)}
    yield "batch, systems", Solve("rows", ("i", None, None), **batch)
    yield "batch, rows", Solve("rows", (None, "i", None), **batch)
    yield "batch, systems and columns", Solve("both", ("i", None, "j"), **batch)


def look(one: Solve) -> dict[str, Any]:
    mesh = Mesh(np.array(jax.devices()).reshape(AXES[one.mesh]), ("i", "j"))
    b = jax.device_put(one.b, NamedSharding(mesh, PartitionSpec(*one.spec)))
    program = jax.jit(one.solve).lower(b).compile()
    x = program(b)
    error = float(np.abs(np.asarray(x) - one.expected).max() / np.abs(one.expected).max())
    step, rest = collectives(program.as_text())
    return {"step": step, "rest": rest, "spread": x.sharding.is_equivalent_to(b.sharding, b.ndim), "error": error}


if __name__ == "__main__":
    for name, one in solves():
        if len(sys.argv) == 1 or name in sys.argv[1:]:
            print(json.dumps({"name": name, **look(one)}), flush=True)
