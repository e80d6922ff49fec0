"""`axis` of `solve_triangular` and of a prepared solver that is called: as that of `linear_solve`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from gradients import gradients
from krylix import choose_backend, prepare, solve_triangular
from modes import EAGER, array, compiled, library, native_sparse, to_numpy

N = 5
RNG = np.random.default_rng(3)
MATRIX = RNG.standard_normal((N, N)) + 5 * np.eye(N)
LOWER = np.tril(MATRIX)
COLUMNS = RNG.standard_normal((N, 3))
SQUARE = RNG.standard_normal((N, N))


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("mode", ["numpy", "jax-jit", "torch", "tf"])
def test_triangular(mode: str, form: str) -> None:
    T = array(mode, MATRIX) if form == "dense" else native_sparse(mode, MATRIX)
    batch, upper = RNG.standard_normal((2, N, 3)), LOWER.T
    cases: list[tuple[np.ndarray, dict[str, Any], np.ndarray]] = [  # b, settings, and x
        *((b, {"axis": 0}, np.linalg.solve(LOWER, b)) for b in (COLUMNS, SQUARE, COLUMNS[:, :1], SQUARE[0])),
        *((batch, {"axis": axis, "transpose": True}, np.linalg.solve(upper, batch)) for axis in (1, -2)),
        (SQUARE, {"axis": -1}, np.linalg.solve(LOWER, SQUARE.T).T),
    ][:: 1 if mode in EAGER else 2]

    def solve_each(*sides: Any) -> list[Any]:
        return [solve_triangular(T, b, lower=True, **case[1]) for b, case in zip(sides, cases, strict=True)]

    found = compiled(mode, solve_each)(*(array(mode, b) for b, *_ in cases))
    for x, (b, _, expected) in zip(found, cases, strict=True):
        assert tuple(x.shape) == b.shape
        np.testing.assert_allclose(to_numpy(x), expected, rtol=1e-8)


@pytest.mark.parametrize("mode", EAGER)
def test_triangular_batches(mode: str) -> None:
    """The systems of a batch of matrices are the other axes of b."""
    many = np.stack([MATRIX, 2 * MATRIX.T, 3 * MATRIX])
    x = solve_triangular(array(mode, many), array(mode, COLUMNS), lower=True, axis=0)
    want = np.stack([np.linalg.solve(np.tril(A), b) for A, b in zip(many, COLUMNS.T, strict=True)], 1)
    np.testing.assert_allclose(to_numpy(x), want, rtol=1e-8)


def test_a_square_b_must_be_told() -> None:
    for T in (MATRIX, sp.csr_array(MATRIX)):
        with pytest.raises(ValueError, match="axis=0 for columns"):
            prepare(T)(SQUARE)
        for b, settings, error, words in (
            (SQUARE, {}, ValueError, "axis=0 for columns"),
            (COLUMNS, {}, ValueError, "give axis=0"),
            (COLUMNS, {"axis": 2}, ValueError, "expected one of its axes"),
            (COLUMNS, {"axis": 0.0}, TypeError, "axis must be an integer"),
        ):
            with pytest.raises(error, match=words):
                solve_triangular(T, b, lower=True, **settings)
    many = np.stack([MATRIX] * N)
    np.testing.assert_allclose(solve_triangular(many, SQUARE, lower=True), np.linalg.solve(LOWER, SQUARE.T).T)


@pytest.mark.parametrize(("mode", "form"), [("jax-jit", "dense"), ("jax-jit", "sparse"), ("torch", "dense")])
def test_derivatives(mode: str, form: str) -> None:
    w, total = RNG.standard_normal((N, 3)), choose_backend(library(mode)).sum
    T = MATRIX if form == "dense" else native_sparse(mode, MATRIX)

    def loss(b: Any, T: Any = T) -> Any:
        return total(solve_triangular(T, b, lower=True, axis=0) * array(mode, w), (0, 1))

    found = gradients(mode, loss, COLUMNS, *([T] if form == "dense" else []))
    y = np.linalg.solve(LOWER.T, w)
    for gradient, expected in zip(found, (y, np.tril(-y @ np.linalg.solve(LOWER, COLUMNS).T)), strict=False):
        np.testing.assert_allclose(gradient, expected, rtol=1e-7)


@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("method", ["auto", "GMRES"])
def test_prepared(mode: str, method: str) -> None:
    solver = prepare(array(mode, MATRIX), method=method, rtol=1e-10)
    for b in (COLUMNS, SQUARE):
        np.testing.assert_allclose(to_numpy(solver(array(mode, b), axis=0)), np.linalg.solve(MATRIX, b), rtol=1e-7)
    rows = solver(array(mode, SQUARE), axis=-1)
    np.testing.assert_allclose(to_numpy(rows), np.linalg.solve(MATRIX, SQUARE.T).T, rtol=1e-7)
    as_columns = prepare(array(mode, MATRIX), method=method, rtol=1e-10, axis=0)
    np.testing.assert_allclose(to_numpy(as_columns(array(mode, SQUARE), axis=-1)), to_numpy(rows), rtol=1e-7)
