"""Several threads at a time: one compiled function with values of their own, and the first use of a library."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

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

    def work(k: int) -> None:
        for _ in range(RUNS):
            np.testing.assert_allclose(solve(matrices[k], like) * (k + 1), expected, rtol=0, atol=1e-8)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))


FIRST_USE = """
import sys, threading
from importlib import import_module
import numpy as np, scipy.sparse as sp
import krylix

n, threads, name = 12, 4, sys.argv[1]
library = import_module({"jax": "jax.numpy"}.get(name, name))
array = {"torch": "as_tensor", "tensorflow": "constant"}.get(name, "asarray")
A = np.diag(np.full(n, 4.0)) - np.eye(n, k=1) - np.eye(n, k=-1)
b, like = (getattr(library, array)(v) for v in (np.cos(np.arange(n)), np.zeros(n)))
start, errors = threading.Barrier(threads), []

def use(first):
    start.wait()
    try:
        for work in ("solve", "trace") if first else ("trace", "solve"):
            if work == "solve":
                x = krylix.linear_solve(sp.csr_array(A), b, method="CG").x
                assert np.allclose(A @ np.asarray(x), np.asarray(b))
            else:
                matrix, _ = krylix.matrix_from_function(lambda x: 3 * x, like)
                assert np.array_equal(matrix.toarray(), 3 * np.eye(n))
    except BaseException as error:
        errors.append(repr(error)[:300])

sys.setswitchinterval(1e-6)
running = [threading.Thread(target=use, args=(k % 2,)) for k in range(threads)]
for thread in running:
    thread.start()
for thread in running:
    thread.join()
print(len(errors), "errors", errors[:1])
"""


@pytest.mark.parametrize(
    "backend", ["jax", *(pytest.param(name, marks=pytest.mark.merge) for name in ("numpy", "torch", "tensorflow"))]
)
def test_several_threads_use_a_library_first(backend: str) -> None:
    run = subprocess.run([sys.executable, "-c", FIRST_USE, backend], capture_output=True, text=True, timeout=300)
    assert run.stdout.startswith("0 errors"), run.stdout + run.stderr
