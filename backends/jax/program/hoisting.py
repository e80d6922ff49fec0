"""Which literals of a program become arguments: those that may change from call to call and decide no structure.

A number in the Python code of a function is a literal of its program. As an argument, a new time step is the same
program. What tells where elements come from stays a literal, as do zeros that fill arrays: tracing into a sparse matrix
and the compiler look at these.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

_INDICES = {"dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1, "cond": 0}  # operands from here on are places
_FILLS = ("pad", "broadcast_in_dim", "select_n", "concatenate", "dynamic_update_slice", "while", "scan")
# of integers, but not in loops, where they count the steps, which tracing and compilers follow
_WHOLE_NUMBERS = ("eq", "ne", "lt", "le", "gt", "ge", "max", "min", "add", "sub", "mul", "div")
_STATIC = ("pow", "random_seed", "random_wrap", "random_fold_in")


def is_hoisted(value: Any, primitive: str, in_loop: bool, is_place: bool) -> bool:
    """Does this scalar operand of an operation become an argument?

    Args:
        in_loop: is the operation part of a loop?
        is_place: does an index or a branch number depend on it?
    """
    if primitive in _STATIC or primitive.startswith("scatter"):
        return False
    if jnp.issubdtype(value.dtype, np.inexact):
        return bool(value != 0) or primitive not in _FILLS
    if not jnp.issubdtype(value.dtype, np.integer) or is_place or in_loop:
        return False
    return primitive in _WHOLE_NUMBERS


def index_variables(jaxpr: Any, all_outputs: bool) -> set[Any]:
    """Variables on which indices or branch numbers depend.

    Args:
        all_outputs: do all its results serve that?
    """
    found = {v for v in jaxpr.outvars if not hasattr(v, "val")} if all_outputs else set()
    for equation in reversed(jaxpr.eqns):
        name = equation.primitive.name
        operands = [v for v in equation.invars if not hasattr(v, "val")]
        if not found.isdisjoint(equation.outvars):
            found.update(operands)
        elif name in _INDICES:
            last = 1 if name == "cond" else None
            found.update(v for v in equation.invars[_INDICES[name] : last] if not hasattr(v, "val"))
        elif name.startswith("scatter"):
            found.update(v for v in equation.invars[1:2] if not hasattr(v, "val"))
    return found


def are_places(equation: Any, found: set[Any]) -> bool:
    """Is a result of this equation used as an index?"""
    return not found.isdisjoint(equation.outvars)
