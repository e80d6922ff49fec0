"""Operations on operands, which depend on the input or do not: a `Linear`, or a coefficient of a backend.

>>> import numpy as np
>>> from krylix.backends import get_backend
>>> from krylix.sparse.tracing.engine import identity
>>> bk = get_backend("numpy")
>>> u = identity(bk, (2, 3), float)
>>> [shape_of(reshaped(bk, x, (6,))) for x in (u, np.zeros((2, 3)))]
[(6,), (6,)]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from ....backends import Backend
from . import coefficients as co
from .coefficients import Coefficient
from .linear import Linear, reshape
from .positions import take
from .structural import Config, broadcast_to, pad, reverse, transpose

Operand: TypeAlias = Linear | Coefficient


def shape_of(x: Operand) -> tuple[int, ...]:
    """Its shape."""
    return x.shape if isinstance(x, Linear) else co.shape_of(x)


def spread(bk: Backend, x: Operand, shape: Sequence[int]) -> Operand:
    """Repeated to this shape."""
    return broadcast_to(x, shape) if isinstance(x, Linear) else co.broadcast_to(bk, x, shape)


def permuted(bk: Backend, x: Operand, axes: Sequence[int]) -> Operand:
    """With its axes in this order."""
    return transpose(x, axes) if isinstance(x, Linear) else co.transpose(bk, x, axes)


def reshaped(bk: Backend, x: Operand, shape: Sequence[int]) -> Operand:
    """In another shape."""
    return reshape(x, shape) if isinstance(x, Linear) else co.reshape(bk, x, shape)


def taken(bk: Backend, x: Operand, positions: np.ndarray) -> Operand:
    """Its elements at flat positions; zero where one is -1."""
    return take(x, positions) if isinstance(x, Linear) else co.take(bk, co.reshape(bk, x, (-1,)), positions)


def padded(bk: Backend, x: Operand, config: Config) -> Operand:
    """With zeros around."""
    return pad(x, config) if isinstance(x, Linear) else co.pad(bk, x, config)


def flipped(bk: Backend, x: Operand, axes: Sequence[int]) -> Operand:
    """The order reversed along axes."""
    return reverse(x, axes) if isinstance(x, Linear) else co.flip(bk, x, axes)
