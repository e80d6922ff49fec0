"""Fast Fourier transforms in TensorFlow, which has them along the last axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf

from ..interface.arrays import Array
from ..interface.kernels import Fourier


class TensorflowFourier(Fourier):
    """`tf.signal`, one axis after the other."""

    cost = 5.0

    def forward(self, x: Array, axes: Sequence[int]) -> Array:
        *others, last = axes
        x = _along(x, last, tf.signal.fft if x.dtype.is_complex else tf.signal.rfft)
        for axis in others:
            x = _along(x, axis, tf.signal.fft)
        return x

    def backward(self, x: Array, axes: Sequence[int], length: int | None) -> Array:
        *others, last = axes
        for axis in others:
            x = _along(x, axis, tf.signal.ifft)
        if length is None:
            return _along(x, last, tf.signal.ifft)
        return _along(x, last, lambda lines: tf.signal.irfft(lines, [length]))

    def parts(self, x: Array) -> tuple[Array, Array]:
        return tf.math.real(x), tf.math.imag(x)

    def complex(self, real: Array, imaginary: Array) -> Array:
        return tf.complex(real, imaginary)


def _along(x: Array, axis: int, transform: Callable[[Array], Array]) -> Array:
    rank = len(x.shape)
    if axis % rank == rank - 1:
        return transform(x)
    order = list(range(rank))
    order[axis], order[-1] = order[-1], order[axis]  # its own inverse
    return tf.transpose(transform(tf.transpose(x, order)), order)
