"""Solves on eight virtual devices, in a process of their own: `python -m benchmarks.scaling_worker TASK...`.

A task is JSON: a method of `METHODS`, the points along each axis, into how many parts each axis is cut, and how many
solves to time. Prints a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# The repository's root holds sparse/, which is not PyData sparse; the tests count messages by the same module.
sys.path[:] = [str(ROOT / "tests" / "helpers"), *(p for p in sys.path if Path(p or ".").resolve() != ROOT)]

from fast_compilation import FLAGS, virtual_devices  # noqa: E402

DEVICES = 8
TIMED = "--timed" in sys.argv  # with XLA's optimisations; counts are the same without them
os.environ.update(virtual_devices(DEVICES, () if TIMED else FLAGS), JAX_PLATFORMS="cpu")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

from collectives import constants, messages  # noqa: E402
from krylix import linear_solve  # noqa: E402

RTOL = 1e-8
METHODS: dict[str, dict[str, Any]] = {
    "CG + jacobi": {"method": "CG", "preconditioner": "jacobi"},
    "CG-single-reduction + jacobi": {"method": "CG-single-reduction", "preconditioner": "jacobi"},
    "CG + multigrid": {"method": "CG", "preconditioner": "multigrid"},
    "fast-direct": {"method": "fast-direct"},
}

DIRECT = ("fast-direct",)  # whose messages are in no loop of steps


def diffusion(u: Any, conductivities: Sequence[Any]) -> Any:
    """`-div(k grad u)` in units of the cells; k is on the face behind each cell, along each axis.

    Nothing flows through the faces in front of the first cells, and u = 0 behind the last ones.
    """
    total = 0.0
    for axis, k in enumerate(conductivities):
        flow = k * (u - shifted(u, axis, 1))
        total = total + flow - shifted(flow, axis, -1)
    return total


def shifted(u: Any, axis: int, step: int) -> Any:
    """`u[x + step]`, with zeros coming in."""
    widths = [(max(-step, 0), max(step, 0)) if a == axis else (0, 0) for a in range(u.ndim)]
    first = max(step, 0)
    return lax.slice_in_dim(jnp.pad(u, widths), first, first + u.shape[axis], axis=axis)


def conductivities(points: int, dimensions: int) -> list[np.ndarray]:
    """Smooth, between 1/e and e."""
    waves = [np.sin((7 - a) * (np.arange(points) + a) / points) for a in range(dimensions)]
    return [np.exp(reduce(np.multiply.outer, np.roll(waves, axis, 0))) for axis in range(dimensions)]


def counted(method: str, points: int, parts: list[int], timed: int) -> dict[str, Any]:
    """Compile, run and count one solve. Conductivities are arguments of the program, spread as b; or numbers."""
    names = tuple("ijk"[: len(parts)])
    devices = jax.devices()[: int(np.prod(parts))]
    spread = NamedSharding(jax.make_mesh(tuple(parts), names, devices=devices), PartitionSpec(*names))
    whole = [1.0] * len(parts) if method in DIRECT else conductivities(points, len(parts))
    k = [one if method in DIRECT else jax.device_put(one, spread) for one in whole]
    b = jax.device_put(np.random.default_rng(0).normal(size=(points,) * len(parts)), spread)

    @jax.jit
    def solve(b: Any, *k: Any) -> Any:
        def A(u: Any, *k: Any) -> Any:
            return diffusion(u, k or whole)

        result = linear_solve(A, b, args=k, rtol=RTOL, max_iter=10_000, **METHODS[method])
        return result.x, result.iterations

    given = (b, *(() if method in DIRECT else k))
    program = solve.lower(*given).compile()
    x, iterations = program(*given)
    x, b_whole = (jnp.asarray(np.asarray(u)) for u in (x, b))  # on one device
    error = float(jnp.linalg.norm(b_whole - diffusion(x, whole)) / jnp.linalg.norm(b_whole))
    if not error <= 10 * RTOL:
        raise RuntimeError(f"{method} on {parts} left a residual of {error:.1e}")
    memory, text = program.memory_analysis(), program.as_text()
    sizes = [memory.temp_size_in_bytes, memory.argument_size_in_bytes, memory.output_size_in_bytes]
    return {
        "iterations": int(iterations),
        "messages": [[m.kind, m.bytes * m.times, m.times] for m in messages(text) if m.in_step or method in DIRECT],
        "bytes": sum(sizes),
        "constants": sum(constants(text)),
        "seconds": [time_of(program, given) for _ in range(timed)],
    }


def time_of(program: Any, given: Sequence[Any]) -> float:
    start = perf_counter()
    jax.block_until_ready(program(*given))
    return perf_counter() - start


if __name__ == "__main__":
    for task in sys.argv[1:]:
        if task != "--timed":
            print(json.dumps(counted(**json.loads(task))), flush=True)
