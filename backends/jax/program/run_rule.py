"""Evaluate a function with a custom derivative rule: a new `custom_jvp` or `custom_vjp` from its recorded programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero

from .rules import CustomRule

Evaluate = Callable[[Any, Mapping[int, Any], Sequence[Any]], list[Any]]


def run_rule(rule: CustomRule, evaluate: Evaluate, constants: Mapping[int, Any], operands: Sequence[Any]) -> list[Any]:
    """Evaluate the function of a rule.

    The arguments of the whole program are handed over, as a rule runs when the trace that made them has ended.
    """
    used = {place: constants[place] for place in rule.used}
    make = _with_tangents if len(rule.programs) == 1 else _with_backward
    found: list[Any] = make(rule, evaluate)(used, *operands)
    return found


def _with_tangents(rule: CustomRule, evaluate: Evaluate) -> Callable[..., Any]:
    still, out_still = rule.facts

    @jax.custom_jvp
    def call(constants: Any, *operands: Any) -> Any:
        return evaluate(rule.call, constants, operands)

    @call.defjvp
    def tangents(primals: Any, tangents: Any) -> Any:
        constants, *operands = primals
        moving = [t for t, at_rest in zip(tangents[1 + rule.closed_over :], still, strict=True) if not at_rest]
        found = evaluate(rule.programs[0], constants, [*operands[rule.closed_over :], *moving])
        images, rest = found[: len(out_still)], iter(found[len(out_still) :])
        return images, [_zero(a) if at_rest else next(rest) for a, at_rest in zip(images, out_still, strict=True)]

    return call


def _with_backward(rule: CustomRule, evaluate: Evaluate) -> Callable[..., Any]:
    saved, forwarded, none = rule.facts

    @jax.custom_vjp
    def call(constants: Any, *operands: Any) -> Any:
        return evaluate(rule.call, constants, operands)

    def forward(constants: Any, *operands: Any) -> Any:
        if any(one.perturbed for one in operands[: rule.closed_over]):
            raise TypeError(
                "A jax.custom_vjp function closes over an array by which a derivative is asked for: its rule gives "
                "none. Expected all that has derivatives among its arguments."
            )
        constants = {place: one.value for place, one in constants.items()}
        values = [one.value for one in operands]
        found = evaluate(rule.programs[0], constants, values[rule.closed_over :])
        rest = iter(found[:saved])
        residuals = [next(rest) if i is None else values[i] for i in forwarded]
        return found[saved:], (constants, residuals)

    def backward(kept: Any, cotangents: Any) -> Any:
        constants, residuals = kept
        given = [jnp.zeros(c.shape, c.dtype) if isinstance(c, SymbolicZero) else c for c in cotangents]
        found = iter(evaluate(rule.programs[1], constants, [*residuals, *given]))
        return None, *(None for _ in range(rule.closed_over)), *(None if no else next(found) for no in none)

    call.defvjp(forward, backward, symbolic_zeros=True)
    return call


def _zero(x: Any) -> Any:
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return jnp.zeros(x.shape, x.dtype)
    return np.zeros(x.shape, jax.dtypes.float0)
