"""Operations that the layers above add to every backend, such as solves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

ADDED: dict[str, tuple[str, Callable[..., Any]]] = {}  # by name: group and function


def add_operation(function: Callable[..., Any], group: str) -> None:
    """Make `name(bk, ...)` an operation of every backend; at import, before anybody asks for one."""
    ADDED[function.__name__] = (group, function)
