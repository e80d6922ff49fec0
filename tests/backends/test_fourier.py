"""Fourier transforms of each library against NumPy's, eager and compiled."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from frameworks import torch
from krylix.backends import get_backend
from krylix.solvers.fast.transforms import transform_matrix, trigonometric_transform
from modes import COMPILED, EAGER, array, compiled, library, to_numpy

rng = np.random.default_rng(0)


AXES = ((3,), (1,), (1, 3), (1, 2, 3))


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("mode", [*EAGER, *COMPILED])
def test_forward_and_backward(mode: str, dtype: str) -> None:
    """Of even and odd lengths; real arrays come back real, in their own precision."""
    fourier: Any = get_backend(library(mode)).fourier
    x = rng.standard_normal((2, 3, 4, 5)).astype(dtype)
    real, close = not dtype.startswith("c"), 1e-5 if dtype in ("float32", "complex64") else 1e-13
    x = x if real else x * np.exp(1j * np.arange(5)).astype(dtype)
    exact = [
        (np.fft.rfftn if real else np.fft.fftn)(x, axes=axes).astype(np.result_type(dtype, 1j * x)) for axes in AXES
    ]

    def both(x: Any, *spectra: Any) -> Any:
        lengths = [x.shape[axes[-1]] if real else None for axes in AXES]
        back = [fourier.backward(*given) for given in zip(spectra, AXES, lengths, strict=True)]
        return [fourier.forward(x, axes) for axes in AXES], back

    spectra, back = compiled(mode, both)(array(mode, x), *(array(mode, spectrum) for spectrum in exact))
    for found, again, want in zip(map(to_numpy, spectra), map(to_numpy, back), exact, strict=True):
        assert found.dtype == np.result_type(dtype, "complex64") and again.dtype == dtype
        np.testing.assert_allclose(found, want, atol=20 * close)
        np.testing.assert_allclose(again, x, atol=close)


@pytest.mark.parametrize("mode", EAGER)
def test_parts(mode: str) -> None:
    fourier: Any = get_backend(library(mode)).fourier
    x = rng.standard_normal((3, 2)) + 1j * rng.standard_normal((3, 2))
    real, imaginary = fourier.parts(array(mode, x))
    np.testing.assert_array_equal(to_numpy(real), x.real)
    np.testing.assert_array_equal(to_numpy(imaginary), x.imag)
    np.testing.assert_array_equal(to_numpy(fourier.complex(real, imaginary)), x)


def test_any_number_of_threads_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    from krylix.backends.numpy import kernels

    x, own = rng.standard_normal((300, 200)), get_backend("numpy").fourier
    found = []
    for cores in (1, 2, 5):
        monkeypatch.setattr(kernels, "_CORES", cores)
        found.append([own.forward(x, (0, 1)), own.trigonometric("DST-I", x, (0, 1))])
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.needs("torch")
@pytest.mark.parametrize("kind", ["DST-I", "DCT-II", "DCT-III", "DST-IV"])
def test_torch_hands_plain_tensors_only_to_another_library(kind: str) -> None:
    from torch.autograd import forward_ad
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watched(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    class Dispatched(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    bk = get_backend("torch")

    def own(x: Any) -> Any:
        return bk.fourier.trigonometric(kind, x, (1,))

    x = torch.as_tensor(rng.standard_normal((3, 7)))
    exact = transform_matrix(kind, 7)
    for given in (x, x + 0.5j * x, x.T.contiguous().T, (x + 0j).conj(), x.float()):
        close = 1e-6 if given.dtype == torch.float32 else 1e-14
        np.testing.assert_allclose(own(given).numpy(), to_numpy(given) @ exact.T, atol=close)
    differentiable = x.clone().requires_grad_()
    with torch.no_grad():
        assert own(differentiable) is not None
    assert own(differentiable) is None
    for mode in (Watched(), Dispatched()):
        with mode:
            assert own(x) is None
    with forward_ad.dual_level():
        assert own(forward_ad.make_dual(x, x)) is None
    for transformation in (torch.func.vmap, lambda f: lambda x: torch.func.jvp(f, (x,), (x,))[1]):
        np.testing.assert_allclose(
            transformation(lambda x: trigonometric_transform(bk, kind, x[None], (1,))[0])(
                x[:1] if transformation is torch.func.vmap else x[0]
            ).reshape(-1, 7),
            to_numpy(x[:1]) @ exact.T,
            atol=1e-14,
        )
    jacobian = torch.autograd.functional.jacobian(
        lambda x: trigonometric_transform(bk, kind, x, (1,)), x[:1], vectorize=True
    )
    np.testing.assert_allclose(jacobian.reshape(7, 7).numpy(), exact, atol=1e-14)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it is old, and that shapes are constants
        traced_one = torch.jit.trace(lambda x: trigonometric_transform(bk, kind, x, (1,)), x, check_trace=False)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(traced_one(2 * x).numpy(), 2 * to_numpy(x) @ exact.T, atol=1e-14)
    compiled_one = torch.compile(lambda x: trigonometric_transform(bk, kind, x, (1,)), backend="eager")
    np.testing.assert_allclose(compiled_one(x).numpy(), to_numpy(x) @ exact.T, atol=1e-14)
