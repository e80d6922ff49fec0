"""Factors of matrices whose values are arguments of compiled functions: right, and made once for the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from frameworks import jax, jnp, tf, torch
from krylix import linear_solve
from krylix.solvers.factors import sparse
from krylix.sparse import COO
from modes import array, compiled, library, to_numpy

MODES = ["jax", "jax-jit", "torch", "torch-compile", "tf", "tf-function"]
METHODS = ["sparse-direct", "scipy-direct"]
CASES = [
    ("sparse-direct", False, "float64"),
    ("sparse-direct", True, "float32"),
    ("scipy-direct", True, "float64"),
    ("sparse-direct", False, "complex128"),
]
N = 600  # enough for all libraries of factors
RNG = np.random.default_rng(0)


def pattern(symmetric: bool, n: int = N) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of a random, connected matrix with a full diagonal, in no order."""
    A = sp.random_array((n, n), density=3 / n, rng=np.random.default_rng(1)) + sp.eye_array(n, k=1)
    A = (A + A.T if symmetric else A) + sp.eye_array(n)
    rows, columns = sp.coo_array(A).coords
    order = np.random.default_rng(2).permutation(len(rows))
    return rows[order], columns[order]


def values_on(places: tuple[np.ndarray, np.ndarray], dtype: str, *lead: int) -> np.ndarray:
    rows, columns = places
    found = RNG.normal(size=(*lead, len(rows))).astype(dtype)
    if found.dtype.kind == "c":
        found += 1j * RNG.normal(size=found.shape)
    return found + np.where(rows == columns, 8, 0).astype(dtype)


def dense(places: tuple[np.ndarray, np.ndarray], values: np.ndarray, n: int = N) -> np.ndarray:
    found = np.zeros((*values.shape[:-1], n, n), np.result_type(values.dtype, np.float64))
    found[..., places[0], places[1]] = values
    return found


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A list that gets longer with each factorisation."""
    calls: list[int] = []
    factorise = sparse.examined_sparse
    monkeypatch.setattr(sparse, "examined_sparse", lambda *given: calls.append(1) or factorise(*given))
    krylix.clear_setup_cache()
    yield calls
    krylix.clear_setup_cache()


def with_slope(mode: str, f: Callable[[Any], Any], t: float, dtype: str) -> tuple[float, float]:
    """f(t) and its derivative, both by one compiled function."""
    real = np.dtype(dtype).char.lower()
    given = array(mode, np.asarray(t, real))
    if library(mode) == "jax":
        value, slope = compiled(mode, jax.value_and_grad(f))(given)
    elif library(mode) == "torch":
        given.requires_grad_(True)
        value = compiled(mode, f)(given)
        (slope,) = torch.autograd.grad(value, given)
        value = value.detach()
    else:

        def both(t: Any) -> Any:
            with tf.GradientTape() as tape:
                tape.watch(t)
                value = f(t)
            return value, tape.gradient(value, t)

        value, slope = compiled(mode, both)(given)
    return float(to_numpy(value)), float(to_numpy(slope))


def real_sum(mode: str, w: Any, x: Any) -> Any:
    if library(mode) == "tensorflow":
        return tf.reduce_sum(w * tf.math.real(x))
    return (w * x.real).sum()


# Dynamo reads the gradient of the values, which are computed, and PyTorch warns of that.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
@pytest.mark.compiled_by_default(modes=("jax-jit", "torch-compile", "tf-function"))
@pytest.mark.parametrize(("method", "symmetric", "dtype"), CASES)
@pytest.mark.parametrize("mode", MODES)
def test_a_value_and_its_derivative(mode: str, method: str, symmetric: bool, dtype: str, made: list[int]) -> None:
    """One factorisation for both, none for the same values again; by dense NumPy."""
    places = pattern(symmetric)
    first, change = (values_on(places, dtype) for _ in range(2))
    b, w = (RNG.normal(size=N).astype(dtype) for _ in range(2))
    w = w.real
    v, dv, rhs, weights = (array(mode, a) for a in (first, change, b, w))

    def f(t: Any) -> Any:
        s = tf.cast(t, dv.dtype) if library(mode) == "tensorflow" else t
        x = linear_solve(COO(v + s * dv, *places, shape=(N, N)), rhs * s, method=method).x
        return real_sum(mode, weights, x)

    t = 0.75
    A, dA = dense(places, first + t * change), dense(places, change)
    x = np.linalg.solve(A, t * b)
    expected = np.sum(w * x.real), np.sum(w * np.linalg.solve(A, b - dA @ x).real)
    found = with_slope(mode, f, t, dtype)
    np.testing.assert_allclose(found, expected, rtol=2e-3 if dtype == "float32" else 1e-8)
    if "-" in mode or library(mode) != "jax":  # JAX may have solved in NumPy first
        assert len(made) == 1
    count = len(made)
    np.testing.assert_allclose(with_slope(mode, f, t, dtype), found, rtol=1e-6)
    assert len(made) == count


@pytest.mark.needs("jax")
@pytest.mark.parametrize("method", ["sparse-direct", pytest.param("scipy-direct", marks=pytest.mark.merge)])
def test_many_matrices(method: str, made: list[int]) -> None:
    """A batch of matrices, values and right-hand sides under vmap: a factorisation for each matrix."""
    places = pattern(False)
    values, b = values_on(places, "float64", 5), RNG.normal(size=(5, N))

    def solve(v: Any, b: Any) -> Any:
        return linear_solve(COO(v, *places, shape=(N, N)), b, method=method).x

    forms: list[tuple[Any, Any, Any]] = [
        (solve, values, b),
        (jax.vmap(solve), values + 0.5, b),
        (jax.vmap(solve, (0, None)), values + 1, b[0]),
        (jax.vmap(solve, (None, 0)), values[0] + 2, b),
    ]
    for f, v, rhs in forms:
        made.clear()
        x, pull = jax.jit(lambda v, rhs, f=f: jax.vjp(f, v, rhs))(v, rhs)
        A = dense(places, v)
        exact = np.linalg.solve(A, np.broadcast_to(rhs, (5, N))[..., None])[..., 0]
        np.testing.assert_allclose(x, exact, rtol=1e-9, atol=1e-10)
        w = RNG.normal(size=(5, N))
        y = np.linalg.solve(np.swapaxes(A, -1, -2), w[..., None])[..., 0]
        dv, db = jax.jit(pull)(jnp.asarray(w))
        expected = -y[:, places[0]] * exact[:, places[1]]
        np.testing.assert_allclose(dv, expected if v.ndim == 2 else expected.sum(0), rtol=1e-8, atol=1e-10)
        np.testing.assert_allclose(db, y if rhs.ndim == 2 else y.sum(0), rtol=1e-8, atol=1e-10)
        assert len(made) == (5 if v.ndim == 2 else 1)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("method", METHODS)
def test_second_derivatives(method: str, made: list[int]) -> None:
    places = pattern(False)
    first, change, w = values_on(places, "float64"), values_on(places, "float64"), RNG.normal(size=N)

    def f(t: Any) -> Any:
        return w @ linear_solve(COO(first + t * change, *places, shape=(N, N)), jnp.ones(N), method=method).x

    A, dA = dense(places, first + 0.5 * change), dense(places, change)
    x = np.linalg.solve(A, np.ones(N))
    expected = w @ (2 * np.linalg.solve(A, dA @ np.linalg.solve(A, dA @ x)))
    for second in (jax.grad(jax.grad(f)), jax.jacfwd(jax.grad(f))):
        made.clear()
        krylix.clear_setup_cache()
        np.testing.assert_allclose(jax.jit(second)(0.5), expected, rtol=1e-8)
        assert len(made) == 1


@pytest.mark.needs("jax")
@pytest.mark.parametrize("method", METHODS)
def test_special_values(method: str) -> None:
    """Singular ones, with and without a solution, and such as are no numbers; then regular ones by the same program."""
    places = pattern(True)
    rows, columns = places
    off = -(np.abs(values_on(places, "float64")) + 0.1) * (rows != columns)
    off = (lambda A: (A + A.T)[rows, columns])(dense(places, off))
    closed = np.where(rows == columns, -dense(places, off).sum(1)[rows], off)

    @jax.jit
    def solve(v: Any, b: Any) -> Any:
        return linear_solve(COO(v, *places, shape=(N, N)), b, method=method, on_failure="status")

    b = RNG.normal(size=N)
    for _ in range(2):  # kept solvers say the same
        found = solve(closed, b - b.mean())
        assert found.converged and found.singular
        np.testing.assert_allclose(dense(places, closed) @ found.x, b - b.mean(), atol=1e-8)
        assert abs(found.x.mean()) < 1e-8
        assert not solve(closed * np.where(rows == 5, 0, 1), b).converged
        assert not solve(np.where(rows == 7, np.nan, closed), b).converged
        regular = closed + (rows == columns)
        found = solve(regular, b)
        assert found.converged and not found.singular
        np.testing.assert_allclose(found.x, np.linalg.solve(dense(places, regular), b), rtol=1e-9, atol=1e-10)


@pytest.mark.needs("jax")
@pytest.mark.parametrize("on_failure", ["nan", "status", "warn"])
def test_other_policies(on_failure: str, made: list[int]) -> None:
    places, b = pattern(False), RNG.normal(size=N)
    values = values_on(places, "float64")

    def total(v: Any) -> Any:
        A = COO(v, *places, shape=(N, N))
        return linear_solve(A, b, method="sparse-direct", on_failure=on_failure).x.sum()

    slope = jax.jit(jax.grad(total))(values)
    A = dense(places, values)
    y, x = np.linalg.solve(A.T, np.ones(N)), np.linalg.solve(A, b)
    np.testing.assert_allclose(slope, -y[places[0]] * x[places[1]], rtol=1e-8, atol=1e-10)
    assert len(made) == 1


@pytest.mark.needs("jax")
def test_numbers_that_differ_in_one_bit(made: list[int]) -> None:
    """They are other numbers, wherever they differ; and nothing is kept where that is turned off."""
    places, b = pattern(False), np.ones(N)
    values = values_on(places, "float64")

    @jax.jit
    def solve(v: Any) -> Any:
        return linear_solve(COO(v, *places, shape=(N, N)), b, method="sparse-direct").x

    solve(values)
    for at in (0, len(values) // 2, -1):
        other = values.copy()
        other[at] = np.nextafter(other[at], np.inf)
        solve(other)
    assert len(made) == 4
    solve(values)
    assert len(made) == 4
    krylix.set_global_setup_cache(False)
    try:
        jax.block_until_ready((solve(values), solve(values)))
    finally:
        krylix.set_global_setup_cache(True)
    assert len(made) == 6
