"""Rules for Fourier transforms of short axes: products with the matrices of the transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...engine.linear import Linear
from ...engine.operations.fourier import transform, transform_to_real
from ..values import NotFollowed

MOST = 4096  # elements along an axis; the matrix has as many squared
_TO_REAL = ("irfft", "hfft")


def _transform(x: Linear, name: str, n: Any, axis: int, norm: Any) -> Linear:
    length = x.shape[axis]
    if max(length, n or 0) > MOST:
        raise NotFollowed(f"the matrix of a transform is dense, and that of more than {MOST} elements too large.")
    function, unit = getattr(np.fft, name), np.eye(length)
    if name == "ihfft" or (name == "rfft" and x.dtype.kind == "c"):
        raise NotFollowed("it has no rule.")
    images = function(unit, n, norm=norm)
    if name not in _TO_REAL or x.dtype.kind != "c":
        return transform(x, axis, images)
    return transform_to_real(x, axis, images, function(1j * unit, n, norm=norm))


def _single(name: str) -> Callable[..., Any]:
    def rule(a: Any, n: Any = None, axis: int = -1, norm: Any = None) -> Any:
        return _transform(a, name, n, axis % a.ndim, norm)

    return rule


def _several(name: str, last: str, default: Any) -> Callable[..., Any]:
    """Transforms along axes: a real one along the last axis comes first, or last where it is inverse."""

    def rule(a: Any, s: Any = None, axes: Any = default, norm: Any = None) -> Any:
        if axes is None:
            axes = range(a.ndim) if s is None else range(a.ndim - len(s), a.ndim)
        axes = [int(k) % a.ndim for k in axes]
        lengths = [None if s is None or n == -1 else n for n in (s if s is not None else axes)]
        steps = [(name, k, n) for k, n in zip(axes, lengths)]
        steps[-1] = (last, axes[-1], lengths[-1])
        for own, k, n in steps if last == "irfft" else steps[::-1]:
            a = _transform(a, own, n, k, norm)
        return a

    return rule


FOURIER: dict[Any, Callable[..., Any]] = {
    **{getattr(np.fft, name): _single(name) for name in ("fft", "ifft", "rfft", "irfft", "hfft")},
    **{
        getattr(np.fft, prefix + name + suffix): _several(
            inverse, prefix + inverse if prefix != "ir" else "irfft", default
        )
        for suffix, default in (("2", (-2, -1)), ("n", None))
        for prefix, name, inverse in (
            ("", "fft", "fft"),
            ("", "ifft", "ifft"),
            ("r", "fft", "fft"),
            ("ir", "fft", "ifft"),
        )
    },
}
