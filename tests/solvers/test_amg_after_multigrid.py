"""Multigrid on grids that takes too many iterations hands over to classical AMG: known, said, from the x reached."""

from __future__ import annotations

import runpy
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from cells import in_turn
from frameworks import jax
from krylix.solvers.plan import MOST_ITERATIONS, ClassicalAMG, is_on_grids
from krylix.solvers.preconditioners import choose
from krylix.solvers.preconditioners.multigrid.interpolation import WeaklyCoupled
from library import ROOT
from modes import EAGER, array, compiled, to_numpy

M = runpy.run_path(str(ROOT / "benchmarks" / "media_problems.py"))
flow, lines = M["flow"], M["lines"]
N = 32
K = lines((N, N), 1e4, count=14)
A = flow(K)
B = np.random.default_rng(0).standard_normal(N * N)
GRID: dict[str, Any] = {"grid": (N, N), "direct": 500}
RTOL = 1e-10


@pytest.fixture(autouse=True)
def unseen(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is lost, as far as the set-up is told."""
    monkeypatch.setattr(WeaklyCoupled, "too_many", lambda *_, **__: False)
    yield


@cache
def on_grids() -> Any:
    own = krylix.preconditioner(A, "multigrid", **GRID)
    assert is_on_grids(own)
    return own


def solved(b: Any = B, method: str = "CG", **settings: Any) -> Any:
    return krylix.linear_solve(A, b, method=method, preconditioner=on_grids(), rtol=RTOL, **settings)


def relative(x: Any) -> float:
    return float(np.linalg.norm(B - A @ to_numpy(x)) / np.linalg.norm(B))


@pytest.mark.compiled_by_default()
@pytest.mark.parametrize(("method", "mode"), in_turn(["CG", "biCG-stab(2)"], EAGER, always=["numpy", "torch"]))
def test_every_library(method: str, mode: str) -> None:
    result = solved(array(mode, B), method)
    assert relative(result.x) <= 1.01 * RTOL and MOST_ITERATIONS < int(result.iterations) <= MOST_ITERATIONS + 20
    assert result.method == f"{method} (with classical AMG after {MOST_ITERATIONS} iterations with multigrid)"
    assert result.preconditioner == "amg" and "classical AMG" in result.message


def test_history_goes_on() -> None:
    result = solved(history=True)
    assert len(result.history) == result.iterations + 1 and np.isfinite(result.history).all()
    assert abs(result.history[0] - np.linalg.norm(B)) <= 1e-10 * np.linalg.norm(B)
    few = solved(max_iter=MOST_ITERATIONS, on_failure="status", history=True)
    assert few.method == "CG" and not few.converged and few.iterations == MOST_ITERATIONS
    np.testing.assert_allclose(result.history[:MOST_ITERATIONS], few.history[:MOST_ITERATIONS], rtol=1e-8)
    assert result.history[MOST_ITERATIONS] <= 1.01 * few.residual_norm


def test_callbacks_count_on() -> None:
    told: list[Any] = []
    result = solved(callback=lambda s: told.append(s.iterations))
    assert told == [*range(1, result.iterations + 1)] and result.iterations > MOST_ITERATIONS
    rows: list[Any] = []
    both = solved(np.stack([B, A @ np.ones(N * N)]), batch_ndim=1, callback=lambda s: rows.append(s.iterations))
    np.testing.assert_array_equal(rows[-1], both.iterations)


def test_limits_stay() -> None:
    """No more iterations than were asked for, of both together."""
    result = solved(max_iter=MOST_ITERATIONS + 3, on_failure="status")
    assert not result.converged and result.iterations == MOST_ITERATIONS + 3


def test_prepared_solvers_remember() -> None:
    """The first solve finds out, later ones begin with AMG."""
    solver = krylix.prepare(A, B, method="CG", preconditioner=on_grids(), rtol=RTOL)
    first, second = solver.solve(B), solver.solve(2 * B)
    assert first.iterations > MOST_ITERATIONS and second.iterations <= 20 and second.preconditioner == "amg"
    assert relative(second.x / 2) <= 1.01 * RTOL


def test_easy_ones_are_left_alone() -> None:
    smooth = flow(np.ones((N, N)))
    own = krylix.preconditioner(smooth, "multigrid", **GRID)
    result = krylix.linear_solve(smooth, B, method="CG", preconditioner=own, rtol=RTOL)
    assert result.method == "CG" and result.preconditioner == "multigrid" and result.iterations <= 10


def test_a_batch_of_right_hand_sides() -> None:
    """Those that are done stay as they are."""
    easy = A @ np.ones(N * N)
    exact = krylix.linear_solve(A, easy, method="scipy-direct").x
    result = solved(np.stack([B, easy]), x0=np.stack([np.zeros(N * N), exact]), batch_ndim=1)
    assert result.converged.all() and result.iterations[0] > MOST_ITERATIONS and result.iterations[1] <= 5
    assert relative(result.x[0]) <= 1.01 * RTOL


def test_which_are_on_grids() -> None:
    assert not is_on_grids(None) and not is_on_grids(krylix.preconditioner(A, "jacobi"))
    assert not is_on_grids(krylix.preconditioner(A, "multigrid", grid=(N, N), direct=N * N))  # the inverse
    assert not is_on_grids(ClassicalAMG(None)(krylix.as_operator(sp.csr_array(A))))


def test_entries_that_cannot_be_found() -> None:
    """Then it goes on as it was."""
    shown = krylix.as_operator(lambda u: A @ u, like=B)
    result = krylix.linear_solve(lambda u: A @ u, B, method="CG", preconditioner=on_grids(), rtol=1e-6)
    assert shown.shape == A.shape and result.converged and result.iterations > MOST_ITERATIONS


@pytest.mark.compiled_by_default(modes=("jax-jit",))
@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_traced_coefficients(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a compiled function, where values are known only when it runs: the host goes on."""
    monkeypatch.setattr(choose, "_LEAST", {2: 400, 3: 400})
    monkeypatch.setattr(choose, "_DIRECT", 256)
    pattern: Any = krylix.as_operator(A).to("csr")  # type: ignore[arg-type]

    def solved(values: Any, b: Any) -> Any:
        own = pattern.with_values(values)
        made = choose.multigrid_or_jacobi(krylix.as_operator(own).on_grids((N, N), (N, N), "test"))
        result = krylix.linear_solve(own, b, method="CG", preconditioner=made, rtol=RTOL)
        return result.x

    x = compiled(mode, solved)(array(mode, np.asarray(A.data)), array(mode, B))
    assert relative(x) <= 1.01 * RTOL


@pytest.mark.needs("jax")
@pytest.mark.parametrize("compile", [pytest.param(False, marks=pytest.mark.slow), True])
def test_backward_solves_switch_too(compile: bool) -> None:
    weights = np.cos(np.arange(N * N))

    gradient = jax.grad(lambda b: weights @ solved(b).x)
    gradient = jax.jit(gradient) if compile else gradient
    expected = sp.linalg.spsolve(A.T.tocsc(), weights)
    found = np.asarray(gradient(array("jax", B)))
    np.testing.assert_allclose(found, expected, atol=1e-7 * np.abs(expected).max(), rtol=0)
