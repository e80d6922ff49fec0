"""Compiled functions with a bounded cache of programs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jax

MOST_PROGRAMS = 64  # of one function, before it forgets them: a program of a solve takes up to 10 MB


class CompiledFunction:
    """A function, compiled for each value of its static arguments and each shape of the others.

    JAX keeps thousands of programs. Eager solves with functions that differ in their structure, such as in a shift,
    have a program each, so that a long loop of these would fill the memory.
    """

    def __init__(self, function: Callable[..., Any], static: tuple[str, ...]) -> None:
        # a function of its own, as JAX forgets by function
        self._run = jax.jit(lambda *args, **known: function(*args, **known), static_argnames=static)

    def __call__(self, *args: Any, **known: Any) -> Any:
        if self.programs() >= MOST_PROGRAMS:
            self._run.clear_cache()
        return self._run(*args, **known)

    def programs(self) -> int:
        """Number of cached programs; 0 where JAX does not tell."""
        size = getattr(self._run, "_cache_size", None)  # not public
        return 0 if size is None else int(size())


@cache
def compiled(function: Callable[..., Any], static: tuple[str, ...]) -> CompiledFunction:
    """The compiled `function`, shared by all callers."""
    return CompiledFunction(function, static)
