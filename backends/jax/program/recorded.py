"""Trace a user's function once, and inline its program wherever the solver's program calls it.

Solvers multiply by the same function in ten places: its matrix is traced, it is tested, and it stands in several loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Literal, jaxpr_as_fun

from ..sharding.varying import is_mapped
from ..tracing import is_tracing
from .function import called


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
