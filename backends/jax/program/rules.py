"""Custom derivative rules (`jax.custom_jvp`, `jax.custom_vjp`) in a program, compared by what they compute.

JAX hands over functions that are made anew at each trace. They are traced here, as JAX would to take a derivative,
so a rule is a program as well. A rule may use the function that it belongs to: then its program ends where it comes to
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.extend import core

from .form import Program, constants_of


class RuleBuilder(Protocol):
    """Protocol of `canonical.ProgramBuilder`, as rules use it."""

    rules: bool
    kept: list[Any]
    above: tuple[Any, ...]

    def program(self, closed: Any) -> Program:
        """Canonical form of a jaxpr."""

    def fixed(self, rules: bool) -> RuleBuilder:
        """Builder of programs whose literals are no arguments."""

    def within(self, rule: Any) -> RuleBuilder:
        """Builder of the programs of a rule."""


_DEEPEST = 8  # rules inside of each other that are told apart


@dataclass(eq=False)
class CustomRule:
    """A function with a custom derivative rule.

    Attributes:
        origin: the equation of JAX.
        call: the function itself.
        traced: the programs of its rule as JAX made them: of tangents, or forward and backward.
        facts: what is to be known to run these.
        programs: the same, canonical.
        shallow: see `_shallow`.
    """

    origin: Any
    call: Program
    traced: list[Any]
    facts: tuple[Any, ...]
    programs: list[Program] = field(default_factory=list)
    shallow: Hashable = None

    @property
    def closed_over(self) -> int:
        """Number of leading operands that are closed-over arrays, which have no derivatives in JAX."""
        return int(self.origin.params["num_consts"])

    @cached_property
    def used(self) -> tuple[int, ...]:
        """Arguments of the whole program that the function or its rule uses."""
        found: set[int] = set()
        for program in (self.call, *self.programs):
            constants_of(program, found, {id(self)})
        return tuple(sorted(found))


def has_rule(equation: Any) -> bool:
    """Does the operation have a custom derivative rule?"""
    return equation.primitive.name in ("custom_jvp_call", "custom_vjp_call")


def find_rule(builder: RuleBuilder, equation: Any, call: Program) -> tuple[CustomRule | None, Hashable]:
    """The rule and its key; no rule, and a key by identity, if it cannot be traced by itself."""
    if not builder.rules:
        return None, None
    trace = _forward_rule if equation.primitive.name == "custom_jvp_call" else _reverse_rule
    try:
        if len(builder.above) == _DEEPEST:
            raise RecursionError("Rules that use new functions for ever.")
        rule = CustomRule(equation, call, *trace(equation))
    except Exception:  # whatever a user's rule raises, it shall raise where a derivative is asked for
        parts = [equation.params[key] for key in ("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd") if key in equation.params]
        builder.kept.append(parts)
        return None, ("rule", *(id(part) for part in parts))
    for i, above in enumerate(reversed(builder.above)):
        before = len(builder.above) - 2 * (i + 1)  # a rule that uses itself does so again and again
        again = [builder.above[before], above, rule] if before >= 0 else []
        if again and len({_shallow(builder, one) for one in again}) == 1:
            return above, ("above", i)
    within = builder.within(rule)
    rule.programs.extend(within.program(one) for one in rule.traced)
    return rule, ("rule", rule.facts, tuple(one.key for one in rule.programs))


def _shallow(builder: RuleBuilder, rule: CustomRule) -> Hashable:
    """Key of a function and its rule without nested rules."""
    if rule.shallow is None:
        compared = builder.fixed(rules=False)
        programs = [rule.origin.params["call_jaxpr"], *rule.traced]
        rule.shallow = tuple(compared.program(one).key for one in programs), rule.facts
    return rule.shallow


def _operands(equation: Any) -> list[Any]:
    """Avals of the operands of a rule."""
    return [v.aval for v in equation.invars[equation.params["num_consts"] :]]


def _moves(aval: Any) -> bool:
    """Is its tangent non-trivial?"""
    return bool(jnp.issubdtype(aval.dtype, jnp.inexact))


def _forward_rule(equation: Any) -> tuple[list[Any], tuple[Any, ...]]:
    still = tuple(not _moves(aval) for aval in _operands(equation))
    jaxpr, consts, out_still = equation.params["jvp_jaxpr_fun"].call_wrapped(*still)
    return [core.ClosedJaxpr(jaxpr, consts)], (still, tuple(out_still))


def _reverse_rule(equation: Any) -> tuple[list[Any], tuple[Any, ...]]:
    params, avals = equation.params, _operands(equation)
    jaxpr, consts = params["fwd_jaxpr_thunk"].call_wrapped(*(_moves(aval) for aval in avals))
    *_, forwarded = params["out_trees"]()
    saved = len(jaxpr.outvars) - len(equation.outvars)
    shapes = iter(v.aval for v in jaxpr.outvars[:saved])
    kept = [next(shapes) if i is None else equation.invars[i].aval for i in forwarded]
    none: list[bool] = []

    def backward(*arrays: Any) -> list[Any]:
        found = params["bwd"].call_wrapped(*arrays)
        none[:] = [type(one).__name__ == "Zero" for one in found]
        return [one for one, nothing in zip(found, none, strict=True) if not nothing]

    cotangents = [v.aval for v in equation.outvars]
    if not all(_moves(aval) for aval in cotangents):
        raise TypeError("A result without cotangents.")
    closed = jax.make_jaxpr(backward)(*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in (*kept, *cotangents)))
    return [core.ClosedJaxpr(jaxpr, consts), closed], (saved, tuple(forwarded), tuple(none))


# --- Evaluate a function with a custom derivative rule: a new rule from its recorded programs -------------------------

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
