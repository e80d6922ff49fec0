"""Traversal of nested lists and tuples, which arguments of operations are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def mapped(function: Callable[[Any], Any], value: Any) -> Any:
    """A function of all that lists and tuples hold.

    >>> mapped(abs, [-1, (2, [-3])])
    [1, (2, [3])]
    """
    if isinstance(value, (list, tuple)):
        return type(value)([mapped(function, v) for v in value])
    return function(value)
