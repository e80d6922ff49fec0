"""Elements at positions that are computed, or that an operation shows by what it does to numbers of the elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....errors import UnsupportedOperation
from .. import coefficients as co
from ..linear import Linear, linear_among
from ..operands import Operand, shape_of, spread
from ..positions import assemble


def numbers(shape: Sequence[int], first: int = 0) -> np.ndarray:
    """The flat position of each element, counted from `first`."""
    return np.arange(first, first + math.prod(shape)).reshape(tuple(shape))


def replace_at(x: Operand, positions: np.ndarray, source: Operand) -> Linear:
    """`x` with the elements at flat positions replaced by those of `source`, which broadcasts to their shape.

    Raises:
        UnsupportedOperation: elements that occur twice are replaced by different ones: the order is not defined.
    """
    source = spread(linear_among([x, source], "replace_at").bk, source, positions.shape)
    sources, flat = numbers(shape_of(x)).reshape(-1), positions.reshape(-1)
    count = len(sources)
    sources[flat] = count + np.arange(len(flat))
    is_same = not isinstance(source, Linear) and co.single_value(source) is not None
    if not is_same and np.count_nonzero(sources >= count) < len(flat):
        raise UnsupportedOperation(
            "an index occurs twice, and which of the values holds is not defined. Leave one out."
        )
    return assemble([x, source], sources.reshape(shape_of(x)))


class Labels:
    """Numbers for the elements of some operands.

    An operation that gives each element one of its operands', or zero, shows which one by what it does to them.
    """

    def __init__(self) -> None:
        self._operands: list[Any] = []
        self._first = 1  # zeros that the operation fills in have none

    def of(self, x: Operand) -> np.ndarray:
        """The numbers of one more operand."""
        self._operands.append(x)
        found = numbers(shape_of(x), self._first)
        self._first += found.size
        return found

    def result(self, found: np.ndarray) -> Linear:
        """What the operation made of the numbers, as what it makes of the operands."""
        return assemble(self._operands, np.asarray(found).astype(np.int64) - 1)
