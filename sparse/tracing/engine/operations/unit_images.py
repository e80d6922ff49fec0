"""Operations that are known by what they do to unit vectors: dense matrices, so this is for small arrays and axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....errors import UnsupportedOperation
from .. import coefficients as co
from ..coefficients import Coefficient
from ..limits import check_entries
from ..linear import Linear, reshape
from ..products.rounding import dense_along

MOST = 2**22  # entries of the matrix of one operation
MOST_UNITS = 4096


def by_unit_images(x: Linear, image: Callable[[np.ndarray], Coefficient]) -> Linear:
    """A linear operation, by its image of each unit vector.

    Raises:
        UnsupportedOperation: the array is too large.
    """
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
    """Is an operation without a rule linear at random points?

    Args:
        image: of operands, with the values that its argument gives for each `Linear` among them.
    """

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
