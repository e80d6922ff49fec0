"""Selection of elements by a condition (`where`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import coefficients as co
from ..linear import Linear, linear_among
from ..operands import Operand, shape_of, spread
from ..positions import select
from ..refusals import static_needed


def where(condition: Any, a: Operand, b: Operand) -> Linear:
    """`np.where`, for a known or traced condition.

    Raises:
        NotLinear: the condition depends on the input.
    """
    if isinstance(condition, Linear):
        raise static_needed("condition", condition)
    bk, shape = linear_among([a, b], "where").bk, np.broadcast_shapes(*map(shape_of, (condition, a, b)))
    return select(co.broadcast_to(bk, condition, shape), [spread(bk, case, shape) for case in (b, a)])


def triangle(x: Linear, of: Callable[..., np.ndarray], diagonal: int = 0) -> Linear:
    """`of` is `np.tril` or `np.triu`."""
    return where(of(np.ones(x.shape[-2:], bool), diagonal), x, np.zeros((), x.dtype))
