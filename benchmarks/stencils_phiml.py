"""The same operators on the tensors of PhiML, for its `matrix_from_function`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from phiml import math
from phiml.math import extrapolation, spatial

from .stencils import FOURTH_ORDER

math.set_global_precision(64)

Function = Callable[[Any], Any]
PADDING = {"Dirichlet": extrapolation.ZERO, "Neumann": extrapolation.BOUNDARY, "periodic": extrapolation.PERIODIC}
NAMES = ("x", "y", "z")


def use(library: str) -> None:
    """Let PhiML compute with the arrays of this library."""
    math.use(library)


def grid(values: np.ndarray) -> Any:
    """An array as a tensor of named axes."""
    return math.wrap(values, spatial(",".join(NAMES[: values.ndim])))


def zeros(shape: tuple[int, ...]) -> Any:
    return math.zeros(spatial(**dict(zip(NAMES, shape, strict=False))))


def shifts(u: Any, offsets: tuple[int, ...], axis: str, padding: Any) -> Any:
    return math.shift(u, offsets, axis, padding=padding, stack_dim=None)


def laplace(boundary: str) -> Function:
    return lambda u: math.laplace(u, padding=PADDING[boundary])


def variable(k: np.ndarray) -> Function:
    coefficient = grid(k)

    def apply(u: Any) -> Any:
        total = 0.0
        for axis in NAMES:
            low, high = shifts(u, (-1, 1), axis, extrapolation.ZERO)
            k_low, k_high = shifts(coefficient, (-1, 1), axis, extrapolation.BOUNDARY)
            total = total + 0.5 * (k_high + coefficient) * (high - u) - 0.5 * (coefficient + k_low) * (u - low)
        return total

    return apply


def masked(fluid: np.ndarray) -> Function:
    weights = grid(fluid.astype(float))

    def apply(u: Any) -> Any:
        total = u * (1 - weights)
        for axis in NAMES[: fluid.ndim]:
            low, high = shifts(u, (-1, 1), axis, extrapolation.ZERO)
            w_low, w_high = shifts(weights, (-1, 1), axis, extrapolation.ZERO)
            total = total + weights * (w_high * (high - u) - w_low * (u - low))
        return total

    return apply


def fourth_order(u: Any) -> Any:
    total = 0.0
    for axis in NAMES[:2]:
        parts = shifts(u, tuple(FOURTH_ORDER), axis, extrapolation.PERIODIC)
        total = total + sum(w * part for w, part in zip(FOURTH_ORDER.values(), parts, strict=True))
    return total


def trace(function: Function, shape: tuple[int, ...]) -> Any:
    """PhiML's sparse matrix of `function`."""
    return math.matrix_from_function(function, zeros(shape), auto_compress=False)[0]
