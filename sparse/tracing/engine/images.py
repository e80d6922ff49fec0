"""Operations known by their images of unit vectors, Fourier transforms among them: for small arrays and axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import UnsupportedOperation
from . import coefficients as co
from .arithmetic import add, convert, imaginary_part, real_part
from .coefficients import Coefficient
from .contraction import absolute, dense_along, is_known, without_rests
from .limits import check_entries
from .linear import Linear, reshape

MOST = 2**22  # entries of the matrix of one operation
MOST_UNITS = 4096


def by_unit_images(x: Linear, image: Callable[[np.ndarray], Coefficient]) -> Linear:
    """A linear operation, by its image of each unit vector."""
    refused = UnsupportedOperation(
        f"it has no rule but by its images of all {x.size} unit vectors. Trace a smaller problem, or solve with the "
        "function itself instead of its matrix."
    )
    if x.size > MOST_UNITS:
        raise refused
    units = np.eye(max(x.size, 1), x.size, dtype=x.dtype)
    first = image(units[0].reshape(x.shape))
    shape = co.shape_of(first)
    count = math.prod(shape)
    if x.size * count > MOST:
        raise refused
    images = [first, *(image(unit.reshape(x.shape)) for unit in units[1:])]
    columns = [co.reshape(x.bk, found, (count, 1)) for found in images]
    matrix = co.concatenate(x.bk, columns, 1) if x.size else np.zeros((count, 0), x.dtype)
    return reshape(dense_along(reshape(x, (x.size,)), [0], matrix, [count]), shape)


def along_axes(
    x: Linear, axes: Sequence[int], lengths: Sequence[int], images: Callable[[int, int, int], np.ndarray]
) -> Linear:
    """A linear operation along one axis after the other.

    Args:
        x: the array.
        axes: along which it acts.
        lengths: of these axes in the result.
        images: `(number of the axis, its length, that in the result)` -> the images of the unit vectors, as rows.
    """
    for k, (axis, m) in enumerate(zip(axes, lengths)):
        n = x.shape[axis]
        check_entries(n * max(n, m), "An operation along an axis, by its images of unit vectors,")
        x = dense_along(x, [axis], images(k, n, m).reshape(n, m).T.astype(x.dtype), [m])
    return x


def seems_linear(image: Callable[[Callable[[Any], Any]], np.ndarray]) -> bool:
    """Is an operation without a rule linear at random points? `image` gets a function from operands to values."""

    def at(a: float, b: float) -> np.ndarray:
        rng = np.random.default_rng(0)

        def value(x: Any) -> Any:
            if not isinstance(x, Linear):
                return x
            u, v = rng.standard_normal((2, *x.shape))
            return np.asarray(a * u + b * v, x.dtype)

        return image(value)

    zero, u, v, both = (at(*factors) for factors in ((0, 0), (1, 0), (0, 1), (1, -2)))
    return bool(np.allclose(both - zero, (u - zero) - 2 * (v - zero), equal_nan=True))


# --- Fourier transforms along axes ------------------------------------------------------------------------------------


def transform(x: Linear, axis: int, images: np.ndarray) -> Linear:
    """The matrix whose row i is the image of the i-th unit vector, along an axis, in the precision of x."""
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
