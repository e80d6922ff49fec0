"""Special functions, composed."""

from __future__ import annotations

from typing import Any

from ..interface.arrays import Array


def sigmoid(bk: Any, x: Array) -> Array:
    """The logistic function 1 / (1 + exp(-x)), without overflow for any real x."""
    return bk.divide(bk.xp.tanh(bk.divide(x, 2)) + 1, 2)


def softplus(bk: Any, x: Array) -> Array:
    """log(1 + exp(x)), without overflow and exact in the tails."""
    return bk.logaddexp(x, 0)
