"""Fourier transforms along any axes, of any length and norm: TensorFlow's are along the last one, scaled backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf

from ...standard.library import axes_of
from .functions import COMPLEX, cast, moveaxis, on_device

_Transform = Callable[[Any, int], Any]  # of the last axis, which has this length before or after


def _complex(x: Any) -> Any:
    return x if x.dtype in COMPLEX else cast(x, tf.complex128 if x.dtype == tf.float64 else tf.complex64)


def _resized(x: Any, length: int) -> Any:
    """The last axis cut, or filled up with zeros."""
    x = x[..., :length]
    missing = length - x.shape[-1]
    return tf.pad(x, [[0, 0]] * (len(x.shape) - 1) + [[0, missing]]) if missing else x


def _forward(x: Any, n: int) -> Any:
    return tf.signal.fft(_resized(_complex(x), n))


def _backward(x: Any, n: int) -> Any:
    return tf.signal.ifft(_resized(_complex(x), n)) * n


def _forward_real(x: Any, n: int) -> Any:
    return tf.signal.rfft(_resized(x, n))


def _backward_real(x: Any, n: int) -> Any:
    x = _resized(_complex(x), n // 2 + 1)
    return tf.signal.irfft(x, [n]) * n


def _forward_hermitian(x: Any, n: int) -> Any:
    return _backward_real(tf.math.conj(_complex(x)), n)


def _backward_hermitian(x: Any, n: int) -> Any:
    return tf.math.conj(_forward_real(x, n))


def _scaled(x: Any, n: int, norm: str, inverse: bool) -> Any:
    if norm not in ("backward", "ortho", "forward"):
        raise ValueError(f"xp.fft got norm={norm!r}; expected 'backward', 'ortho' or 'forward'.")
    divided = norm == "ortho" or (norm == "backward") == inverse
    return x / tf.cast(np.sqrt(n) if norm == "ortho" else n, x.dtype) if divided else x


def _along(transform: _Transform, x: Any, n: int | None, axis: int, norm: str, inverse: bool, halved: bool) -> Any:
    """The transform along an axis; `halved`: its input has the first half of the frequencies."""
    axis = axes_of(axis, len(x.shape))[0]
    length = x.shape[axis]
    n = n if n is not None else 2 * (length - 1) if halved else length
    if not n or n < 1:
        raise ValueError(f"xp.fft got {n} elements along axis {axis}; expected a known length of at least 1.")
    if axis == len(x.shape) - 1:
        return _scaled(transform(x, n), n, norm, inverse)
    return moveaxis(_scaled(transform(moveaxis(x, axis, -1), n), n, norm, inverse), -1, axis)


def _named(transform: _Transform, inverse: bool = False, halved: bool = False) -> Callable[..., Any]:
    def along_axis(x: Any, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Any:
        return _along(transform, x, n, axis, norm, inverse, halved)

    return along_axis


fft, ifft = _named(_forward), _named(_backward, inverse=True)
rfft, irfft = _named(_forward_real), _named(_backward_real, inverse=True, halved=True)
hfft, ihfft = _named(_forward_hermitian, halved=True), _named(_backward_hermitian, inverse=True)


def _axes_and_lengths(x: Any, s: Sequence[int] | None, axes: Sequence[int] | None) -> list[tuple[int, int | None]]:
    """In the order in which they are transformed: the last one first."""
    count = len(x.shape)
    axes = range(count - (count if s is None else len(s)), count) if axes is None else axes
    lengths = [None] * len(axes) if s is None else list(s)
    return list(zip(axes_of(axes, count), lengths, strict=True))[::-1]


def fftn(
    x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Any:
    """The transform along several axes."""
    return reduce(lambda y, to: fft(y, n=to[1], axis=to[0], norm=norm), _axes_and_lengths(x, s, axes), x)


def ifftn(
    x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Any:  # fmt: skip
    """The inverse of `fftn`."""
    return reduce(lambda y, to: ifft(y, n=to[1], axis=to[0], norm=norm), _axes_and_lengths(x, s, axes), x)


def rfftn(
    x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Any:  # fmt: skip
    """The transform of real arrays: half of the frequencies of the last axis."""
    (last, length), *others = _axes_and_lengths(x, s, axes)
    y = rfft(x, n=length, axis=last, norm=norm)
    return reduce(lambda y, to: fft(y, n=to[1], axis=to[0], norm=norm), others, y)


def irfftn(
    x: Any, /, *, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str = "backward"
) -> Any:  # fmt: skip
    """The inverse of `rfftn`."""
    (last, length), *others = _axes_and_lengths(x, s, axes)
    y = reduce(lambda y, to: ifft(y, n=to[1], axis=to[0], norm=norm), others, x)
    return irfft(y, n=length, axis=last, norm=norm)


def _frequencies(function: Callable[..., Any]) -> Callable[..., Any]:
    def frequencies(n: int, /, *, d: float, dtype: Any, device: Any) -> Any:
        with on_device(device):
            return tf.constant(function(n, d).astype(dtype.as_numpy_dtype))

    return frequencies


fftfreq, rfftfreq = _frequencies(np.fft.fftfreq), _frequencies(np.fft.rfftfreq)


def fftshift(x: Any, /, *, axes: int | Sequence[int] | None = None) -> Any:
    """Frequency 0 in the middle."""
    places = axes_of(axes, len(x.shape))
    return tf.roll(x, [x.shape[a] // 2 for a in places], places) if places else tf.convert_to_tensor(x)


def ifftshift(x: Any, /, *, axes: int | Sequence[int] | None = None) -> Any:
    """The inverse of `fftshift`."""
    places = axes_of(axes, len(x.shape))
    return tf.roll(x, [-(x.shape[a] // 2) for a in places], places) if places else tf.convert_to_tensor(x)
