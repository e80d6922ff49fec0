"""Data types of a canonical program."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from jax.extend import core


class Constant(NamedTuple):
    """Operand: an argument of the whole program."""

    place: int


class Fixed:
    """Operand: a value that is part of the program."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Equation(NamedTuple):
    """One operation: `operands` are numbers of variables, `Constant`s and `Fixed` values."""

    origin: Any  # the equation of JAX
    operands: tuple[Any, ...]
    outs: tuple[int, ...]
    inner: tuple[Program, ...]  # what it is made of
    rule: Any  # of its derivative, or None


class Program(NamedTuple):
    """Equations, of `inputs` variables that are numbered first."""

    inputs: int
    equations: tuple[Equation, ...]
    outputs: tuple[Any, ...]
    key: Hashable


@dataclass(eq=False)
class CustomRule:
    """A function with a custom derivative rule.

    Attributes:
        origin: the equation of JAX.
        call: the function itself.
        traced: the programs of its rule as JAX made them: of tangents, or forward and backward.
        facts: what is to be known to run these.
        programs: the same, canonical.
        shallow: see `canonical`.
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


def constants_of(program: Program, found: set[int], seen: set[int]) -> None:
    """Indices of the arguments that a program and its derivative rules use; skips rules in `seen`."""

    def gather(operands: tuple[Any, ...]) -> None:
        found.update(one.place for one in operands if isinstance(one, Constant))

    gather(program.outputs)
    for equation in program.equations:
        gather(equation.operands)
        for one in equation.inner:
            constants_of(one, found, seen)
        rule = equation.rule
        if rule is not None and id(rule) not in seen:
            seen.add(id(rule))
            for one in (rule.call, *rule.programs):
                constants_of(one, found, seen)


# --- Inner jaxprs of higher-order primitives, and the other parameters that identify such an equation -----------------

CALLS = ("jit", "pjit", "closed_call", "core_call")
CHECKPOINTS = ("checkpoint", "remat2", "remat")
_PROGRAMS = {
    **dict.fromkeys(CALLS, ("jaxpr", "call_jaxpr")),
    **dict.fromkeys(CHECKPOINTS, ("jaxpr",)),
    "scan": ("jaxpr",),
    "while": ("cond_jaxpr", "body_jaxpr"),
    "cond": ("branches",),
    "custom_jvp_call": ("call_jaxpr",),
    "custom_vjp_call": ("call_jaxpr",),
}
_OF_RULES = ("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd", "out_trees")  # made anew at each trace
_NAMES = ("name", "inline", "keep_unused", "ctx_mesh")


class Inner(NamedTuple):
    """Inner jaxprs of an operation, and its other parameters."""

    programs: list[Any]
    others: dict[str, Any]
    loops: bool


def inner_programs(equation: Any) -> Inner | None:
    """Inner programs; None for an operation that is compared by all its parameters."""
    name, params = equation.primitive.name, equation.params
    if name not in _PROGRAMS or (name in CALLS and _has_placement(params)):
        return None
    keys = [key for key in _PROGRAMS[name] if key in params]
    found = [one for key in keys for one in (params[key] if key == "branches" else [params[key]])]
    programs = [one if isinstance(one, core.ClosedJaxpr) else core.ClosedJaxpr(one, ()) for one in found]
    left_out = (*keys, *_OF_RULES, *(_NAMES if name in CALLS else ()))
    others = {key: value for key, value in params.items() if key not in left_out}
    return Inner(programs, others, name in ("scan", "while"))


def _has_placement(params: dict[str, Any]) -> bool:
    """Does an inner `jit` set shardings or compiler options?"""
    shardings = (*params.get("in_shardings", ()), *params.get("out_shardings", ()))
    layouts = (*params.get("in_layouts", ()), *params.get("out_layouts", ()))
    placed = any(type(one).__name__ != "UnspecifiedValue" for one in shardings)
    return placed or any(one is not None for one in layouts) or bool(params.get("compiler_options_kvs"))
