"""JAX functions that compare equal by their programs: the cache key of eager solves, and the bounded cache itself.

An eager solve is compiled once for each function. The function object cannot be the key: it may close over a variable
that has another value by now, or be a new lambda in every time step. So the function is traced at each call, which
takes a millisecond, and its program is the key; the arrays that it closes over and the numbers in it become arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import jax

from .canonical import ProgramBuilder
from .evaluate import run_program

MOST_PROGRAMS = 64  # of one function, before it forgets them: a program of a solve takes up to 10 MB


class TracedFunction:
    """`f(x, *constants)`; equal to another one when both programs are the same, equation by equation."""

    one_dtype = True  # the program was made for arguments of one dtype

    def __init__(self, closed: Any, structure: Any) -> None:
        builder = ProgramBuilder()
        self.program, self.structure = builder.program(closed), structure
        self.constants: Sequence[Any] = builder.constants
        self.kept = builder.kept  # objects that stand in the key by identity, so they must live as long
        self.acts = bool(closed.effects)  # does it do more than to return numbers, as to print some?
        self._hash = hash(self.program.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TracedFunction) or self._hash != other._hash:
            return False
        return self.program.key == other.program.key and self.structure == other.structure

    def __call__(self, x: Any, *constants: Any) -> Any:
        found = run_program(self.program, dict(enumerate(constants)), jax.tree.leaves(x))
        return jax.tree.unflatten(self.structure, found)


def trace(function: Callable[[Any], Any], x: Any) -> tuple[TracedFunction, Sequence[Any]] | None:
    """Trace `function` for arrays like `x` (or their shapes and dtypes), with the constants to call it with.

    None if a part of the program is not comparable.
    """
    closed, shapes = jax.make_jaxpr(function, return_shape=True)(x)
    try:
        traced = TracedFunction(closed, jax.tree.structure(shapes))
    except TypeError:  # something in it has no hash
        return None
    constants, traced.constants = traced.constants, ()
    return traced, constants


def called(function: Callable[..., Any], x: Any, args: Sequence[Any]) -> Any:
    """`function(x, *args)` of a user.

    Raises:
        TypeError: it hands its argument to NumPy, which wants numbers.
    """
    try:
        return function(x, *args)
    except jax.errors.TracerArrayConversionError as error:
        raise TypeError(
            "The function hands its argument, or what follows from it, to NumPy or SciPy (by __array__, as np.asarray "
            "does), and JAX compiles it before there are numbers. Write it with jax.numpy; or give b as an array of "
            "NumPy, and the function gets such arrays."
        ) from error


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
