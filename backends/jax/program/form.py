"""Data types of a canonical program."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple


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
