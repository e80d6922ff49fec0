"""Operations that are programs of simpler ones, though JAX shows them as one."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import jax
from jax.extend import core

from ....backends.jax.derivatives import bilinear as jax_bilinear
from ..engine.linear import Linear

_CALLS = {"jit", "pjit", "closed_call", "core_call", "call", "core_closed_call", "xla_call"}
_WITH_RULES = {
    *("custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr", "custom_vmap_call", "linear_call"),
    *("remat", "remat2", "checkpoint", "composite"),
}
_OF_JAX = {  # not public
    "bcoo_dot_general": ("jax.experimental.sparse.bcoo", "_bcoo_dot_general_impl"),
    "bcsr_dot_general": ("jax.experimental.sparse.bcsr", "_bcsr_dot_general_impl"),
}
_PROGRAMS = ("jaxpr", "call_jaxpr", "fun_jaxpr", "call", "callee")


def is_call(equation: Any) -> bool:
    """Is it nothing but a program, which may be entered whatever its operands are?"""
    return equation.primitive.name in _CALLS


def program_of(equation: Any, values: Sequence[Any]) -> Any:
    """The closed program that computes the results of an equation from its operands; None if there is none."""
    name = equation.primitive.name
    if name in _CALLS or name in _WITH_RULES:
        found = next((equation.params[key] for key in _PROGRAMS if key in equation.params), None)
        return found if found is None or hasattr(found, "consts") else core.ClosedJaxpr(found, [])
    function = _implementation(equation)
    if function is None or not any(isinstance(value, Linear) for value in values):
        return None
    return jax.make_jaxpr(function)(*(jax.ShapeDtypeStruct(v.aval.shape, v.aval.dtype) for v in equation.invars))


def _implementation(equation: Any) -> Any:
    """Products with sparse matrices: those of krylix and of jax.experimental.sparse."""
    if equation.primitive is jax_bilinear.primitive:
        return jax_bilinear.implementation(**equation.params)
    module, function = _OF_JAX.get(equation.primitive.name, ("", ""))
    product = getattr(import_module(module), function, None) if module else None
    return product and (lambda *operands: [product(*operands, **equation.params)])
