"""Eigenvectors by formulas, and fast transforms into them, against SciPy and against sums."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.sparse as sp

from krylix.backends import get_backend
from krylix.solvers.fast.spectra import trigonometric_eigenvectors
from krylix.solvers.fast.transforms import KINDS, is_fast, transform_matrix, trigonometric_transform
from modes import EAGER, array, compiled, library, to_numpy

ENDS = {"point": 0.0, "derivative": 1.0, "value": -1.0}
TYPES = {"I": 1, "II": 2, "III": 3, "IV": 4}
WAVES = [kind for kind in KINDS if kind != "periodic"]
rng = np.random.default_rng(0)


def by_sum(kind: str, x: np.ndarray) -> np.ndarray:
    """Along the last axis: by SciPy, or by the definition of Martucci's kinds, whose scale is the same for all."""
    family, number = kind.split("-")
    n = x.shape[-1]
    if number in TYPES:
        transform: Any = scipy.fft.dst if family == "DST" else scipy.fft.dct
        found: np.ndarray = transform(x.astype(np.result_type(x, float)), TYPES[number], norm="ortho")
        return found
    j, k = np.arange(n), np.arange(n)[:, None]
    angle = {
        "DST-V": (j + 1) * (k + 1),
        "DST-VI": (j + 0.5) * (k + 1),
        "DST-VII": (j + 1) * (k + 0.5),
        "DCT-VIII": (j + 0.5) * (k + 0.5),
    }[kind] * (np.pi / (n + 0.5))
    return np.asarray(x @ (np.sin if family == "DST" else np.cos)(angle).T * (2 / np.sqrt(2 * n + 1)))


@pytest.mark.parametrize("n", [3, 4, 9, 300])
@pytest.mark.parametrize(("first", "last"), [*itertools.product(ENDS, repeat=2)])
def test_formulas_of_eigenvectors(first: str, last: str, n: int) -> None:
    c = 0.7
    A = np.diag(np.full(n, 2.3)) + c * (np.eye(n, k=1) + np.eye(n, k=-1))
    A[0, 0] += c * ENDS[first]
    A[-1, -1] += c * ENDS[last]
    base, values, kind, *_ = trigonometric_eigenvectors(sp.csr_array(A), 2.2e-16)  # type: ignore[misc]
    np.testing.assert_allclose(np.sort(base + values), np.linalg.eigvalsh(A), atol=1e-12)
    T = transform_matrix(kind, n)
    np.testing.assert_allclose(T @ T.T, np.eye(n), atol=1e-13)
    np.testing.assert_allclose(T.T * (base + values) @ T, A, atol=1e-13)


@pytest.mark.parametrize("n", [5, 6, 101])
def test_formulas_of_periodic_axes(n: int) -> None:
    row = np.zeros(n)
    row[[0, 1, 2, -2, -1]] = 2.5, -1.3, 0.1, 0.1, -1.3
    A = np.array([np.roll(row, k) for k in range(n)])
    base, values, kind, *_ = trigonometric_eigenvectors(sp.csr_array(A), 2.2e-16)  # type: ignore[misc]
    T = transform_matrix(kind, n)
    assert kind == "periodic"
    np.testing.assert_allclose(T.T * (base + values) @ T, A, atol=1e-13)
    np.testing.assert_allclose(base + values, np.fft.fft(row).real, atol=1e-13)


def test_small_eigenvalues_keep_their_digits() -> None:
    """Those of smooth waves, which are sums that nearly cancel."""
    n = 4096
    A = sp.diags_array([-1.0, 0.0, -1.0], offsets=[-1, 0, 1], shape=(n, n), format="csr")
    base, values, *_ = trigonometric_eigenvectors(A, 2.2e-16)  # type: ignore[misc]
    assert base == -2
    exact = 4 * np.sin(np.pi * np.arange(1, 6) / (2 * n + 2)) ** 2
    np.testing.assert_allclose(values[:5], exact, rtol=1e-14)


@pytest.mark.parametrize("change", ["one entry", "one side", "an end", "not symmetric"])
def test_what_is_nearly_of_constants_has_no_formula(change: str) -> None:
    n = 8
    row = np.zeros(n)
    row[[0, 1, -1]] = 2.0, -1.0, -1.0
    A = np.array([np.roll(row, k) for k in range(n)])
    assert trigonometric_eigenvectors(sp.csr_array(A), 2.2e-16) is not None
    if change == "one entry":
        A[3, 4] -= 1e-9
    elif change == "one side":
        A[0, -1] = 0
    elif change == "an end":
        A[0, -1] = A[-1, 0] = 0
        A[0, 0] += 0.5
    else:
        A = A + 0.1 * (np.roll(np.eye(n), 1, 0) - np.roll(np.eye(n), -1, 0))
    assert trigonometric_eigenvectors(sp.csr_array(A), 2.2e-16) is None


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        # JAX compiles each operation of each shape; four kinds are compiled whole below, of which the others are made
        pytest.param(mode, kind, marks=pytest.mark.slow if mode == "jax" and kind != "DCT-III" else ())
        for mode in EAGER
        for kind in WAVES
    ],
)
def test_transforms(mode: str, kind: str) -> None:
    """Lengths that are even, odd and one; along each axis; of all dtypes, which stay as they are."""
    bk = get_backend(library(mode))
    cells = [*itertools.product((1, 2, 7, 8), ("float32", "float64", "complex64", "complex128"))]
    # where each shape is a program, as many as have every length and every dtype
    for n, dtype in cells if mode in ("numpy", "torch") else cells[::5]:
        x = rng.standard_normal((2, n, 3)).astype(dtype)
        x = x * np.exp(1j * np.arange(3)).astype(dtype) if dtype.startswith("c") else x
        exact = np.moveaxis(by_sum(kind, np.moveaxis(x, 1, -1)), -1, 1)
        given = array(mode, x)
        # of tensors whose derivatives are recorded PyTorch makes its own transforms
        for one in (given, given.clone().requires_grad_()) if mode == "torch" else (given,):
            found = to_numpy(trigonometric_transform(bk, kind, one, (1,)))
            assert found.dtype == dtype
            np.testing.assert_allclose(found, exact, atol=3e-6 if dtype in ("float32", "complex64") else 3e-14)
    x = rng.standard_normal((2, 5, 4))
    exact = np.moveaxis(by_sum(kind, np.moveaxis(by_sum(kind, x), 1, -1)), -1, 1)
    np.testing.assert_allclose(to_numpy(trigonometric_transform(bk, kind, array(mode, x), (1, 2))), exact, atol=3e-14)


@pytest.mark.parametrize("kind", ["DST-I", "DST-III", "DCT-II", "DCT-VIII"])
@pytest.mark.parametrize("mode", ["jax-jit", "tf-function"])
def test_compiled_transforms(mode: str, kind: str) -> None:
    bk = get_backend(library(mode))
    x = rng.standard_normal((3, 6))
    found = compiled(mode, lambda x: trigonometric_transform(bk, kind, x, (1,)))(array(mode, x))
    np.testing.assert_allclose(to_numpy(found), by_sum(kind, x), atol=1e-14)


def test_short_lines_and_lengths_with_large_prime_factors_are_multiplied() -> None:
    """Where SciPy's transform took longer than the product: 46 ms for 14 with n = 256, of length 2 * 257."""
    bk = get_backend("numpy")
    assert is_fast(bk, "DCT-II", 256) and is_fast(bk, "DST-I", 1023)
    assert not is_fast(bk, "DCT-II", 32) and not is_fast(bk, "DST-I", 256)
    assert is_fast(bk, "DST-I", 100_002)  # 2 n + 2 has the factor 14 293
