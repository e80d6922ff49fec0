"""Canonical form of a jaxpr: numbered variables; literals and closed-over arrays, also of inner jaxprs, as arguments.

Two programs of one key compute the same from the same arguments, and have the same derivatives.

A number in the Python code of a function is a literal of its program. It becomes an argument if it may change from call
to call and decides no structure: a new time step is then the same program. What tells where elements come from stays a
literal, as do zeros that fill arrays: tracing into a sparse matrix and the compiler look at these.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core

from ..derivatives.solve import Rules
from .form import Constant, CustomRule, Equation, Fixed, Program, inner_programs

_SMALL = 64  # entries of an array up to which it is compared by its values


_Named = tuple[Any, Hashable]  # an operand, and what stands for it in the key
_INDICES = {"dynamic_slice": 1, "dynamic_update_slice": 2, "gather": 1, "cond": 0}  # operands from here on are places
_FILLS = ("pad", "broadcast_in_dim", "select_n", "concatenate", "dynamic_update_slice", "while", "scan")
# of integers, but not in loops, where they count the steps, which tracing and compilers follow
_WHOLE_NUMBERS = ("eq", "ne", "lt", "le", "gt", "ge", "max", "min", "add", "sub", "mul", "div")
_STATIC = ("pow", "random_seed", "random_wrap", "random_fold_in")


@dataclass
class ProgramBuilder:
    """Builds canonical programs from jaxprs, and collects their constants.

    Attributes:
        hoists: do literals and arrays become arguments? In programs that stand in the key whole, they do not.
        rules: are derivative rules compared?
        constants: the arguments, in the order in which they are met.
        kept: objects that keys hold by identity, so they must live as long.
        above: the enclosing derivative rules, see `find_rule`.
    """

    hoists: bool = True
    rules: bool = True
    constants: list[Any] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    above: tuple[Any, ...] = ()
    _places: dict[int, int] = field(default_factory=dict)  # of arrays among the constants, by identity

    def program(self, closed: Any, in_loop: bool = False, for_places: bool = False) -> Program:
        """
        Args:
            closed: a ClosedJaxpr.
            in_loop: is it the body of a loop?
            for_places: do its results tell places in arrays?

        Raises:
            TypeError: a parameter cannot be compared.
        """
        jaxpr, keys = closed.jaxpr, []
        names: dict[Any, _Named] = {}
        free = count()
        for v, value in zip(jaxpr.constvars, closed.consts, strict=True):
            names[v] = self._constant(value, v.aval)
            keys.append(names[v][1])
        for v in jaxpr.invars:
            names[v] = _variable(next(free))
            keys.append(v.aval)
        found, equations = index_variables(jaxpr, for_places), []
        for origin in jaxpr.eqns:
            equation, key = self._equation(origin, names, free, in_loop, are_places(origin, found))
            equations.append(equation)
            keys.append(key)
        ends = [self._operand(v, names, "", in_loop, True) for v in jaxpr.outvars]
        keys.append(tuple(key for _, key in ends))
        return Program(len(jaxpr.invars), tuple(equations), tuple(end for end, _ in ends), tuple(keys))

    def _equation(
        self, origin: Any, names: dict[Any, _Named], free: Iterator[int], in_loop: bool, is_place: bool
    ) -> tuple[Equation, Hashable]:
        primitive = origin.primitive.name
        read = [self._operand(v, names, primitive, in_loop, is_place) for v in origin.invars]
        outs = []
        for v in origin.outvars:
            outs.append(next(free))
            names[v] = _variable(outs[-1])
        inner, rule, rule_key, others = [], None, None, dict(origin.params)
        found = inner_programs(origin)
        if found is not None:
            inner = [self.program(one, in_loop or found.loops, is_place) for one in found.programs]
            others = found.others
        if has_rule(origin):
            rule, rule_key = find_rule(self, origin, inner[0])
        key = (
            origin.primitive, tuple(key for _, key in read), tuple(v.aval for v in origin.outvars), origin.ctx,
            tuple(one.key for one in inner), rule_key, self.key(others),
        )  # fmt: skip
        self.kept.append(origin.ctx)
        return Equation(origin, tuple(one for one, _ in read), tuple(outs), tuple(inner), rule), key

    def _operand(self, v: Any, names: dict[Any, _Named], primitive: str, in_loop: bool, is_place: bool) -> _Named:
        if not hasattr(v, "val"):
            return names[v]
        if np.shape(v.val):
            return self._constant(v.val, v.aval)
        value = np.asarray(v.val, v.aval.dtype)
        if self.hoists and primitive and is_hoisted(value, primitive, in_loop, is_place):
            self.constants.append(value)
            return Constant(len(self.constants) - 1), (len(self.constants) - 1, v.aval)
        return Fixed(v.val), ("literal", v.aval, value.tobytes())

    def _constant(self, value: Any, aval: Any) -> _Named:
        if not self.hoists:
            return Fixed(value), (aval, self.key(value))
        index = self._places.get(id(value))
        if index is None:
            index = self._places[id(value)] = len(self.constants)
            self.constants.append(value)
        return Constant(index), (Constant(index), aval)

    def key(self, value: Any) -> Hashable:
        """Hashable key of a parameter of an equation."""
        if isinstance(value, core.Jaxpr):
            value = core.ClosedJaxpr(value, ())
        if isinstance(value, core.ClosedJaxpr):
            return "program", self.fixed().program(value).key
        if isinstance(value, dict):
            return "dict", tuple((k, self.key(value[k])) for k in sorted(value, key=str))
        if isinstance(value, tuple | list):
            return type(value), tuple(self.key(v) for v in value)
        if isinstance(value, np.ndarray):
            return "array", value.dtype.str, value.shape, value.tobytes()
        if isinstance(value, jax.Array):
            self.kept.append(value)
            small = not isinstance(value, jax.core.Tracer) and value.size <= _SMALL and value.is_fully_addressable
            return ("values", self.key(np.asarray(value))) if small else ("identity", id(value))
        if isinstance(value, Rules):
            if not self.rules:
                return "rules of a solve"
            try:
                return "rules of a solve", tuple(self.key(program) for program in value.programs)
            except Exception:  # it shall raise where a derivative is asked for
                self.kept.append(value)
                return "rules of a solve", id(value)
        hash(value)  # TypeError: not comparable
        return type(value), value

    def fixed(self, rules: bool | None = None) -> ProgramBuilder:
        """Builder of a program that is part of the key."""
        return ProgramBuilder(False, self.rules if rules is None else rules, [], self.kept, self.above)

    def within(self, rule: Any) -> ProgramBuilder:
        """Builder of a derivative rule; its constants are arguments of the same program."""
        return ProgramBuilder(self.hoists, self.rules, self.constants, self.kept, (*self.above, rule), self._places)


def _variable(number: int) -> _Named:
    return number, number


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


# --- Custom derivative rules (`jax.custom_jvp`, `jax.custom_vjp`), compared by what they compute ----------------------
# JAX hands over functions that are made anew at each trace. They are traced here, as JAX would to take a derivative, so
# a rule is a program as well. A rule may use the function that it belongs to: then its program ends where it comes to
# itself.

_DEEPEST = 8  # rules inside of each other that are told apart


def has_rule(equation: Any) -> bool:
    """Whether the operation has a custom derivative rule."""
    return equation.primitive.name in ("custom_jvp_call", "custom_vjp_call")


def find_rule(builder: ProgramBuilder, equation: Any, call: Program) -> tuple[CustomRule | None, Hashable]:
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


def _shallow(builder: ProgramBuilder, rule: CustomRule) -> Hashable:
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
    """Whether the dtype has a tangent space of its own, as integers have not."""
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
