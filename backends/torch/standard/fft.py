"""Fourier transforms: `torch.fft` by the standard's words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


def _along_axis(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def transform(x: torch.Tensor, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> torch.Tensor:
        return function(x, n, axis, norm)

    transform.__name__ = function.__name__
    return transform


def _along_axes(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def transform(
        x: torch.Tensor, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
    ) -> torch.Tensor:
        return function(x, s, axes, norm)

    transform.__name__ = function.__name__
    return transform


fft, ifft, rfft, irfft, hfft, ihfft = map(
    _along_axis, (torch.fft.fft, torch.fft.ifft, torch.fft.rfft, torch.fft.irfft, torch.fft.hfft, torch.fft.ihfft)
)
fftn, ifftn, rfftn, irfftn = map(
    _along_axes, (torch.fft.fftn, torch.fft.ifftn, torch.fft.rfftn, torch.fft.irfftn)
)  # fmt: skip


def fftshift(x: torch.Tensor, /, *, axes: int | Sequence[int] | None = None) -> torch.Tensor:
    """Frequency 0 in the middle."""
    return torch.fft.fftshift(x, axes)


def ifftshift(x: torch.Tensor, /, *, axes: int | Sequence[int] | None = None) -> torch.Tensor:
    """The inverse of `fftshift`."""
    return torch.fft.ifftshift(x, axes)
