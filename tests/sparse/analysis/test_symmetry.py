"""Diagonals that are seen to be Hermitian digit by digit: only those that are."""

from __future__ import annotations

import numpy as np
import pytest

from krylix import as_operator, linear_solve
from krylix.sparse import DIA, Matrix
from krylix.sparse.analysis.analysis import analysis_of, asymmetry

N = 9
OFFSETS = (-3, -1, 0, 1, 3)


def seems_hermitian(A: Matrix) -> bool:
    return analysis_of(A).seems_hermitian


def hermitian(dtype: str, outside: float = 0) -> np.ndarray:
    """Diagonals `(5, 9)`, with some number where they leave the matrix."""
    rng = np.random.default_rng(2)
    A = rng.standard_normal((N, N)) + (1j * rng.standard_normal((N, N)) if dtype.startswith("complex") else 0)
    A = (A + A.conj().T).astype(dtype)
    values = np.full((len(OFFSETS), N), outside, dtype)
    for row, offset in zip(values, OFFSETS, strict=True):
        row[max(0, -offset) : N - max(0, offset)] = np.diagonal(A, offset)
    return values


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("outside", [0, np.nan])
def test_hermitian_digit_by_digit(dtype: str, outside: float) -> None:
    """With any digit changed it is not; what lies outside of the matrix is not looked at."""
    values = hermitian(dtype, outside)
    A = DIA(values, OFFSETS, (N, N))
    assert A.is_exactly_hermitian() and asymmetry(A) == 0
    for d, offset in enumerate(OFFSETS):
        for i in range(max(0, -offset), N - max(0, offset)):
            for change in (2 * np.finfo(dtype).eps * abs(values[d, i]), 1.0, np.nan, np.inf):
                other = values.copy()
                other[d, i] += change * (1j if offset == 0 and dtype.startswith("complex") else 1)
                changed = DIA(other, OFFSETS, (N, N))
                exact = offset == 0 and not dtype.startswith("complex") and np.isfinite(change)
                assert changed.is_exactly_hermitian() == exact
                if not 1e-12 < change < 1:  # rounding in single precision is near what decides
                    assert seems_hermitian(changed) == bool(exact or change < 1), (offset, i, change)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_equal_entries_that_are_no_numbers(value: float) -> None:
    """Infinite on both sides of the diagonal is left to the products, which say no."""
    values = hermitian("float64")
    values[1, 4] = values[3, 3] = value
    A = DIA(values, OFFSETS, (N, N))
    assert not A.is_exactly_hermitian() and not seems_hermitian(A)


def test_others_are_left_open() -> None:
    values = hermitian("float64")
    A = DIA(values, OFFSETS, (N, N))
    assert not DIA(values[1:], OFFSETS[1:], (N, N)).is_exactly_hermitian()  # one side has a diagonal more
    assert not DIA(values, OFFSETS, (N, N + 1)).is_exactly_hermitian()
    assert not DIA(np.stack([values, values]), OFFSETS, (N, N)).is_exactly_hermitian()  # a batch
    assert not A.to("csr").is_exactly_hermitian() and seems_hermitian(A.to("csr"))


@pytest.mark.parametrize("size", [1e-170, 1.0, 1e170])
def test_units_do_not_matter(size: float) -> None:
    """Squares of such entries are zero or infinite."""
    A = np.random.default_rng(5).standard_normal((N, N)) + N * np.eye(N)
    rounded = (A + A.T) * (1 + 1e-16 * np.sign(A))
    assert asymmetry(as_operator(size * A)) == pytest.approx(asymmetry(as_operator(A)), rel=1e-12)
    assert asymmetry(as_operator(size * A)) > 0.01 and asymmetry(as_operator(size * rounded)) < 1e-15
    b = size * A @ np.ones(N)
    assert linear_solve(size * A, b, method="direct").iterations == 1
