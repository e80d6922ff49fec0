"""A matrix counts as singular where the rounding of its stored entries allows it, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix import ConvergenceError, linear_solve
from krylix.sparse.analysis.singular import rounded_row_sums

LONG_STEP = 2e4  # rounding of x leaves a residual that counts as converged
TOO_LONG = 1e6  # ... and here it does not
GRIDS = [(24,), (7, 7), (5, 5, 5)]
FORMS = ["csr", "dense", "function", "opaque"]
METHODS = ["auto", "CG", "MINRES", "biCG-stab(2)", "GMRES", "direct", "scipy-direct", "fast-direct"]


def laplacian(grid: tuple[int, ...], periodic: bool) -> Callable[[np.ndarray], np.ndarray]:
    """`-sum of second differences`, with no flow through the boundary, or periodic."""

    def f(u: np.ndarray) -> np.ndarray:
        out = np.zeros_like(u)
        for axis in range(u.ndim):
            if periodic:
                out = out + (2 * u - np.roll(u, 1, axis) - np.roll(u, -1, axis))
                continue
            flux = np.diff(u, axis=axis)
            before, after = ([(0, 0)] * axis + [one] + [(0, 0)] * (u.ndim - axis - 1) for one in ((1, 0), (0, 1)))
            out = out + np.pad(flux, before) - np.pad(flux, after)
        return out

    return f


def matrix_of(f: Callable[[np.ndarray], np.ndarray], grid: tuple[int, ...]) -> np.ndarray:
    n = int(np.prod(grid))
    return np.stack([f(e.reshape(grid)).reshape(-1) for e in np.eye(n)], axis=1)


def system(grid: tuple[int, ...], periodic: bool, long: float, scaled: bool) -> tuple[Any, np.ndarray]:
    """A function `I + dt L`, or `L + I / dt`, in single precision, and its matrix as it is stored."""
    L, one = laplacian(grid, periodic), np.float32(1 / long if scaled else 1)
    dt = np.float32(1 if scaled else long)

    def f(u: np.ndarray) -> np.ndarray:
        return one.astype(u.dtype) * u + dt.astype(u.dtype) * L(u)

    return f, matrix_of(f, grid).astype(np.float32)


def in_form(form: str, f: Any, A: np.ndarray, grid: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    if form in ("function", "opaque"):
        opaque = lambda u: f(np.asarray(u.tolist(), u.dtype).reshape(u.shape))  # noqa: E731
        return (f if form == "function" else opaque), grid
    return (sp.csr_array(A) if form == "csr" else A), (len(A),)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("periodic", [False, True])
@pytest.mark.parametrize("grid", GRIDS)
@pytest.mark.parametrize("form", FORMS)
def test_long_steps_keep_the_mean(form: str, grid: tuple[int, ...], periodic: bool, scaled: bool) -> None:
    f, A = system(grid, periodic, LONG_STEP, scaled)
    b = (np.random.default_rng(0).standard_normal(len(A)) + 1).astype(np.float32)
    expected = np.linalg.solve(A.astype(float), b.astype(float))
    operand, shape = in_form(form, f, A, grid)
    for method in ("auto", "CG", "scipy-direct"):
        x = linear_solve(operand, b.reshape(shape), method=method).x.reshape(-1)
        np.testing.assert_allclose(x, expected, rtol=0.2, err_msg=method)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("grid", GRIDS)
def test_longer_ones_are_not_called_singular(grid: tuple[int, ...], scaled: bool, method: str) -> None:
    """The precision may not reach a solution. There is one, though, and a bound above the residual would be a lie."""
    f, A = system(grid, True, TOO_LONG, scaled)
    b = (np.random.default_rng(0).standard_normal(len(A)) + 1).astype(np.float32)
    expected = np.linalg.solve(A.astype(float), b.astype(float))
    for form in FORMS:
        if method == "fast-direct" and (form in ("dense", "opaque") or len(grid) == 1):
            continue  # which needs a grid of two axes, and shows it by its entries
        operand, shape = in_form(form, f, A, grid)
        try:
            x = linear_solve(operand, b.reshape(shape), method=method).x.reshape(-1)
        except ConvergenceError as error:
            assert "no solution" not in str(error).lower(), f"{form}: {error}"
            assert "no x leaves" not in str(error), f"{form}: {error}"
        else:
            np.testing.assert_allclose(x, expected, rtol=0.5, err_msg=form)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64"])
@pytest.mark.parametrize("dense", [False, True])
def test_rounded_sums_are_null(dtype: str, dense: bool, seed: int) -> None:
    """Diagonals that were added up in the working precision, of several regions."""
    rng = np.random.default_rng(seed)
    sizes, blocks = (30, 1, 17), []
    for n in sizes:
        k = (rng.uniform(0.1, 1, n) * 10 ** rng.uniform(-2, 2, n)).astype(dtype)
        off = np.zeros((n, n), dtype)
        for i in range(n - 1):
            off[i, i + 1] = off[i + 1, i] = -k[i]
        total = np.zeros(n, dtype)
        for i in range(n):
            for j in range(n):
                total[i] += off[i, j]  # one rounding each
        blocks.append(off - np.diag(total))
    A = sp.block_diag(blocks, format="csr").astype(dtype)
    order = rng.permutation(sum(sizes))
    A = sp.csr_array(A[order][:, order])
    labels = np.repeat(np.arange(len(sizes)), sizes)[order]
    b = (A @ rng.standard_normal(len(order))).astype(dtype)
    x = linear_solve(A.toarray() if dense else A, b, method="CG", rtol=1e-4).x
    size = np.abs(x).max()
    for i in range(len(sizes)):
        assert abs(x[labels == i].mean(dtype=complex)) <= 4 * np.finfo(dtype).eps * size


def test_row_sums_are_taken_in_double() -> None:
    A = np.array([[1e8, -1e8, 1.0], [0, 0, 0], [1, 1, 1]], np.float32)
    for form in (A, sp.csr_array(A)):
        found = rounded_row_sums(form)
        np.testing.assert_array_equal(found.sums, [1, 0, 3])
        np.testing.assert_allclose(found.allowed, [2 * 4 + 2.0**-24, 0, 3 * 2.0**-24])
        np.testing.assert_array_equal(found.negligible, [True, True, False])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_no_number_is_not_null(bad: float) -> None:
    A = np.array([[bad, -1.0], [-1.0, 1.0]])
    assert not rounded_row_sums(A).negligible[0]


def test_units_play_no_role() -> None:
    L = 2 * np.eye(4) - np.roll(np.eye(4), 1, 0) - np.roll(np.eye(4), -1, 0)
    for scale in (1e300, 1.0, 1e-300):
        assert rounded_row_sums(scale * L).negligible.all()
        assert not rounded_row_sums(scale * (L + 1e-12 * np.eye(4))).negligible.any()
