"""Fast Fourier transforms by the `fft` extension of the array API standard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..interface.arrays import Array
from ..interface.kernels import Fourier


class ArrayApiFourier(Fourier):
    """The library's own transforms, which need its `fft`."""

    cost = 5.0
    along_any_axis = True

    def __init__(self, namespace: Any, is_complex: Callable[[Array], bool]) -> None:
        self.namespace, self._is_complex = namespace, is_complex

    def forward(self, x: Array, axes: Sequence[int]) -> Array:
        fft = self.namespace.fft
        return (fft.fftn if self._is_complex(x) else fft.rfftn)(x, axes=tuple(axes))

    def backward(self, x: Array, axes: Sequence[int], length: int | None) -> Array:
        fft = self.namespace.fft
        if length is None:
            return fft.ifftn(x, axes=tuple(axes))
        lengths = (*(int(x.shape[axis]) for axis in axes[:-1]), length)
        return fft.irfftn(x, s=lengths, axes=tuple(axes))

    def parts(self, x: Array) -> tuple[Array, Array]:
        return self.namespace.real(x), self.namespace.imag(x)

    def complex(self, real: Array, imaginary: Array) -> Array:
        xp = self.namespace
        dtype = xp.result_type(real.dtype, xp.complex64)
        return xp.astype(real, dtype) + xp.astype(imaginary, dtype) * 1j
