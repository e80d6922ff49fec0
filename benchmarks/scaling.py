"""One solve on 1, 2, 4 and 8 virtual devices, and its messages; `--model`: what they cost on large machines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from statistics import median
from typing import Any

from .measure import Comparison
from .settings import Settings, missing
from .table import Row

ROOT = Path(__file__).resolve().parents[1]
METHODS = ("CG + jacobi", "CG-single-reduction + jacobi", "CG + multigrid", "fast-direct")
PARTS = ((1, 1, 1), (2, 1, 1), (2, 2, 1), (2, 2, 2))
SMALL = 1024  # bytes: a longer sum than this is one of vectors
NOTE = """Virtual devices are parts of one processor and share its cores: their times say what several programs and
their messages cost on it, nothing about several devices. Messages, bytes and iterations are as on several."""


@dataclass(frozen=True)
class Counts:
    """Of one solve; messages in a step, or in all of a solve that has no steps, as one device receives them.

    Attributes:
        method: one of `METHODS`.
        points: along each axis.
        parts: into which each axis is cut.
        iterations: to a relative residual of 1e-8.
        sums: reductions of a few numbers.
        exchanges: messages between neighbours, and their bytes.
        gathers: gathers and sums of vectors, and their bytes.
        transposes: all-to-all, and their bytes.
        memory: bytes of a device for arguments, results and intermediate arrays.
        constants: bytes of arrays in the program, whole on each device.
        seconds: of each solve that was timed.
    """

    method: str
    points: int
    parts: tuple[int, ...]
    iterations: int
    sums: int
    exchanges: tuple[int, int]
    gathers: tuple[int, int]
    transposes: tuple[int, int]
    memory: int
    constants: int
    seconds: tuple[float, ...]

    @property
    def devices(self) -> int:
        return prod(self.parts)

    @property
    def local(self) -> int:
        """Unknowns of a device."""
        return self.points ** len(self.parts) // self.devices

    def in_words(self) -> str:
        """What a step sends."""
        found = [f"{self.sums} sums"]
        for name, (count, size) in (
            ("exchanges", self.exchanges), ("gathers", self.gathers), ("all-to-all", self.transposes)
        ):  # fmt: skip
            if count:
                found.append(f"{count} {name} of {size / 1e3:.3g} KB")
        return ", ".join(found)


def rows(settings: Settings) -> Iterator[Row]:
    points = 2 * settings.local_grid
    if missing("jax"):
        yield Row(f"{points}³ on 8 virtual devices", "one device", missing="jax is not installed")
        return
    for method in METHODS:
        alone = None
        for one in count([(method, points, parts) for parts in PARTS], timed=settings.repeats):
            alone = alone or one
            unit = "all" if one.iterations == 1 else "a step"
            what = f"{method}, {points}³ on {one.devices}: {one.iterations} iterations, {unit}: {one.in_words()}"
            times = median(one.seconds), median(alone.seconds)
            yield Row(what, "one device", Comparison(*times, times[0] / times[1]))


def count(tasks: list[tuple[str, int, tuple[int, ...]]], timed: int = 0) -> Iterator[Counts]:
    """Compile and run solves by (method, points along each axis, parts of each axis), and count their messages.

    Args:
        tasks: the solves.
        timed: how often each is timed; they are compiled with XLA's optimisations then.
    """
    given = [json.dumps({"method": m, "points": n, "parts": parts, "timed": timed}) for m, n, parts in tasks]
    command = [sys.executable, "-m", "benchmarks.scaling_worker", *(["--timed"] if timed else []), *given]
    run = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True)
    if run.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{run.stderr}")
    for task, line in zip(tasks, run.stdout.splitlines(), strict=True):
        yield _counts(*task, json.loads(line))


def _counts(method: str, points: int, parts: tuple[int, ...], found: dict[str, Any]) -> Counts:
    def of(*kinds: str, small: bool = False) -> tuple[int, int]:
        chosen = [(size, times) for kind, size, times in found["messages"] if kind in kinds and
                  (kind != "all-reduce" or (size <= SMALL) == small)]  # fmt: skip
        return sum(times for _, times in chosen), sum(size for size, _ in chosen)

    return Counts(
        method, points, parts, found["iterations"],
        sums=of("all-reduce", small=True)[0],
        exchanges=of("collective-permute"),
        gathers=of("all-gather", "all-reduce", "reduce-scatter"),
        transposes=of("all-to-all"),
        memory=found["bytes"], constants=found["constants"], seconds=tuple(found["seconds"]),
    )  # fmt: skip
