"""JAX functions that compare equal by their programs: the cache key of eager solves, and the bounded cache itself.

An eager solve is compiled once for each function. The function object cannot be the key: it may close over a variable
that has another value by now, or be a new lambda in every time step. So the function is traced at each call, which
takes a millisecond, and its program is the key; the arrays that it closes over and the numbers in it become arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from ..sharding.varying import is_mapped
from ..tracing import is_tracing
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


# --- Trace a user's function once, and inline its program wherever the solver's program calls it ----------------------
# Solvers multiply by the same function in ten places: its matrix is traced, it is tested, and it stands in several
# loops.


class RecordedFunction:
    """A recorded `function(x)`; it belongs to the trace in which it was recorded.

    Attributes:
        program: the closed program, of the arrays in x.
        function: `(x, *constants)`, the same with other values of what it closes over: of `program.consts`, in its
            order. It outlives the trace, as it holds none of these.
        by_lines: the same function, slower to trace, whose equations keep the lines of the user's source.
    """

    def __init__(self, program: Any, structure: Any) -> None:
        self.program, self._structure = program, structure
        self.function = _of_constants(program.jaxpr, structure)

    def __call__(self, x: Any) -> Any:
        return self.function(x, *self.program.consts)

    def by_lines(self, x: Any) -> Any:
        return jax.tree.unflatten(self._structure, jaxpr_as_fun(self.program)(*jax.tree.leaves(x)))

    def fits(self, x: Any) -> bool:
        """Do these arrays have the recorded shapes and dtypes?"""
        avals, leaves = self.program.in_avals, jax.tree.leaves(x)
        return len(avals) == len(leaves) and all(
            tuple(x.shape) == a.shape and x.dtype == a.dtype for x, a in zip(leaves, avals, strict=True)
        )

    @cached_property
    def is_known(self) -> bool:
        """Do results depend on x and known values only?"""
        jaxpr, consts = self.program.jaxpr, self.program.consts
        traced = {v for v, x in zip(jaxpr.constvars, consts, strict=True) if isinstance(x, jax.core.Tracer)}
        for equation in jaxpr.eqns:
            if any(not isinstance(v, Literal) and v in traced for v in equation.invars):
                traced.update(equation.outvars)
        return not any(not isinstance(v, Literal) and v in traced for v in jaxpr.outvars)


def _of_constants(jaxpr: Any, structure: Any) -> Callable[..., Any]:
    def results(constants: Sequence[Any], leaves: Sequence[Any]) -> list[Any]:
        return list(jaxpr_as_fun(ClosedJaxpr(jaxpr, list(constants)))(*leaves))

    inlined = jax.jit(results, inline=True)  # traced once, and no call in the program
    return lambda x, *constants: jax.tree.unflatten(structure, inlined(constants, jax.tree.leaves(x)))


def recorded(function: Callable[..., Any], x: Any, args: Sequence[Any]) -> RecordedFunction | None:
    """`function(x, *args)` for arrays like x; None where no program is being made, or one for several devices at once,
    where arrays have types that a record does not tell.
    """
    if not is_tracing() or is_mapped():
        return None
    program, shapes = jax.make_jaxpr(lambda x: called(function, x, args), return_shape=True)(x)
    return RecordedFunction(program, jax.tree.structure(shapes))


# --- Large known arrays in a program: XLA folds, sinks and copies what it sees to be constant -------------------------
# That takes up to a fifth of the time in which a multigrid method is compiled.

_LARGE = 2**18  # numbers: fewer are folded in no time, and what is made of them is a kernel more


def hiding_constants(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, in which no large array that it closes over is a constant to XLA; as it is outside of programs.

    Those that are computed in the program cannot be told from constants, and gain and lose nothing.
    """

    def hiding(*arrays: Any) -> Any:
        if not _may_hide():
            return function(*arrays)
        program, shapes = jax.make_jaxpr(function, return_shape=True)(*arrays)
        return jax.tree.unflatten(jax.tree.structure(shapes), evaluated(program, *jax.tree.leaves(arrays)))

    return hiding


def evaluated(program: ClosedJaxpr, *leaves: Any) -> list[Any]:
    """What a program computes, none of whose large arrays is a constant to XLA."""
    consts = list(program.consts)
    large = [i for i, x in enumerate(consts) if np.size(x) > _LARGE] if _may_hide() else []
    if large:
        hidden = lax.optimization_barrier([jnp.asarray(consts[i]) for i in large])
        for i, x in zip(large, hidden, strict=True):
            consts[i] = x
    return list(jaxpr_as_fun(ClosedJaxpr(program.jaxpr, consts))(*leaves))


def _may_hide() -> bool:
    return is_tracing() and not is_mapped() and jax.device_count() == 1
