"""Settings with a default for the process that a `with` block overrides, followed by JAX's compiled functions."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Setting(Generic[T]):
    """A value for the process, and one for each thread and task inside `with setting.local(value):`.

    Args:
        compiled: programs depend on it. `jax.jit` then traces a function once for each value that it is called with
            (`jax.make_user_context`, where JAX has it): otherwise the value of its first call would hold for all.
    """

    def __init__(self, name: str, default: T, *, compiled: bool) -> None:
        self._local: ContextVar[tuple[T] | None] = ContextVar(f"krylix_{name}", default=None)
        self._global = default
        self._compiled = compiled
        self._context: Any = None
        # Made before anything is compiled, where it can be: what was compiled earlier is compiled again.
        self._in_jax()

    def get(self) -> T:
        """The value in force here."""
        local = self._local.get()
        return self._global if local is None else local[0]

    def set_global(self, value: T) -> None:
        """Set the value of the process."""
        context = self._in_jax()
        self._global = value
        if context is not None:
            context.set_global(value)

    @contextmanager
    def local(self, value: T) -> Iterator[None]:
        """Set the value inside the `with` block, per thread and task."""
        context = self._in_jax()
        token = self._local.set((value,))
        try:
            with nullcontext() if context is None else context(value):
                yield
        finally:
            self._local.reset(token)

    def _in_jax(self) -> Any:
        """The setting as part of the cache key of JAX's compiled functions, once JAX is imported."""
        make = getattr(sys.modules.get("jax"), "make_user_context", None) if self._compiled else None
        if self._context is None and make is not None:
            self._context = make(self._global)
        return self._context
