"""Plain solves with new numbers on a known pattern: hierarchies are renewed, bounded in number, and never trusted."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix import linear_solve, setup_cache
from krylix.solvers.preconditioners import UPDATES, DiagonalOperator, jacobi
from modes import array, to_numpy

CACHE: Any = sys.modules["krylix.solvers.plan_cache"]
SIDE = 24
N = SIDE * SIDE
SETTINGS: dict[str, Any] = {"method": "CG", "preconditioner": "amg", "rtol": 1e-8}
B = np.random.default_rng(0).standard_normal((6, N))


def step(k: int, size: float = 0.2) -> sp.csr_array:
    """Implicit diffusion with coefficients of time k: always the same places."""
    rng = np.random.default_rng(k)
    line = sp.diags_array([-1.0, 1.0], offsets=[0, 1], shape=(SIDE - 1, SIDE))
    D = sp.vstack([sp.kron(line, sp.eye_array(SIDE)), sp.kron(sp.eye_array(SIDE), line)])
    A = sp.csr_array(D.T @ sp.diags_array(np.exp(size * rng.standard_normal(D.shape[0]))) @ D + 1e-3 * sp.eye_array(N))
    A.sort_indices()
    return A


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Small matrices count, too; what is renewed is listed."""
    monkeypatch.setattr(CACHE, "LEAST", 10)
    found: list[Any] = []
    update = UPDATES["amg"]

    def updated(M: Any, A: Any) -> Any:
        found.append(update(M, A))
        return found[-1]

    monkeypatch.setitem(UPDATES, "amg", updated)
    yield found


def check(A: sp.csr_array, b: np.ndarray, **settings: Any) -> Any:
    result = linear_solve(A, b, **{**SETTINGS, **settings})
    assert np.linalg.norm(b - A @ np.asarray(result.x)) <= 1e-8 * np.linalg.norm(b)
    return result


def test_from_the_third_matrix_on_it_is_renewed(renewals: list[Any]) -> None:
    for k, b in enumerate(B):
        found = check(step(k), b)
        assert len(renewals) == max(0, k - 1)
        with setup_cache(False):
            assert abs(found.iterations - check(step(k), b).iterations) <= 2
    assert len(CACHE.HIERARCHIES) == 1 and not CACHE.PLANS


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "dia", "bsr"])
def test_formats(format: str, renewals: list[Any]) -> None:
    for k in range(3):
        check(step(k).asformat(format), B[k])
    assert len(renewals) == 1


@pytest.mark.parametrize("mode", ["torch", "jax", "tf"])
def test_right_hand_sides_of_libraries(mode: str, renewals: list[Any]) -> None:
    for k in range(3):
        A = step(k)
        x = to_numpy(linear_solve(A, array(mode, B[k]), **SETTINGS).x)
        assert np.linalg.norm(B[k] - A @ x) <= 1e-7 * np.linalg.norm(B[k])
    assert len(renewals) == 1


def test_a_matrix_that_comes_again_keeps_its_own(renewals: list[Any]) -> None:
    """To the last digit, as the second solve has set it up."""
    for k in range(3):
        first, second, third = (check(step(k), B[k]) for _ in range(3))
        np.testing.assert_array_equal(second.x, third.x)
        assert first.iterations - 2 <= third.iterations <= first.iterations + 2
    assert len(CACHE.PLANS) == 3


def test_other_places_and_settings_are_others(renewals: list[Any]) -> None:
    for k in range(3):
        A = step(k).tolil()
        A[0, N - 1 - k] = A[N - 1 - k, 0] = -1e-3
        check(sp.csr_array(A), B[k])
        check(step(k), B[k], **({"rtol": 1e-9} if k == 1 else {}))
    assert not renewals


def test_a_user_may_write_to_its_places(renewals: list[Any]) -> None:
    for k in range(5):
        A = step(k)
        check(A, B[k])
        A.indices[:], A.data[:] = 0, np.nan
    assert len(renewals) == 3


@pytest.mark.parametrize("on_failure", ["raise", "status", "nan"])
def test_what_no_longer_serves_is_made_anew(
    on_failure: str, renewals: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the same call, whose result is that of a solve by itself."""
    for k in range(2):
        check(step(k), B[k], on_failure=on_failure)

    def wrong(M: Any, A: Any) -> Any:
        renewals.append(A)
        return krylix.Preconditioner(DiagonalOperator(A.bk, np.zeros((1, N))), "amg", hermitian=True)

    monkeypatch.setitem(UPDATES, "amg", wrong)
    found = check(step(2), B[2], on_failure=on_failure)
    with setup_cache(False):
        np.testing.assert_array_equal(found.x, check(step(2), B[2]).x)
    assert len(renewals) == 1


def test_what_takes_too_many_iterations_is_dropped(renewals: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for k in range(2):
        check(step(k), B[k])
    assert len(CACHE.HIERARCHIES) == 1
    monkeypatch.setitem(UPDATES, "amg", lambda M, A: jacobi(A))
    most = 2 * next(iter(CACHE.HIERARCHIES)).iterations + 10
    assert check(step(2), B[2]).iterations > most
    assert not CACHE.HIERARCHIES
    assert check(step(3), B[3]).iterations < 20
    assert len(CACHE.HIERARCHIES) == 1


def test_numbers_of_another_kind(renewals: list[Any]) -> None:
    """That are no longer symmetric, or need no hierarchy: the choice is that of a solve by itself."""
    for k in range(2):
        check(step(k), B[k], method="auto")
    skew = sp.csr_array(step(2) + sp.diags_array(np.ones(N - 1), offsets=1, shape=(N, N)).multiply(step(2) != 0))
    skew.sort_indices()
    assert np.array_equal(skew.indices, step(2).indices)
    for A in (
        skew,
        sp.csr_array(-step(3)),
        sp.csr_array((step(4).data * 0 + (step(4).data > 0), skew.indices, skew.indptr)),
    ):
        found = linear_solve(A, B[2], preconditioner="amg", rtol=1e-8, on_failure="status")
        with setup_cache(False):
            alone = linear_solve(A, B[2], preconditioner="amg", rtol=1e-8, on_failure="status")
        assert found.method == alone.method and bool(found.converged) == bool(alone.converged)


def test_it_is_bounded_and_can_be_switched_off(renewals: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for size in (20, 21, 22):
        for k in range(2):
            A = step(k)[: size * SIDE, : size * SIDE]
            check(sp.csr_array(A), B[0][: size * SIDE])
    assert len(CACHE.HIERARCHIES) == CACHE.HIERARCHIES.count == 2
    krylix.clear_setup_cache()
    assert not CACHE.HIERARCHIES and not CACHE._PATTERNS
    with setup_cache(False):
        for k in range(4):
            check(step(k), B[k])
    monkeypatch.setattr(CACHE, "MOST_OF_PATTERN", 1000)
    for k in range(4):
        check(step(k), B[k])
    assert not renewals and not CACHE.HIERARCHIES


def test_what_cannot_be_renewed_is_not_kept(renewals: list[Any]) -> None:
    for k in range(4):
        check(step(k), B[k], preconditioner="ic")
        check(step(k), B[k], method="scipy-direct", preconditioner=None)
    assert not CACHE.HIERARCHIES and not any(CACHE._PATTERNS)


def test_derivatives_of_a_solve_with_a_renewed_one(renewals: list[Any]) -> None:
    for k in range(4):
        A = step(k)
        found = check(A, B[k], rtol=1e-12)
        expected = np.linalg.solve(A.toarray(), B[0])
        np.testing.assert_allclose(found.vjp(B[0]).b, expected, rtol=1e-6, atol=1e-8 * np.abs(expected).max())
    assert renewals


def test_threads(renewals: list[Any]) -> None:
    matrices = [step(k) for k in range(5)]
    expected = [np.linalg.solve(A.toarray(), B[0]) for A in matrices]

    def work(first: int) -> None:
        for k in range(first, first + 10):
            x = linear_solve(matrices[k % 5] * 1.0, B[0], **{**SETTINGS, "rtol": 1e-12}).x
            np.testing.assert_allclose(x, expected[k % 5], rtol=0, atol=1e-7 * np.abs(expected[k % 5]).max())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
