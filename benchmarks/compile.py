"""Seconds of first calls in fresh processes: tracing, compiling and, but beside lineax and jax.scipy, running."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .measure import Comparison, Sampler, compare
from .settings import Settings, missing
from .table import Row

ROOT = Path(__file__).resolve().parents[1]
COMPILED = (
    ("CG", "lineax", 1.6),
    ("CG", "jax.scipy", None),
    ("GMRES", "lineax", 1.7),
    ("LU", "lineax", 2.3),
    ("LU and its gradient", "lineax", 2.5),
)
EAGER = (("CG", 0.15), ("constant", 0.3), ("smooth", 0.6))  # seconds
# Of which grid, a part of `Settings.grid`; seconds of the first process.
ON_GRIDS = (
    ("known:constant", 1, 1.5),
    ("known:smooth", 1, 3.5),
    ("traced:smooth", 2, 4.0),
    ("gradient:smooth", 2, 7.0),
)
SECOND_PROCESS = 0.7  # seconds


def rows(settings: Settings) -> Iterator[Row]:
    if missing("jax"):
        yield Row("first call", "jax.scipy", missing="jax is not installed")
        return
    repeats, grid = min(settings.repeats, 3), settings.grid
    for method, peer, budget in COMPILED:
        what = f"{method}, 64 unknowns, in jit, trace to compiled"
        if missing(peer.partition(".")[0]):
            yield Row(what, peer, missing="not installed", budget=budget)
            continue
        pair = first_call(f"compile:{method}"), first_call(f"{peer}:{method}")
        yield Row(what, f"{peer} {method}", compare(*pair, repeats), budget=budget)
    for name, limit in EAGER:
        points = 64 if name == "CG" else grid // (4 if name == "constant" else 2)
        what = f"first eager solve, CG, {points} unknowns" if name == "CG" else f"first eager solve, {name} {points}²"
        measured = compare(first_call(f"eager:{name}", points), first_call("eager jax.scipy:CG"), repeats)
        yield Row(what, "jax.scipy cg, eager, 64 unknowns", measured, budget_seconds=limit)
    for name, part, limit in ON_GRIDS:
        yield from twice(name, grid // part, repeats, limit)


def twice(name: str, grid: int, repeats: int, limit: float) -> Iterator[Row]:
    """The first process, and a second one with the same cache on disk."""
    firsts, seconds = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            sample = first_call(name, grid, folder)
            firsts.append(sample()), seconds.append(sample())
    kind, _, what = name.partition(":")
    first, second = sorted(firsts)[repeats // 2], sorted(seconds)[repeats // 2]
    label = (
        f"{kind} coefficients, {what} {grid}², in jit" if kind != "gradient" else f"gradient, {what} {grid}², in jit"
    )
    yield Row(f"{label}, first call", "second process, cache on disk", Comparison(first, second, first / second),
              budget_seconds=limit)  # fmt: skip
    yield Row(f"{label}, second process", "first process", Comparison(second, first, second / first),
              budget_seconds=SECOND_PROCESS)  # fmt: skip


def first_call(name: str, grid: int = 64, cache: str | None = None) -> Sampler:
    """Of a fresh process; with a folder, of one that keeps programs there."""
    command = [sys.executable, "-m", "benchmarks.first_call", name, str(grid)]
    environment = dict(os.environ)
    for variable in ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR"):  # a user sets none
        environment.pop(variable, None)
    if cache is not None:
        environment["JAX_COMPILATION_CACHE_DIR"] = cache
        environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    run = lambda: subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)  # noqa: E731

    def sample() -> float:
        done = run()
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
        return float(done.stdout.split()[-1])

    return sample
