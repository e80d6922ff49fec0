"""Fourier transforms in PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..interface.arrays import Array
from ..interface.fourier import Fourier


class TorchFourier(Fourier):
    """`torch.fft`."""

    cost = 3.0

    def forward(self, x: Array, axes: Sequence[int]) -> Array:
        return (torch.fft.fftn if x.is_complex() else torch.fft.rfftn)(x, dim=tuple(axes))

    def backward(self, x: Array, axes: Sequence[int], length: int | None) -> Array:
        if length is None:
            return torch.fft.ifftn(x, dim=tuple(axes))
        return torch.fft.irfftn(x, (*(x.shape[axis] for axis in axes[:-1]), length), tuple(axes))

    def parts(self, x: Array) -> tuple[Array, Array]:
        return x.real, x.imag

    def complex(self, real: Array, imaginary: Array) -> Array:
        return torch.complex(real, imaginary)
