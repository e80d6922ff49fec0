"""What a small solve costs in Python is counted, not timed: calls of functions, and files before the first product."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix import linear_solve, setup_cache
from krylix.backends import get_backend
from modes import array, library

N, STEPS = 100, 27
_FOLDERS = tuple(
    os.path.realpath(os.path.join(os.path.dirname(krylix.__file__), name)) for name in ("backends", "sparse", "solvers")
)


def counted(call: Callable[[], Any], product: tuple[str, ...] = ()) -> tuple[int, int]:
    """Calls of all Python functions, and files of krylix before the first call of a `product`, after two runs."""
    calls, files, before = 0, set[str](), None

    def hook(frame: FrameType, event: str, _: Any) -> None:
        nonlocal calls, before
        if event != "call":
            return
        calls += 1
        if frame.f_code.co_name in product and before is None:
            before = len(files)
        file = os.path.realpath(frame.f_code.co_filename)
        if file.startswith(_FOLDERS):
            files.add(file)

    call(), call()
    sys.setprofile(hook)
    try:
        call()
    finally:
        sys.setprofile(None)
    return calls, -1 if before is None else before


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Without what keeps each framework that was imported from looking into krylix: it makes calls of its own."""
    spec = getattr(request.node, "callspec", None)
    used = library(spec.params["mode"]) if spec else "numpy"
    for name in {"jax", "torch", "tensorflow"} & set(sys.modules):
        get_backend(name)  # imported now: without its library in the list of modules there would be a second one
    for name in {"jax", "torch", "tensorflow", "torch._dynamo"} - {used}:
        monkeypatch.delitem(sys.modules, name, raising=False)


def tridiagonal() -> sp.csr_array:
    return sp.csr_array(sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(N, N)))


@pytest.mark.usefixtures("alone")
def test_calls_of_a_sparse_matrix() -> None:
    """Another matrix each time; 13 calls a step, all others once."""
    A, b = tridiagonal(), np.random.default_rng(0).normal(size=N)

    def solve() -> Any:
        A.data[0] += 1e-12
        return linear_solve(A, b, method="CG", rtol=1e-8)

    assert solve().iterations == STEPS
    calls, files = counted(solve, ("_by_loop", "_matmul_vector"))
    assert calls <= 896
    assert 0 < files <= 39


@pytest.mark.usefixtures("alone")
def test_calls_of_the_choice_for_a_small_sparse_matrix() -> None:
    """Its factors take less time than to look at what they will cost, so that nobody does."""
    chords = sp.coo_array(([0.1, 0.1], ([0, N // 2], [N // 2, 0])), (N, N))
    A, b = sp.csr_array(tridiagonal() + chords), np.random.default_rng(0).normal(size=N)

    def solve(**method: Any) -> Any:
        A.data[0] += 1e-12
        return linear_solve(A, b, **method)

    assert solve().method == "scipy-direct"
    named, _ = counted(lambda: solve(method="scipy-direct"))
    calls, _ = counted(solve)
    assert calls <= named + 120


@pytest.mark.usefixtures("alone")
def test_calls_of_a_prepared_sparse_matrix() -> None:
    """Nothing is proven about it again: the first product is one of the method."""
    b = np.random.default_rng(0).normal(size=N)
    solver = krylix.prepare(tridiagonal(), b, method="CG", rtol=1e-8)
    calls, files = counted(lambda: solver.solve(b), ("product",))
    assert calls <= 640
    assert 0 < files <= 39


@pytest.mark.usefixtures("alone")
def test_calls_of_a_function() -> None:
    A = tridiagonal().toarray()
    b = np.random.default_rng(0).normal(size=N)

    def image(x: np.ndarray) -> np.ndarray:
        return A @ x

    def solve() -> Any:
        return linear_solve(lambda x: image(x), b, method="CG", rtol=1e-8)  # another function each time

    calls, files = counted(solve, ("image",))
    assert calls <= 1224
    assert 0 < files <= 23


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(("mode", "most"), [("numpy", 68), ("torch", 112), ("tf", 192), ("jax", 176)])
def test_calls_of_small_dense_systems(mode: str, most: int) -> None:
    A, b = (array(mode, a) for a in (tridiagonal().toarray()[:16, :16] + np.eye(16), np.ones(16)))
    assert counted(lambda: linear_solve(A, b))[0] <= most


@pytest.mark.usefixtures("alone")
def test_calls_of_prepared_factors() -> None:
    A, b = tridiagonal(), np.ones(N)
    solver = krylix.prepare(A, b, method="scipy-direct")
    assert counted(lambda: solver.solve(b))[0] <= 38  # one asks whether the outcome is logged


@pytest.mark.needs("torch")
def test_calls_of_a_training_step() -> None:
    """A function that is recorded, its solve, and the backward one, which ends with one product of the transpose."""
    import torch

    k = torch.ones(63, dtype=torch.float64, requires_grad=True)
    b = torch.as_tensor(np.random.default_rng(0).normal(size=64))
    products = [0]

    def step(u: Any) -> Any:
        products[0] += 1
        return u - 0.1 * torch.diff(torch.cat([torch.zeros(1), k * torch.diff(u), torch.zeros(1)]))

    def run() -> None:
        k.grad = None
        x = linear_solve(step, b, method="CG").x
        (x * x).sum().backward()

    with setup_cache(False):
        calls, _ = counted(run)
    assert products[0] == 4 * 3 + 4  # and the test of linearity, and of the size of images, once
    assert calls <= 2847  # 50 more where other tests have run in the process; 13 look for modules and their modes
