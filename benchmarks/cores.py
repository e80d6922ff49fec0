"""NumPy on all cores beside NumPy on one, by the time that passes: products, vector updates and whole solves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from krylix import linear_solve
from krylix.backends import get_backend
from krylix.backends.host_math import cores, rows_times
from krylix.sparse import Stencil

from .measure import Sampler, compare, seconds_passed
from .poisson import RTOL, coefficients, operator
from .problems import poisson_matrix, right_hand_side
from .settings import Settings
from .table import Row

CALLS = 10  # in a row


def rows(settings: Settings) -> Iterator[Row]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        for name, (call, calls) in cases(settings).items():
            pair = with_threads(cores, call, calls), with_threads(1, call, calls)
            yield Row(f"{name}, {cores} threads", "one thread", compare(*pair, settings.repeats))
    finally:
        cores.use(None)


def with_threads(count: int, call: Callable[[], Any], calls: int) -> Sampler:
    def sample() -> float:
        cores.use(count)
        call()
        return seconds_passed(call, calls)

    return sample


def cases(settings: Settings) -> dict[str, tuple[Callable[[], Any], int]]:
    n, bk, rng = settings.grid, get_backend("numpy"), np.random.default_rng(0)
    A, b = sp.csr_array(poisson_matrix(n, "float64")), right_hand_side(n, "float64")
    shifts = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0)]
    stencil = Stencil([rng.random((n, n)) for _ in shifts], shifts, (n, n))
    diagonals = stencil.to("dia")
    x, p, r, q = (rng.random((1, n * n)) for _ in range(4))
    a, f = np.full((1, 1), 1e-9), operator(coefficients(n, 2)["smooth"], 2, np)

    def iterations() -> Any:
        return linear_solve(A, b.reshape(-1), method="CG", rtol=0.0, max_iter=32, on_failure="status")

    return {
        f"CSR, 5 points {n}²": (lambda: rows_times(A, x[0]), CALLS),
        f"DIA, 5 points {n}²": (lambda: diagonals.apply(x), CALLS),
        f"Stencil, 5 points {n}²": (lambda: stencil.apply(x), CALLS),
        f"dot, {n}² numbers": (lambda: bk.dot(p, q), CALLS),
        f"the updates of CG, {n}² numbers": (lambda: (bk.axpy_norm(a, q, r), bk.axpy_xpay(a, p, x, r, a)), CALLS),
        f"32 iterations of CG, CSR, {n}²": (iterations, 1),
        f"auto, smooth coefficients {n}²": (lambda: linear_solve(f, b, rtol=RTOL), 1),
    }
