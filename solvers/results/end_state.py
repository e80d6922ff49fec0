"""What the message of a result is made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...backends import Array
from .later import array_of, known_array_of

NUMBERS = ("status", "iterations", "residual_norm", "tolerance", "attainable", "null_part", "consistent", "singular")


def end_state_of(result: Any) -> tuple[Array, ...]:
    """End state for `describe`, of the last checkpoint."""
    found = tuple(array_of(result, name) for name in _numbers(result))
    return tuple(a[-1] for a in found) if result.checkpoints else found


def known_end_state_of(result: Any) -> tuple[np.ndarray, ...]:
    """`end_state_of` in NumPy."""
    found = tuple(known_array_of(result, name) for name in _numbers(result))
    return tuple(np.asarray(a[-1]) for a in found) if result.checkpoints else found


def _numbers(result: Any) -> tuple[str, ...]:
    return NUMBERS if result._rung is None else (*NUMBERS, "_rung")


def said_of(result: Any) -> dict[str, Any]:
    """Keyword arguments of `describe` besides numbers."""
    return {
        "made_by": result._made_by, "least_squares": result.least_squares, "no_solution": result._no_solution,
        "causes": result._causes, "time_limit": result._time_limit, "parts": result._parts,
    }  # fmt: skip
