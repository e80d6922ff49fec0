"""Fourier transforms along an axis, as products with the images of the unit vectors."""

from __future__ import annotations

import numpy as np

from ..arithmetic import add, imaginary_part, real_part
from ..linear import Linear
from .rounding import absolute, dense_along, is_known, without_rests


def transform(x: Linear, axis: int, images: np.ndarray) -> Linear:
    """The matrix whose row i is the image of the i-th unit vector, along an axis, in the precision of x.

    Raises:
        UnsupportedOperation: the result has too many entries.
    """
    matrix = images.T.astype(np.result_type(x.dtype.type(0), 1j) if images.dtype.kind == "c" else x.dtype)
    return dense_along(x, [axis], matrix, [matrix.shape[0]])


def transform_to_real(x: Linear, axis: int, length: int) -> Linear:
    """The inverse of a real transform of this length, which takes real and imaginary parts apart."""
    one = np.eye(x.shape[axis])
    by_real, by_imaginary = np.fft.irfft(one, length), np.fft.irfft(1j * one, length)
    result = add(transform(real_part(x), axis, by_real), transform(imaginary_part(x), axis, by_imaginary))
    if not is_known(x):
        return result
    return without_rests(result, transform(absolute(x), axis, np.abs(by_real) + np.abs(by_imaginary)))
