"""Fourier transforms along axes, as products with the images of the unit vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..arithmetic import add, convert, imaginary_part, real_part
from ..limits import check_entries
from ..linear import Linear
from ..products.rounding import absolute, dense_along, is_known, without_rests


def transform(x: Linear, axis: int, images: np.ndarray) -> Linear:
    """The matrix whose row i is the image of the i-th unit vector, along an axis, in the precision of x.

    Raises:
        UnsupportedOperation: the result has too many entries.
    """
    matrix = images.T.astype(np.result_type(x.dtype.type(0), 1j) if images.dtype.kind == "c" else x.dtype)
    return dense_along(x, [axis], matrix, [matrix.shape[0]])


def transform_to_real(x: Linear, axis: int, by_real: np.ndarray, by_imaginary: np.ndarray) -> Linear:
    """A transform to real numbers, by its images of the unit vectors and of these times i."""
    result = add(transform(real_part(x), axis, by_real), transform(imaginary_part(x), axis, by_imaginary))
    if not is_known(x):
        return result
    return without_rests(result, transform(absolute(x), axis, np.abs(by_real) + np.abs(by_imaginary)))


def fourier(x: Linear, axes: Sequence[int], forward: bool = True, scaled: bool = True) -> Linear:
    """The discrete transform along axes; the inverse one divides by their lengths if `scaled`."""
    for axis in axes:
        x = transform(x, axis, _images(x.shape[axis], forward, scaled))
    return x


def fourier_of_real(x: Linear, axes: Sequence[int], one_sided: bool = True) -> Linear:
    """Of real numbers: along the last of the axes first, which keeps the half that tells the other one."""
    n = x.shape[axes[-1]]
    images = _images(n, True)
    x = convert(x, np.result_type(x.dtype, np.complex64))
    x = transform(x, axes[-1], images[:, : n // 2 + 1] if one_sided else images)
    return fourier(x, axes[:-1])


def fourier_to_real(x: Linear, axes: Sequence[int], length: int, scaled: bool = True) -> Linear:
    """The inverse of `fourier_of_real`, for this length of the last axis, along which it always divides by it."""
    x = fourier(x, axes[:-1], False, scaled)
    check_entries(x.shape[axes[-1]] * length, "A Fourier transform")
    one = np.eye(x.shape[axes[-1]])
    return transform_to_real(x, axes[-1], np.fft.irfft(one, length), np.fft.irfft(1j * one, length))


def _images(n: int, forward: bool, scaled: bool = True) -> np.ndarray:
    check_entries(n * n, "A Fourier transform")
    return np.fft.fft(np.eye(n)) if forward else np.fft.ifft(np.eye(n)) * (1 if scaled else n)
