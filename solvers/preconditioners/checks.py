"""Checks of preconditioners' settings."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

MOST_STEPS = 1000  # of a polynomial or of sweeps in one application: more never pays, and only a damaged file has more
_LEAST = 64  # times the least normal number, whose inverse is a quarter of the largest number


def check_integer(name: str, value: Any, least: int, most: int | None = None) -> int:
    """`value` as an int."""
    whole = isinstance(value, Integral) and not isinstance(value, bool)
    if not whole or value < least or (most is not None and value > most):
        limit = "" if most is None else f" and at most {most}"
        raise ValueError(f"{name}={value!r} was given; expected an integer of at least {least}{limit}.")
    return int(value)


def check_number(name: str, value: Any, above: float) -> float:
    """`value` as a float."""
    if not isinstance(value, Real) or isinstance(value, bool) or not above < float(value) < np.inf:
        raise ValueError(f"{name}={value!r} was given; expected a number above {above:g}.")
    return float(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """`value` in lower case."""
    choice = value.strip().lower() if isinstance(value, str) else value
    if choice not in choices:
        raise ValueError(f"{name}={value!r} was given; expected {' or '.join(map(repr, choices))}.")
    return str(choice)


def check_finite(kind: str, finite: bool) -> None:
    """Refuse a matrix with entries that are not finite."""
    if not finite:
        raise ValueError(f"{kind} was asked for a matrix with entries that are infinite or NaN; expected numbers.")


def check_in_range(kind: str, diagonal: np.ndarray) -> None:
    """Refuse a diagonal whose inverse overflows."""
    sizes, least = np.abs(diagonal), _LEAST * float(np.finfo(diagonal.dtype).tiny)
    small = sizes[(sizes > 0) & (sizes < least)]
    if small.size:
        raise ValueError(
            f"{kind} was asked for a matrix with {small.min():.2g} on its diagonal; expected at least {least:.2g} in "
            f"{diagonal.dtype}, as the inverse overflows. Multiply A and b by a power of two."
        )


def check_grid(grid: Any) -> tuple[int, ...]:
    """`grid` as a tuple of ints."""
    lengths = list(grid) if isinstance(grid, tuple | list | np.ndarray) else []
    if not lengths or any(isinstance(n, bool) or not isinstance(n, Integral) or n < 1 for n in lengths):
        raise ValueError(f"grid={grid!r} was given; expected the lengths of its axes, such as (64, 32).")
    return tuple(int(n) for n in lengths)
