"""Fourier transforms of each library against NumPy's, eager and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from krylix.backends import get_backend
from modes import COMPILED, EAGER, array, compiled, library, to_numpy

rng = np.random.default_rng(0)


@pytest.mark.parametrize("axes", [(3,), (1,), (1, 3), (1, 2, 3)])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("mode", [*EAGER, *COMPILED])
def test_forward_and_backward(mode: str, dtype: str, axes: tuple[int, ...]) -> None:
    """Of even and odd lengths; real arrays come back real, in their own precision."""
    fourier: Any = get_backend(library(mode)).fourier
    x = rng.standard_normal((2, 3, 4, 5)).astype(dtype)
    real, close = not dtype.startswith("c"), 1e-5 if dtype in ("float32", "complex64") else 1e-13
    x = x if real else x * np.exp(1j * np.arange(5)).astype(dtype)
    length = x.shape[axes[-1]] if real else None
    spectrum = to_numpy(compiled(mode, lambda x: fourier.forward(x, axes))(array(mode, x)))
    exact = (np.fft.rfftn if real else np.fft.fftn)(x, axes=axes)
    assert spectrum.dtype == np.result_type(dtype, "complex64")
    np.testing.assert_allclose(spectrum, exact, atol=20 * close)
    back = to_numpy(compiled(mode, lambda x: fourier.backward(x, axes, length))(array(mode, spectrum)))
    assert back.dtype == dtype
    np.testing.assert_allclose(back, x, atol=close)


@pytest.mark.parametrize("mode", EAGER)
def test_parts(mode: str) -> None:
    fourier: Any = get_backend(library(mode)).fourier
    x = rng.standard_normal((3, 2)) + 1j * rng.standard_normal((3, 2))
    real, imaginary = fourier.parts(array(mode, x))
    np.testing.assert_array_equal(to_numpy(real), x.real)
    np.testing.assert_array_equal(to_numpy(imaginary), x.imag)
    np.testing.assert_array_equal(to_numpy(fourier.complex(real, imaginary)), x)


def test_any_number_of_threads_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from krylix.backends.numpy import fourier

    x, own = rng.standard_normal((300, 200)), get_backend("numpy").fourier
    found = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(fourier, "_CORES", cores)
        found.append([own.forward(x, (0, 1)), own.trigonometric("DST-I", x, (0, 1))])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
