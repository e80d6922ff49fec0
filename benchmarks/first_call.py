"""`python -m benchmarks.first_call CASE GRID`: seconds of one first call in a fresh process, as `compile` runs it.

Processor time of all threads, or, for cases of `jax.jit` on a grid, the time that passes, as XLA uses several cores.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

# The repository's root, whose sparse/ is not PyData sparse, which some peers look for.
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != Path(__file__).resolve().parents[1]]

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import jax.scipy.sparse.linalg as jsl  # noqa: E402
import numpy as np  # noqa: E402

from krylix import linear_solve  # noqa: E402

RTOL = 1e-8


def ring(u: Any) -> Any:
    return 4 * u - jnp.roll(u, 1) - jnp.roll(u, -1)


def diffusion(u: Any, k: Any) -> Any:
    """`-div(k grad u)` with walls around; k at the points."""
    u, k = jnp.pad(u, 1), jnp.pad(k, 1, mode="edge")
    total = 0.0
    for axis in (0, 1):
        for shift in (1, -1):
            between = (k + jnp.roll(k, shift, axis)) / 2
            total = total + between * (u - jnp.roll(u, shift, axis))
    return total[1:-1, 1:-1]


def coefficients(grid: int, name: str) -> np.ndarray:
    y, x = np.mgrid[0:grid, 0:grid] / grid
    return np.ones_like(x) if name == "constant" else 1 + 0.9 * np.sin(6 * x) * np.cos(5 * y)


def compiling(solve: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Trace to compiled, no run."""
    return lambda b: jax.jit(solve).trace(b).lower().compile()


def lineax(method: str) -> Callable[[Any], Any]:
    import lineax as lx

    def solve(b: Any) -> Any:
        tags = lx.positive_semidefinite_tag if method == "CG" else ()
        operator = lx.FunctionLinearOperator(ring, jax.ShapeDtypeStruct(b.shape, b.dtype), tags)
        return lx.linear_solve(operator, b, getattr(lx, method)(RTOL, 0.0), throw=False).value

    return solve


def dense(solve: Callable[[Any, Any], Any], what: str) -> tuple[Callable[[Any], Any], Any]:
    """Compile a dense solve with an unknown matrix, or the gradient of one, of 64 unknowns."""
    rng = np.random.default_rng(1)
    given = jnp.asarray(rng.standard_normal((64, 64)) + 64 * np.eye(64)), jnp.asarray(rng.standard_normal(64))
    call = lambda given: solve(*given)  # noqa: E731
    return compiling(jax.grad(lambda given: (call(given) ** 2).sum()) if "gradient" in what else call), given


def lineax_lu(A: Any, b: Any) -> Any:
    import lineax as lx

    return lx.linear_solve(lx.MatrixLinearOperator(A), b, lx.LU()).value


def case(name: str, grid: int) -> tuple[Callable[[Any], Any], Any]:
    """What is measured, and its argument."""
    kind, _, what = name.partition(":")
    on_grid = jnp.asarray(np.random.default_rng(1).standard_normal((grid, grid)))
    on_ring = jnp.asarray(np.random.default_rng(1).standard_normal(64))
    k = coefficients(grid, what)
    if what.startswith("LU"):
        return dense(lineax_lu if kind == "lineax" else lambda A, b: linear_solve(A, b).x, what)
    if kind == "compile":
        settings: dict[str, Any] = {"rtol": RTOL, "on_failure": "status"} if what == "CG" else {"rtol": RTOL}
        return compiling(lambda b: linear_solve(ring, b, method=what, **settings).x), on_ring
    if kind == "lineax":
        return compiling(lineax(what)), on_ring
    if kind == "jax.scipy":
        return compiling(lambda b: jsl.cg(ring, b, tol=RTOL)[0]), on_ring
    if kind == "eager":
        if what == "CG":
            return lambda b: linear_solve(ring, b, method="CG").x, on_ring
        return lambda b: linear_solve(lambda u: diffusion(u, k), b).x, on_grid
    if kind == "eager jax.scipy":
        return lambda b: jsl.cg(ring, b, tol=RTOL)[0], on_ring
    if kind == "known":
        return jax.jit(lambda b: linear_solve(lambda u: diffusion(u, k), b).x), on_grid
    traced = lambda k, b: linear_solve(lambda u: diffusion(u, k), b).x  # noqa: E731
    if kind == "traced":
        return jax.jit(lambda kb: traced(*kb)), (jnp.asarray(k), on_grid)
    if kind == "gradient":
        return jax.jit(jax.grad(lambda kb: (traced(*kb) ** 2).sum())), (jnp.asarray(k), on_grid)
    raise ValueError(f"No case is called {name!r}.")


def main(name: str, grid: int) -> None:
    call, argument = case(name, grid)
    jax.block_until_ready(jax.jit(lambda x: jnp.linalg.norm(x) * 2)(jnp.ones(64)))  # XLA itself starts
    jax.block_until_ready(argument)
    clock = perf_counter if name.startswith(("known", "traced", "gradient")) else process_time
    start = clock()
    jax.block_until_ready(call(argument)) if not name.startswith(("compile", "lineax", "jax.scipy")) else call(argument)
    print(clock() - start)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
