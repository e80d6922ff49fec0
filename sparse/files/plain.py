"""JSON form of plain constants (numbers, strings, None, tuples of these), and their type check."""

from __future__ import annotations

import math
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import numpy as np

NUMBER = "number"  # the key of what JSON has no number for


def to_json(value: Any) -> Any:
    """Convert a constant other than a tuple to JSON; complex and infinite numbers become strings.

    >>> to_json(0.1), to_json(float("inf")), to_json(1 + 2j)
    (0.1, {'number': 'inf'}, {'number': '(1+2j)'})

    Raises:
        TypeError: it is no such constant.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return {NUMBER: str(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} is no number, text or None")


def number_of(text: Any) -> complex | float:
    """The number that `to_json` wrote as a text.

    Raises:
        ValueError, TypeError: it is none.
    """
    return complex(text) if str(text).endswith(("j", "j)")) else float(text)


def matches(value: Any, hint: Any) -> bool:
    """Is it of the type that a field of a dataclass has?

    >>> matches((1, 2), tuple[int, ...]), matches("a", int | None), matches(True, int)
    (True, False, False)
    """
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(matches(value, one) for one in args)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if args[-1:] == (...,):
            return all(matches(v, args[0]) for v in value)
        return len(value) == len(args) and all(map(matches, value, args))
    if origin is Literal:
        return value in args
    if hint is Any:
        return True
    if hint in (None, NoneType):
        return value is None
    if isinstance(value, bool) and hint in (int, float, complex):
        return False
    accepted = {float: (int, float), complex: (int, float, complex)}.get(hint, hint)
    return isinstance(value, accepted) if isinstance(accepted, type | tuple) else True
