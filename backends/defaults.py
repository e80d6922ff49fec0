"""Stack of default backends, entered by `with backend:`; apart because both Backend and the registry import it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

_entered: ContextVar[tuple[Any, ...]] = ContextVar("krylix_backends", default=())


def push(backend: Any) -> None:
    """Enter `with backend:`."""
    _entered.set((*_entered.get(), backend))


def pop() -> None:
    """Leave the innermost `with backend:`."""
    _entered.set(_entered.get()[:-1])


def innermost() -> Any:
    """The backend of the innermost `with backend:`, or None outside of all."""
    entered = _entered.get()
    return entered[-1] if entered else None
