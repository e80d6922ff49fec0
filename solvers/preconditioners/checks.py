"""Settings of preconditioners, checked."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np


def check_integer(name: str, value: Any, least: int) -> int:
    """`value` as an int.

    Raises:
        ValueError: it is none, or too small.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r} was given; expected an integer of at least {least}.")
    return int(value)


def check_number(name: str, value: Any, above: float) -> float:
    """`value` as a float.

    Raises:
        ValueError: it is none, or not above a limit, or not finite.
    """
    if not isinstance(value, Real) or isinstance(value, bool) or not above < float(value) < np.inf:
        raise ValueError(f"{name}={value!r} was given; expected a number above {above:g}.")
    return float(value)


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """`value` as one of some words.

    Raises:
        ValueError: it is none of them.
    """
    found = value.strip().lower() if isinstance(value, str) else value
    if found not in choices:
        raise ValueError(f"{name}={value!r} was given; expected {' or '.join(map(repr, choices))}.")
    return str(found)
