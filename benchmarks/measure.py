"""Alternating measurements of two programs in one process, and the median of their ratios.

Other work on the machine slows both members of a pair alike, so their ratio says more than either time. With one thread
per library the clock is the processor time of this process, which is the time on a machine that does nothing else; with
more it is the time that passes.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter, process_time

Sampler = Callable[[], float]  # measures once, returns seconds


@dataclass(frozen=True)
class Comparison:
    """Medians over all repeats: seconds of both, and the ratio of each pair."""

    krylix: float
    peer: float
    ratio: float


def compare(krylix: Sampler, peer: Sampler, repeats: int) -> Comparison:
    """Measure in turns, each of the two first in every other pair."""
    krylix(), peer()  # compilations, caches, thread pools
    pairs = []
    for i in range(repeats):
        ours, theirs = (krylix(), peer()) if i % 2 == 0 else (peer(), krylix())[::-1]
        pairs.append((ours, theirs))
    return Comparison(
        krylix=median(ours for ours, _ in pairs),
        peer=median(theirs for _, theirs in pairs),
        ratio=median(ours / theirs if theirs else float("nan") for ours, theirs in pairs),
    )


def seconds(call: Callable[[], object], calls: int = 1) -> float:
    """Seconds per call, over `calls` of them in a row, without garbage collection."""
    return _seconds(call, calls, process_time if os.environ.get("OMP_NUM_THREADS") == "1" else perf_counter)


def seconds_passed(call: Callable[[], object], calls: int = 1) -> float:
    """The same by the time that passes, however many threads there are."""
    return _seconds(call, calls, perf_counter)


def _seconds(call: Callable[[], object], calls: int, clock: Callable[[], float]) -> float:
    enabled = gc.isenabled()
    gc.disable()
    try:
        start = clock()
        for _ in range(calls):
            call()
        return (clock() - start) / calls
    finally:
        if enabled:
            gc.enable()


def per_call(call: Callable[[], object], calls: int = 1) -> Sampler:
    """Seconds of one call."""
    return lambda: seconds(call, calls)


def per_iteration(solve: Callable[[int], object], few: int, many: int) -> Sampler:
    """Seconds of one iteration: two solves of `few` and `many` iterations, so that set-up cancels."""

    def sample() -> float:
        short = seconds(lambda: solve(few))
        return (seconds(lambda: solve(many)) - short) / (many - few)

    return sample
