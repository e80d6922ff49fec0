"""Recorded programs compiled to straight-line Python: one line for each ATen call.

A step that does not depend on x, as of a coefficient, is taken once for many x. Whether it depends is decided in order:
a tensor that x is written into later does not depend on it yet. Where a step writes to such a one, which then would be
the same for all x, every step is taken for each x. So it is where one draws random numbers.

Steps say which operation is called, and how results are handed on. Settings of operations are arguments of what is
made of them, so that programs of one structure are made once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import torch
from torch.utils._pytree import tree_leaves

# The place of a tensor in a program; None for a setting; or ("[" or "(", *operands) for a sequence with tensors in it.
Operand: TypeAlias = Any


_FUNCTIONS = frozenset(
    ("add", "sub", "mul", "div", "neg", "cat", "unsqueeze", "select", "roll", "flip", "convolution", "constant_pad_nd")
)  # that have the arguments of their operations


class AtenCall(NamedTuple):
    """A call of an operation of ATen; hashable."""

    operation: Any
    args: tuple[Operand, ...]
    kwargs: tuple[tuple[str, Operand], ...]
    outs: tuple[int | None, ...]  # where the leaves of its result go; None: one that is no tensor

    @property
    def operands(self) -> Iterator[Operand]:
        """Operands, in the order of their settings."""
        yield from self.args
        for _, value in self.kwargs:
            yield value

    @property
    def reads(self) -> set[int]:
        """Slots that it reads or writes."""
        return {i for value in self.operands for i in operand_places(value)}

    @property
    def results(self) -> set[int]:
        """Slots of its results."""
        return {i for i in self.outs if i is not None}

    @property
    def writes(self) -> set[int]:
        """Slots that it writes to."""
        found = written_arguments(self.operation, self.args, dict(self.kwargs))
        return {i for value in found for i in operand_places(value)}


def written_arguments(operation: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that an operation writes to."""
    if not operation._schema.is_mutable:
        return []
    arguments = operation._schema.arguments
    named = [(a, kwargs[a.name]) for a in arguments if a.name in kwargs]
    pairs = [*zip(arguments, args, strict=False), *named]
    return [value for a, value in pairs if a.alias_info is not None and a.alias_info.is_write]


def operand_places(value: Operand) -> Iterator[int]:
    """Slots of the tensors in an operand."""
    if type(value) is int:
        yield value
    elif type(value) is tuple:
        for part in value[1:]:
            yield from operand_places(part)


@lru_cache(256)
def straight_line(
    x: tuple[int, ...], others: tuple[int, ...], steps: tuple[AtenCall, ...], outputs: tuple[Operand, ...]
) -> Callable[..., Callable[..., Callable[..., list[Any]]]]:
    """`settings -> (others -> (x -> outputs))`, with the settings in the order of the steps, then of the outputs.

    A tensor that depends on x is released after its last use.
    """
    names: dict[str, Any] = {"leaves": tree_leaves}
    source = _Source(names)
    lines = [source.line(step) for step in steps]
    result = source.sequence(("[", *outputs))
    kept = {i for value in outputs for i in operand_places(value)}
    needed = _needed(steps, kept)
    once, each = _apart(set(x), [steps[k] for k in needed], needed)
    body = [f"def make({', '.join(f'c{k}' for k in range(source.settings))}):", f" def bind({_arguments(others)}):"]
    body += [f"  {lines[k]}" for k in once]
    body.append(f"  def program({_arguments(x)}):")
    last = {i: k for k in each for i in steps[k].reads | steps[k].results}
    made = set(x).union(*(steps[k].results for k in each))
    for k in each:
        body.append(f"   {lines[k]}")
        gone = sorted(i for i in (steps[k].reads | steps[k].results) & made - kept if last[i] == k)
        if gone:
            body.append(f"   del {', '.join(f'v{i}' for i in gone)}")
    body += [f"   return {result}", "  return program", " return bind"]
    exec(compile("\n".join(body), "<program of a function>", "exec"), names)
    make: Callable[..., Callable[..., Callable[..., list[Any]]]] = names["make"]
    return make


def _needed(steps: Sequence[AtenCall], kept: set[int]) -> list[int]:
    """Dead code elimination; steps that write stay, as views may share the memory."""
    needed, found = set(kept), []
    for k in reversed(range(len(steps))):
        if steps[k].operation._schema.is_mutable or not needed.isdisjoint(steps[k].results):
            found.append(k)
            needed |= steps[k].reads
    return found[::-1]


def _apart(of_x: set[int], steps: Sequence[AtenCall], numbers: list[int]) -> tuple[list[int], list[int]]:
    """Indices of the steps to run once, and of those to run for each x."""
    once: list[int] = []
    each: list[int] = []
    for step, k in zip(steps, numbers, strict=True):
        if not step.writes <= of_x or torch.Tag.nondeterministic_seeded in step.operation.tags:
            return [], numbers
        depends = not of_x.isdisjoint(step.reads)
        (each if depends else once).append(k)
        of_x = of_x | step.results if depends else of_x
    return once, each


def _arguments(slots: Sequence[int]) -> str:
    return ", ".join(f"v{i}" for i in slots)


class _Source:
    """Generated Python lines, the names of their operations, and the number of settings."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names, self.settings = names, 0
        self._operations: dict[Any, str] = {}

    def line(self, step: AtenCall) -> str:
        args = [self.text(value) for value in step.args]
        args += [f"{name}={self.text(value)}" for name, value in step.kwargs]
        call = f"{self._operation(step.operation)}({', '.join(args)})"
        outs = ["_" if i is None else f"v{i}" for i in step.outs]
        if not outs:
            return call
        returns = step.operation._schema.returns
        one = len(returns) == 1 and isinstance(returns[0].type, torch.TensorType)
        return f"{outs[0]} = {call}" if one else f"{', '.join(outs)}, = leaves({call})"

    def text(self, value: Operand) -> str:
        if value is None:
            self.settings += 1
            return f"c{self.settings - 1}"
        return f"v{value}" if type(value) is int else self.sequence(value)

    def sequence(self, value: tuple[Any, ...]) -> str:
        parts = "".join(f"{self.text(part)}, " for part in value[1:])
        return f"[{parts}]" if value[0] == "[" else f"({parts})"

    def _operation(self, operation: Any) -> str:
        name = self._operations.setdefault(operation, f"f{len(self._operations)}")
        self.names[name] = _quickest(operation)
        return name


def _quickest(operation: Any) -> Any:
    """The fastest equivalent callable: torch's function of that name, or the operation's own."""
    schema = operation._schema
    name, overload = schema.name.removeprefix("aten::"), schema.overload_name
    if name in _FUNCTIONS and overload in ("", "Tensor", "int") and isinstance(operation, torch._ops.OpOverload):
        return getattr(torch, name)
    return getattr(operation, "_op", operation)  # not public; a call in Python less
