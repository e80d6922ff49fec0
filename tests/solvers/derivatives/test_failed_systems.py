"""Where failures do not raise, derivatives of a system that failed are NaN, and those of the others are exact."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from cells import METHOD_NAMES
from gradients import gradient
from krylix import choose_backend, linear_solve
from krylix.solvers import METHODS
from modes import MODES, array, compiled, library, to_numpy

N = 4
GOOD = np.array([0, 2])
# a singular matrix has a least-squares solution, and block-CG takes one matrix
SQUARE = tuple(m for m in METHOD_NAMES if not METHODS[m].least_squares and not METHODS[m].couples_systems)
ALL, MASKED = np.ones((3, N)), np.array([[1.0], [0.0], [2.0]]) * np.ones((3, N))


def systems() -> tuple[np.ndarray, np.ndarray]:
    """Three symmetric ones; of the second A is singular, with b outside of its range."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((3, N, N))
    A = A + np.swapaxes(A, 1, 2) + 8 * np.eye(N)
    A[1] = np.outer(np.arange(1.0, N + 1), np.arange(1.0, N + 1))
    return A, rng.standard_normal((3, N))


def gradients(mode: str, settings: dict[str, Any]) -> Callable[..., Any]:
    """(A, b, w) -> the gradients of `sum(w x)` by b and A."""

    def both(A: Any, b: Any, w: Any) -> Any:
        if mode == "numpy":
            return linear_solve(A, b, **settings).vjp(w)
        xp = choose_backend(library(mode)).xp
        return gradient(mode, lambda b, A: xp.sum(w * linear_solve(A, b, **settings).x), b, A)

    return both


def check(mode: str, A: np.ndarray, b: np.ndarray, **settings: Any) -> None:
    settings = {"on_failure": "status", "rtol": 1e-9, **settings}
    function = compiled(mode, gradients(mode, settings))
    for w in (ALL, MASKED):
        by_b, by_A = map(to_numpy, function(*(array(mode, a) for a in (A, b, w))))
        x, y = np.linalg.solve(A[GOOD], b[GOOD, :, None])[..., 0], np.linalg.solve(A[GOOD], w[GOOD, :, None])[..., 0]
        np.testing.assert_allclose(by_b[GOOD], y, rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(by_A[GOOD], -y[:, :, None] * x[:, None, :], rtol=1e-5, atol=1e-7)
        lost = np.isnan if w is ALL else lambda gradient: gradient == 0  # left out of the sum, it adds nothing
        assert lost(by_b[1]).all() and lost(by_A[1]).all()


@pytest.mark.compiled_by_default("CG", modes=("jax-jit", "tf"))
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", SQUARE)
def test_singular(method: str, mode: str) -> None:
    if mode == "torch-compile":
        mode = "torch"  # a graph break: the same code
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(mode, *systems(), method=method)


@pytest.mark.compiled_by_default
@pytest.mark.parametrize("mode", [m for m in MODES if m != "torch-compile"])
@pytest.mark.parametrize("cause", ["NaN in b", "NaN in A", "few steps", "warn", "nan"])
def test_other_causes(cause: str, mode: str) -> None:
    A, b = systems()
    A[1] = A[0]
    settings: dict[str, Any] = {"method": "GMRES"}
    if cause == "NaN in b":
        b[1, 0] = np.nan
    elif cause == "NaN in A":
        A[1, 0, 0] = np.nan
    else:
        settings["max_iter"] = np.array([50, 1, 50])
        settings["on_failure"] = cause if cause in ("warn", "nan") else "status"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(mode, A, b, **settings)


@pytest.mark.parametrize("mode", [pytest.param("jax-jit", marks=pytest.mark.merge), "torch"])
def test_forward_second_order_and_vectorised(mode: str) -> None:
    bk = choose_backend(library(mode))
    F = import_module({"jax": "jax", "torch": "torch.func"}[library(mode)])
    A, b = (array(mode, given) for given in systems())

    def solve(b: Any) -> Any:
        return linear_solve(A, b, method="direct", on_failure="status").x

    def slope(b: Any) -> Any:
        return F.grad(lambda b: (solve(b) ** 3).sum())(b)[GOOD].sum()

    def mapped(b: Any, A: Any) -> Any:
        return F.vmap(F.grad(lambda b, A: linear_solve(A, b, method="direct", on_failure="status").x.sum()))(b, A)

    _, tangent = compiled(mode, lambda b: F.jvp(solve, (b,), (bk.xp.ones_like(b),)))(b)
    np.testing.assert_allclose(tangent[GOOD], np.linalg.solve(A[GOOD], np.ones((2, N, 1)))[..., 0], rtol=1e-6)
    assert bool(bk.xp.isnan(tangent[1]).all())
    twice = compiled(mode, F.grad(slope))(b)
    assert bool(bk.xp.isfinite(twice[GOOD]).all()) and (mode == "torch" or bool((twice[1] == 0).all()))
    each = compiled(mode, mapped)(b, A)
    assert bool(bk.xp.isnan(each[1]).all()) and bool(bk.xp.isfinite(each[GOOD]).all())
    if mode == "torch":
        squares = F.jacfwd(F.jacfwd(lambda s: (solve(s**2 * b)[GOOD] ** 2).sum()))(array(mode, np.ones(())))
        np.testing.assert_allclose(squares, 12 * (solve(b)[GOOD] ** 2).sum())


def test_forward_on_numpy() -> None:
    A, b = systems()
    found = linear_solve(A, b, method="direct", on_failure="status").jvp(b=np.ones((3, N)))
    np.testing.assert_allclose(found[GOOD], np.linalg.solve(A[GOOD], np.ones((2, N, 1)))[..., 0], rtol=1e-6)
    assert np.isnan(found[1]).all()


@pytest.mark.parametrize("mode", ["numpy", "torch"])
def test_a_backward_solve_that_fails(mode: str) -> None:
    """x is exact from the start, and the transposed system is not solved in the steps there are."""
    A, b = systems()
    A[1] = A[0]
    exact = np.linalg.solve(A, b[..., None])[..., 0]
    settings: dict[str, Any] = {"method": "GMRES", "max_iter": np.array([50, 1, 50]), "rtol": 1e-9}
    if mode == "numpy":
        found = linear_solve(A, b, x0=exact, on_failure="status", **settings).vjp(ALL).b
    else:
        given = array(mode, b).requires_grad_()
        x = linear_solve(array(mode, A), given, x0=array(mode, exact), on_failure="status", **settings).x
        x.sum().backward()
        found = to_numpy(given.grad)
    assert np.isnan(found[1]).all() and np.isfinite(found[GOOD]).all()


@pytest.mark.needs("torch")
def test_a_system_that_another_method_has_solved() -> None:
    """Its derivatives are those of that method; no trace of the first one is left in them."""
    A, b = systems()
    A[1] = A[0] + 3 * np.eye(N, k=1)
    given = array("torch", b).requires_grad_()
    found = linear_solve(array("torch", A), given, method="auto", on_failure="status")
    found.x.sum().backward()
    np.testing.assert_allclose(given.grad, np.linalg.solve(np.swapaxes(A, 1, 2), ALL[..., None])[..., 0], rtol=1e-6)
