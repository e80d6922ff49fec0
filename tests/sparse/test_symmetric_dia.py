"""Symmetric diagonals of which products read one half: the same digits; and `add_to` of all operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import krylix
from krylix.backends.host_math import cores
from krylix.backends.numpy import kernels
from krylix.sparse import DIA, as_symmetric_dia
from krylix.sparse.operators import wrappers
from krylix.sparse.operators.wrappers import SymmetricDIA
from matrices import in_krylix
from modes import EAGER, array, compiled, product, to_numpy

OFFSETS = (-9, -8, -1, 0, 1, 8, 9)
N = 40


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if matrices and parts of them were large and small."""
    monkeypatch.setattr(wrappers, "_LEAST", 1)
    monkeypatch.setattr(kernels, "_BYTES", 56)


def symmetric(dtype: str, outside: float = np.nan) -> DIA:
    """With what is no number where the diagonals leave the matrix."""
    rng = np.random.default_rng(1)
    values = np.full((len(OFFSETS), N), outside, dtype)
    for d, o in enumerate(OFFSETS):
        if o >= 0:
            own = rng.standard_normal(N - o).astype(dtype)
            values[d, : N - o] = own
            values[OFFSETS.index(-o), o:] = own
    return DIA(values, OFFSETS, (N, N))


def dense(A: DIA) -> np.ndarray:
    values = np.asarray(A.values)
    return sum(np.diag(row[max(0, -o) : N - max(0, o)], o) for row, o in zip(values, A.structure.offsets, strict=True))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_same_digits(dtype: str, batch: int, threads: int) -> None:
    A = symmetric(dtype)
    half = as_symmetric_dia(A)
    assert isinstance(half, SymmetricDIA) and half.shape == A.shape and half.dtype == A.dtype
    rng = np.random.default_rng(2)
    x, y = (rng.standard_normal((batch, N)).astype(dtype) for _ in range(2))
    x[:, 3] = np.inf
    cores.use(threads)
    try:
        np.testing.assert_array_equal(half.apply(x), A.apply(x))
        np.testing.assert_array_equal(half.add_to(y.copy(), x), A.add_to(y.copy(), x))
        x[:, 3] = 1
        limit = 1e-5 if dtype == "float32" else 1e-14
        exact = x.astype("float64") @ dense(A).astype("float64").T
        np.testing.assert_allclose(half.apply(x), exact, atol=20 * limit)
        np.testing.assert_allclose(half.add_to(y.copy(), x), y + exact, atol=20 * limit)
        strided = np.asfortranarray(np.stack([y, y], axis=2))[:, :, 0]
        np.testing.assert_allclose(half.add_to(strided, x), y + exact, atol=20 * limit)
    finally:
        cores.use(None)


def test_vectors_of_another_dtype() -> None:
    """As of the matrix itself."""
    A = symmetric("float32")
    half, rng = as_symmetric_dia(A), np.random.default_rng(3)
    for dtype in ("float64", "complex64", "complex128"):
        x, y = (rng.standard_normal((1, N)).astype(dtype) for _ in range(2))
        np.testing.assert_array_equal(half.apply(x), A.apply(x))
        np.testing.assert_allclose(half.add_to(y.copy(), x), y + A.apply(x), rtol=1e-12)
    assert as_symmetric_dia(A).astype(np.dtype("float64")).dtype == np.float64 and as_symmetric_dia(A).T.shape == (N, N)


def test_others_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    A = symmetric("float64")
    values = np.array(A.values)
    for d, i in ((0, 20), (2, 5), (6, 1)):
        other = values.copy()
        other[d, i] = np.nextafter(other[d, i], 2)
        changed = DIA(other, OFFSETS, (N, N))
        assert as_symmetric_dia(changed) is changed
    for other in (DIA(values[1:], OFFSETS[1:], (N, N)), DIA(np.stack([values] * 2), OFFSETS, (N, N)),
                  DIA(values + 0j, OFFSETS, (N, N)), A.to("csr")):  # fmt: skip
        assert as_symmetric_dia(other) is other
    monkeypatch.setattr(wrappers, "_LEAST", N + 1)
    assert as_symmetric_dia(A) is A


@pytest.mark.parametrize("mode", EAGER)
@pytest.mark.parametrize("format", ["dia", "csr", "coo", "dense", "function"])
@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_added_to_in_every_library(mode: str, format: str, dtype: str) -> None:
    """y + A x, whatever becomes of the memory of y; x stays."""
    rng = np.random.default_rng(4)
    m = np.asarray(sp.random_array((7, 7), density=0.5, rng=rng).toarray(), dtype)
    x, y = (rng.standard_normal((2, 7)).astype(dtype) for _ in range(2))
    given: Any = array(mode, m) if format in ("dense", "function") else in_krylix(mode, sp.csr_array(m), format)
    like = array(mode, x[0])
    A = krylix.as_operator(given if format != "function" else product(mode, given), like)

    def added(x: Any, y: Any) -> Any:
        return A.add_to(1 * y, x)

    rows = (x, y) if format != "function" else (x[:1], y[:1])
    found = to_numpy(compiled(mode, added)(*(array(mode, v) for v in rows)))
    exact = rows[1] + rows[0].astype("complex128") @ m.T
    np.testing.assert_allclose(found, exact, atol=1e-5 if dtype == "float32" else 1e-13)
    assert found.dtype == np.dtype(dtype)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("tracked", ["x", "y", "values", "vmap"])
def test_recorded_in_torch(tracked: str) -> None:
    """Where derivatives are recorded, or a transformation runs, nothing is overwritten."""
    import torch

    values = torch.tensor(np.nan_to_num(np.asarray(symmetric("float64").values)))
    x, y = torch.randn(2, 1, N, dtype=torch.float64)
    matrix = torch.tensor(dense(symmetric("float64")))
    if tracked == "vmap":
        A = DIA(values, OFFSETS, (N, N))
        both = torch.randn(3, 1, N, dtype=torch.float64)
        found = torch.vmap(lambda x: A.add_to(2 * x, x))(both)
        torch.testing.assert_close(found, 2 * both + both @ matrix.T)
        return
    leaf = {"x": x, "y": y, "values": values}[tracked].requires_grad_()
    found = DIA(values, OFFSETS, (N, N)).add_to(1 * y, x)
    torch.testing.assert_close(found.detach(), (y + x @ matrix.T).detach())
    (grad,) = torch.autograd.grad((found**2).sum(), leaf)
    assert torch.count_nonzero(grad) > 0.5 * grad.numel()
    if tracked != "values":
        expected = 2 * (y + x @ matrix.T) @ (matrix if tracked == "x" else torch.eye(N, dtype=torch.float64))
        torch.testing.assert_close(grad, expected.detach())
