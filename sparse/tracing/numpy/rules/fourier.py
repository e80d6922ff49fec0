"""Rules for Fourier transforms of short axes: products with the matrices of the transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...engine.arithmetic import add, imaginary_part, real_part
from ...engine.linear import Linear
from ...engine.products.rounding import absolute, dense_along, without_rests
from ..values import NotFollowed

MOST = 4096  # elements along an axis; the matrix has as many squared
_TO_REAL = ("irfft", "hfft")


def _along(x: Linear, axis: int, images: np.ndarray) -> Linear:
    """The matrix whose row i is the image of the i-th unit vector, along an axis, in the precision of x."""
    matrix = images.T.astype(np.result_type(x.dtype.type(0), 1j) if images.dtype.kind == "c" else x.dtype)
    return dense_along(x, [axis], matrix, [matrix.shape[0]])


def _transform(x: Linear, name: str, n: Any, axis: int, norm: Any) -> Linear:
    length = x.shape[axis]
    if max(length, n or 0) > MOST:
        raise NotFollowed(f"the matrix of a transform is dense, and that of more than {MOST} elements too large.")
    function, unit = getattr(np.fft, name), np.eye(length)
    if name == "ihfft" or (name == "rfft" and x.dtype.kind == "c"):
        raise NotFollowed("it has no rule.")
    if name not in _TO_REAL:
        return _along(x, axis, function(unit, n, norm=norm))
    by_real, by_imaginary = function(unit, n, norm=norm), function(1j * unit, n, norm=norm)
    if x.dtype.kind != "c":
        return _along(x, axis, by_real)
    result = add(_along(real_part(x), axis, by_real), _along(imaginary_part(x), axis, by_imaginary))
    return without_rests(result, _along(absolute(x), axis, np.abs(by_real) + np.abs(by_imaginary)))


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
