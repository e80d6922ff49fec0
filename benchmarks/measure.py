"""Alternating measurements of two programs in one process, and the median of their ratios.

Other work on the machine slows both members of a pair alike, so their ratio says more than either time. The clock is
the processor time of this process: with one thread per library it is the time on a machine that does nothing else.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import process_time

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
    enabled = gc.isenabled()
    gc.disable()
    try:
        start = process_time()
        for _ in range(calls):
            call()
        return (process_time() - start) / calls
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
