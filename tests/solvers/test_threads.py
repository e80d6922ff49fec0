"""One compiled function in several threads at a time, each with values of its own."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from threading import Thread
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import as_operator, linear_solve

N, THREADS, RUNS = 4000, 4, 40


@pytest.fixture(autouse=True)
def _switches_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.needs("jax")
def test_calls_of_the_host_keep_their_values_apart() -> None:
    import jax

    base = sp.csr_array(sp.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(N, N)))
    b = np.random.default_rng(0).standard_normal(N)
    expected = sp.linalg.spsolve(sp.csc_array(base), b)
    like = jax.numpy.asarray(b)
    matrices = [as_operator((k + 1.0) * base, like) for k in range(THREADS)]
    solve = jax.jit(lambda A, b: linear_solve(A, b, method="scipy-direct").x)
    solve(matrices[0], like)
    wrong: list[float] = []

    def work(k: int) -> None:
        for _ in range(RUNS):
            x: Any = solve(matrices[k], like)
            wrong.extend([k] if np.abs(np.asarray(x) * (k + 1) - expected).max() > 1e-8 else [])

    threads = [Thread(target=work, args=(k,)) for k in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
