"""Solves with `over=` inside `jax.shard_map` on four virtual devices, in a process of their own.

Prints a line of JSON for each case: what differs from NumPy's dense answer, and what devices tell each other.
Arguments: names of cases; without any, all of them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from fast_compilation import virtual_devices

os.environ.update(virtual_devices(4))

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

from collectives import collectives
from cut_problem import FULL, WEIGHTS, N, dense, periodic, star
from krylix import linear_solve, prepare

AXES = ("i", "j")
CUT = PartitionSpec(*AXES)
MESH = jax.make_mesh((2, 2), AXES)
SOLVE = {"over": AXES, "rtol": 1e-10, "on_failure": "status"}
METHODS = (
    "CG", "CG-adaptive", "CG-single-reduction", "block-CG", "COCR", "biCG-stab", "biCG-stab(2)", "biCG-stab(4)",
    "GMRES", "FGMRES", "IDR(4)", "MINRES", "LSMR", "CGLS", "mixed-CG", "mixed-biCG-stab(2)", "auto",
)  # fmt: skip
b = jax.device_put(FULL, NamedSharding(MESH, CUT))
weights = jax.device_put(WEIGHTS, NamedSharding(MESH, CUT))


def neighbours(u: Any, axis: int, ring: bool) -> Any:
    """u with a row of each neighbour along an axis of the grid; zeros beyond the ends."""
    last = u.shape[axis] - 1
    around = ((1, 0),) if ring else ()
    before = lax.ppermute(lax.slice_in_dim(u, last, None, axis=axis), AXES[axis], [(0, 1), *around])
    after = lax.ppermute(lax.slice_in_dim(u, 0, 1, axis=axis), AXES[axis], [(1, 0), *((0, 1) for _ in around)])
    return jnp.concatenate([before, u, after], axis)


def star_here(u: Any, centre: Any = 4.2, ring: bool = False) -> Any:
    v, w = neighbours(u, 0, ring), neighbours(u, 1, ring)
    return centre * u - v[2:] - v[:-2] - w[:, 2:] - w[:, :-2]


def line_here(u: Any) -> Any:
    """Systems along j, one in each column, that differ from device to device."""
    v = neighbours(u, 0, False)
    return (2.1 + lax.axis_index("j")) * u - v[2:] - v[:-2]


def mapped(function: Callable[..., Any], out: Any = CUT, check: bool = True, ins: Any = CUT) -> Callable[..., Any]:
    return jax.shard_map(function, mesh=MESH, in_specs=ins, out_specs=out, check_vma=check)


def error(x: Any, expected: np.ndarray) -> float:
    return float(np.abs(np.asarray(x) - expected).max() / np.abs(expected).max())


def solved(A: np.ndarray, right: np.ndarray = FULL) -> np.ndarray:
    return np.linalg.lstsq(A, right.reshape(-1, N * N).T, rcond=1e-12)[0].T.reshape(right.shape)


Case = tuple[str, Callable[[], dict[str, Any]]]


def each_method() -> Iterator[Case]:
    for method in METHODS:
        yield method, partial(of_method, method, True)
    for method in ("CG", "GMRES"):
        yield f"{method} without types", partial(of_method, method, False)


def of_method(method: str, check: bool) -> dict[str, Any]:
    def solve(b: Any) -> Any:
        found = linear_solve(star_here, b, method=method, **SOLVE)
        return found.x, found.converged, found.iterations

    function = mapped(solve, (CUT, PartitionSpec(), PartitionSpec()), check)
    program = jax.jit(function).lower(b).compile()
    x, converged, _ = program(b)
    step, rest = collectives(program.as_text())
    spread = x.sharding.is_equivalent_to(b.sharding, 2)
    found = {"error": error(x, solved(dense(star))), "converged": bool(converged), "spread": spread}
    return {"step": step, "rest": rest, **found}


def settings() -> Iterator[Case]:
    exact, right = solved(dense(star)), FULL - FULL.mean()
    balanced = jax.device_put(right, b.sharding)
    null = solved(dense(periodic), right)
    many, three = np.stack([FULL, 0 * FULL, 3 * FULL]), PartitionSpec(None, *AXES)
    spread = jax.device_put(many, NamedSharding(MESH, three))
    each = np.stack([exact, 0 * exact, 3 * exact])
    ring = partial(star_here, centre=4.0, ring=True)
    cg = partial(linear_solve, method="CG", **SOLVE)
    cocr = partial(linear_solve, method="COCR", **SOLVE)

    def case(name: str, solve: Any, expected: np.ndarray, given: Any = b, spec: Any = CUT, jit: bool = True) -> Case:
        function = mapped(solve, spec, ins=spec)
        return name, lambda: {"error": error((jax.jit(function) if jit else function)(given), expected)}

    yield case("eager", lambda b: cg(star_here, b).x, exact, jit=False)
    yield case("function as M", lambda b: cg(star_here, b, preconditioner=lambda r: r / 4).x, exact)
    yield case("chebyshev", lambda b: cg(star_here, b, preconditioner="chebyshev").x, exact)
    yield case("constant", lambda b: cg(ring, b, nullspace="constant").x, null, balanced)
    yield case("null vectors", lambda b: cg(ring, b, nullspace=jnp.ones((1, *b.shape))).x, null, balanced)
    yield case("affine", lambda b: cg(lambda u: star_here(u) + 1.0, b).x, solved(dense(star), FULL - 1))
    complex_ = solved(dense(star) + 0.5j * np.eye(N * N))
    yield case("complex", lambda b: cocr(lambda u: star_here(u) + 0.5j * u, b + 0j).x, complex_)
    yield case("batch", lambda b: cg(jax.vmap(star_here), b, batch_ndim=1).x, each, spread, three)
    yield case("vmap", jax.vmap(lambda b: cg(star_here, b).x), each, spread, three)
    start = {"max_iter": [5, 200], "history": True}
    yield case("start and limits", lambda b: cg(star_here, b, x0=b, **start).x[1], exact)
    yield case("prepared", lambda b: prepare(star_here, b, method="MINRES", **SOLVE).solve(2 * b).x, 2 * exact)
    lines = [lines_of(2.1), lines_of(3.1)]
    expected = np.stack([np.linalg.solve(lines[c >= N // 2], FULL[:, c]) for c in range(N)], 1)
    for method in ("CG", "GMRES(5)"):
        one = {**SOLVE, "over": "i", "method": method}
        yield case(f"one axis, {method}", lambda b, one=one: linear_solve(line_here, b, **one).x, expected)


def lines_of(centre: float) -> np.ndarray:
    return centre * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1)


def derivatives() -> Iterator[Case]:
    def solve(b: Any, weights: Any) -> Any:
        return linear_solve(lambda u: star_here(u) + weights * u, b, method="CG", over=AXES, rtol=1e-12).x

    def whole(b: Any, weights: Any) -> Any:
        A = jnp.asarray(dense(star)) + jnp.diag(weights.ravel())
        return jnp.sum(jnp.linalg.solve(A, b.ravel()) ** 3)

    def inside(b: Any, weights: Any) -> Any:
        return jax.grad(lambda *given: lax.psum(jnp.sum(solve(*given) ** 3), AXES), (0, 1))(b, weights)

    def outside(check: bool) -> Callable[..., Any]:
        return jax.grad(lambda *given: jnp.sum(mapped(solve, check=check)(*given) ** 3), (0, 1))

    def compared(function: Callable[..., Any]) -> dict[str, Any]:
        expected = jax.jit(jax.grad(whole, (0, 1)))(FULL, WEIGHTS)
        return {"error": max(map(error, jax.jit(function)(b, weights), expected))}

    def second() -> dict[str, Any]:
        twice = jax.jit(lambda b, v: jax.jvp(lambda b: jax.grad(whole)(b, v), (b,), (v,))[1])(FULL, WEIGHTS)
        found = jax.jit(lambda b, v: jax.jvp(lambda b: outside(True)(b, v)[0], (b,), (v,))[1])(b, weights)
        return {"error": error(found, twice)}

    yield "gradient outside", lambda: compared(outside(True))
    yield "gradient outside without types", lambda: compared(outside(False))
    yield "gradient inside", lambda: compared(mapped(inside))
    yield "second derivative", second


def failures() -> Iterator[Case]:
    def with_nan(b: Any) -> Any:
        return b.at[0, 0].set(jnp.where(lax.axis_index("i") == 0, jnp.nan, b[0, 0]))

    settings = {"over": AXES, "rtol": 1e-10, "method": "CG"}
    solves = {
        "limit": lambda b: linear_solve(star_here, b, max_iter=3, **settings).x,
        "nan in a part": lambda b: linear_solve(star_here, with_nan(b), **settings).x,
        "unknown axis": lambda b: linear_solve(star_here, b, **{**settings, "over": "k"}).x,
        "no axis": lambda b: linear_solve(star_here, b, **{**settings, "over": 3}).x,
        "direct": lambda b: linear_solve(star_here, b, **{**settings, "method": "direct"}).x,
        "ilu": lambda b: linear_solve(star_here, b, preconditioner="ilu", **settings).x,
        "matrix": lambda b: linear_solve(np.eye(b.size), b.ravel(), **settings).x.reshape(b.shape),
        "callback": lambda b: linear_solve(star_here, b, callback=print, **settings).x,
    }
    for name, solve in solves.items():
        yield name, partial(said_by, lambda solve=solve: jax.jit(mapped(solve))(b))
    yield "outside", lambda: said_by(lambda: linear_solve(star, b, **settings))
    yield "status", lambda: of_status(jax.jit(mapped(lambda b: told(with_nan(b)), PartitionSpec()))(b))


def of_status(found: Any) -> dict[str, str]:
    return {"raised": "", "message": f"{int(found[0])} {float(found[1])}"}


def told(b: Any) -> Any:
    found = linear_solve(star_here, b, **{**SOLVE, "method": "CG"})
    return found.status, found.residual_norm


def said_by(run: Callable[[], Any]) -> dict[str, str]:
    try:
        jax.block_until_ready(run())
        jax.effects_barrier()
    except Exception as raised:
        return {"raised": type(raised).__name__, "message": str(raised)}
    return {"raised": "", "message": ""}


CASES = dict(case for group in (each_method, settings, derivatives, failures) for case in group())

if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        print(json.dumps({"name": name, **CASES[name]()}), flush=True)
