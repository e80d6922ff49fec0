"""Rules for windows of which known values choose an element (derivatives of pooling), and for sums from a start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....errors import UnsupportedOperation
from ...engine.arithmetic import add
from ...engine.linear import Linear
from ...engine.positions import scatter_add, take
from ...engine.reductions import window_sum
from ...engine.refusals import MATRIX_FREE, static
from ...engine.structural import broadcast_to
from ..known.pooling import adds, extreme_positions, window_reduction

Values = Sequence[Any]


def _gather_chosen(equation: Any, values: Values) -> Any:
    x, operand = values
    return take(x, _positions(equation, operand))


def _scatter_chosen(equation: Any, values: Values) -> Any:
    x, operand = values
    zeros = np.zeros(equation.outvars[0].aval.shape, x.dtype)
    return scatter_add(zeros, _positions(equation, operand), x)


def _positions(equation: Any, operand: Any) -> np.ndarray:
    where = extreme_positions(static("place of the largest element", operand), equation.params)
    if where is None:
        raise UnsupportedOperation(f"it is not the place of a largest finite number. {MATRIX_FREE}")
    return where


def _reduce_window(equation: Any, values: Values) -> Any:
    x, p = values[0], equation.params
    if len(values) != 2 or not adds(p["jaxpr"]):
        raise UnsupportedOperation(f"it combines elements by a function of its own. {MATRIX_FREE}")
    names = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
    if isinstance(x, Linear):
        return add(window_sum(x, *(p[name] for name in names)), values[1])
    shape = equation.outvars[0].aval.shape
    return add(broadcast_to(values[1], shape), window_reduction(static("array", x), p))


POOLING: dict[str, Callable[[Any, Values], Any]] = {
    "select_and_gather_add": _gather_chosen,
    "select_and_scatter_add": _scatter_chosen,
    "reduce_window": _reduce_window,
}
