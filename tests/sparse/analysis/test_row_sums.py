"""Facts of diagonals by sums over rows, against those of the entries row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from krylix.sparse import as_operator
from krylix.sparse.analysis.analysis import RowSums, row_sums
from krylix.sparse.analysis.facts import has_diagonal_of_one_sign, is_diagonally_dominant
from krylix.sparse.formats import DIA


def sums_of(A: Any) -> RowSums:
    found = row_sums(as_operator(sp.csr_array(A)).to("dia"))  # type: ignore[attr-defined]
    assert found is not None
    return found


def random(seed: int, n: int = 60, dtype: str = "float64") -> sp.csr_array:
    rng = np.random.default_rng(seed)
    offsets = np.unique([0, *rng.integers(-n + 1, n, 4)])
    A = sp.diags_array([rng.standard_normal(n - abs(k)) for k in offsets], offsets=offsets, shape=(n, n))
    return sp.csr_array(A * (1 - 0.5j) if dtype.startswith("complex") else A).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("seed", range(5))
def test_sums(seed: int, dtype: str) -> None:
    A = random(seed, dtype=dtype)
    found, dense = sums_of(A), A.toarray()
    eps = np.finfo(dtype).eps
    np.testing.assert_array_equal(found.diagonal, np.diag(dense).real)
    np.testing.assert_allclose(found.size, np.abs(np.diag(dense)), rtol=4 * eps)
    np.testing.assert_allclose(found.others, np.abs(dense).sum(1) - np.abs(np.diag(dense)), atol=20 * eps)


def cases() -> dict[str, sp.csr_array]:
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(90, 90), format="csr")
    weights = np.random.default_rng(0).random(89)
    laplacian = sp.diags_array([-weights, -weights], offsets=[-1, 1])
    laplacian = sp.csr_array(laplacian - sp.diags_array(np.asarray(laplacian.sum(1)).ravel()))
    hole, far = line.tolil(), line.tolil()
    hole[40, :] = 0
    far[40, 40] = 1.99
    zero, both = line.tolil(), line.tolil()
    zero[40, 40], both[40, 40] = 0, -2
    beyond = sp.diags_array([-1e308, 1.5e308, -1e308], offsets=[-1, 0, 1], shape=(90, 90))  # sums overflow
    one_nan, infinite = line.copy(), line.copy()
    one_nan.data[100], infinite.data[99] = np.nan, np.inf
    found = {
        "line": line, "negative": -line, "rounded": laplacian, "single": laplacian.astype(np.float32),
        "a row of zeros": hole, "not quite": far, "zero on the diagonal": zero, "both signs": both, "NaN": one_nan,
        "infinite": infinite, "huge": 6e307 * line, "tiny": 1e-310 * line, "zeros": 0 * line, "beyond": beyond,
        "complex": line * 1j,
    }  # fmt: skip
    return {name: sp.csr_array(A) for name, A in found.items()}


@pytest.mark.parametrize("name", cases())
def test_facts(name: str) -> None:
    A, found = cases()[name], sums_of(cases()[name])
    assert found.is_dominant == is_diagonally_dominant(A)
    assert found.one_sign == has_diagonal_of_one_sign(A)


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.02, 3.0])
def test_dominates(factor: float) -> None:
    A = random(3) + 4 * sp.eye_array(60)
    dense = np.abs(A.toarray())
    size = np.diag(dense)
    assert sums_of(A).dominates(factor) == bool(np.all(size >= factor * (dense.sum(1) - size)))


def test_others_have_none() -> None:
    A = random(0)
    assert row_sums(as_operator(A)) is None  # in rows
    assert row_sums(as_operator([A, A]).to("dia")) is None  # type: ignore[attr-defined]
    assert row_sums(DIA(np.ones((2, 3)), [0, 1], (3, 4))) is None


def test_what_lies_outside_of_the_matrix_does_not_count() -> None:
    found = row_sums(DIA(np.full((3, 4), 7.0), [-1, 0, 1], (4, 4)))
    assert found is not None
    np.testing.assert_array_equal(found.others, [7, 14, 14, 7])
