"""Elementwise functions that PyTorch calls otherwise, or computes otherwise for some dtypes; others are its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

bitwise_invert = torch.bitwise_not
equal = torch.eq  # torch.equal gives one bool
_WHOLE = frozenset((torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))


def _of_whole_numbers(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that leaves integers as they are, and rounds both parts of a complex number."""

    def rounded(x: torch.Tensor, /) -> torch.Tensor:
        if x.dtype in _WHOLE:
            return x.clone()
        return torch.complex(function(x.real), function(x.imag)) if x.is_complex() else function(x)

    rounded.__name__ = function.__name__
    return rounded


ceil, floor, round, trunc = map(_of_whole_numbers, (torch.ceil, torch.floor, torch.round, torch.trunc))


def sign(x: torch.Tensor, /) -> torch.Tensor:
    """x / |x|, 0 of 0, and NaN of NaN."""
    if x.dtype in _WHOLE:
        return torch.sign(x)
    return torch.where(torch.isnan(x), x, torch.sgn(x))


def conj(x: torch.Tensor, /) -> torch.Tensor:
    """The conjugate, of real numbers themselves."""
    return torch.conj_physical(x) if x.is_complex() else x


def imag(x: torch.Tensor, /) -> torch.Tensor:
    """The imaginary part, 0 of real numbers."""
    return torch.imag(x) if x.is_complex() else torch.zeros_like(x)


def clip(x: torch.Tensor, min: torch.Tensor | None, max: torch.Tensor | None) -> torch.Tensor:
    """`x` between two bounds."""
    if min is None and max is None:
        return x.clone()
    return torch.clamp(x, min, max)
