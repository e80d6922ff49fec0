"""Number of threads for libraries that do not take it from OpenMP's settings by themselves."""

from __future__ import annotations

import os

_MOST = 4


def thread_limit() -> int:
    """What the environment allows, else the cores that this process may use, four at most."""
    for name in ("OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        given = os.environ.get(name, "").split(",")[0].strip()
        if given.isdigit() and int(given) > 0:
            return int(given)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(_MOST, cores)
