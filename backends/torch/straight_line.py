"""Steps of a program as one Python function, a line for each: what runs a step is the call itself and little else.

A step that does not depend on x, as of a coefficient, is taken once for many x. Whether it depends is decided in order:
a tensor that x is written into later does not depend on it yet. Where a step writes to such a one, which then would be
the same for all x, every step is taken for each x. So it is where one draws random numbers.

The source says how results are handed on, and nothing else: operations and their settings are names in it. So programs
of one structure have the same source, which is compiled once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from types import CodeType
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_leaves


class Slot:
    """The place of a tensor in a program."""

    __slots__ = ("i",)

    def __init__(self, i: int) -> None:
        self.i = i


class Step(NamedTuple):
    """A call of an operation of ATen."""

    operation: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: list[Slot | None]  # where the leaves of its result go; None: one that is no tensor

    def operands(self) -> Iterator[int]:
        """The places that it reads or writes."""
        return (slot.i for slot in slots_in((*self.args, *self.kwargs.values())))

    def results(self) -> Iterator[int]:
        """The places of its results."""
        return (slot.i for slot in self.outs if slot is not None)

    def written(self) -> set[int]:
        """The places that it writes to."""
        if not self.operation._schema.is_mutable:
            return set()
        return {slot.i for value in written(self.operation, self.args, self.kwargs) for slot in slots_in(value)}


def written(operation: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """Those of its arguments that an operation writes to."""
    arguments = operation._schema.arguments
    named = [(a, kwargs[a.name]) for a in arguments if a.name in kwargs]
    pairs = [*zip(arguments, args, strict=False), *named]
    return [value for a, value in pairs if a.alias_info is not None and a.alias_info.is_write]


def slots_in(value: Any) -> Iterator[Slot]:
    """Those in what an operation is given: tensors, numbers, and lists of these."""
    if isinstance(value, Slot):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from slots_in(part)


def straight_line(
    x: Sequence[Slot], others: Sequence[Slot], steps: Sequence[Step], outputs: Sequence[Any]
) -> Callable[..., Callable[..., list[Any]]]:
    """`others -> (x -> outputs)`, where slots stand for tensors.

    A tensor that depends on x is let go after the last step that uses it.
    """
    names: dict[str, Any] = {"leaves": tree_leaves}
    source = _Source(names)
    once, each = _apart({slot.i for slot in x}, steps)
    kept, last = {slot.i for slot in slots_in(list(outputs))}, _last_uses(each)
    made = {slot.i for slot in x}.union(*(step.results() for step in each))
    lines = [f"def bind({_arguments(others)}):", *(f" {source.line(step)}" for step in once)]
    lines.append(f" def program({_arguments(x)}):")
    for k, step in enumerate(each):
        lines.append(f"  {source.line(step)}")
        gone = sorted(i for i in {*step.operands(), *step.results()} & made - kept if last[i] == k)
        if gone:
            lines.append(f"  del {', '.join(f'v{i}' for i in gone)}")
    lines += [f"  return {source.text(list(outputs))}", " return program"]
    exec(_compiled("\n".join(lines)), names)
    bind: Callable[..., Callable[..., list[Any]]] = names["bind"]
    return bind


def _apart(of_x: set[int], steps: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """The steps to be taken once, and those for each x."""
    once: list[Step] = []
    each: list[Step] = []
    for step in steps:
        if not step.written() <= of_x or torch.Tag.nondeterministic_seeded in step.operation.tags:
            return [], list(steps)
        depends = not of_x.isdisjoint(step.operands())
        (each if depends else once).append(step)
        of_x = of_x.union(step.results()) if depends else of_x
    return once, each


@lru_cache(256)
def _compiled(source: str) -> CodeType:
    return compile(source, "<program of a function>", "exec")


def _arguments(slots: Sequence[Slot]) -> str:
    return ", ".join(f"v{slot.i}" for slot in slots)


def _last_uses(steps: Sequence[Step]) -> dict[int, int]:
    return {i: k for k, step in enumerate(steps) for i in (*step.operands(), *step.results())}


class _Source:
    """Lines of Python, and the names of all that is no tensor in them."""

    def __init__(self, names: dict[str, Any]) -> None:
        self.names = names
        self.operations: dict[Any, str] = {}

    def line(self, step: Step) -> str:
        named = [f"{name}={self.text(value)}" for name, value in step.kwargs.items()]
        call = f"{self._operation(step.operation)}({', '.join([*map(self.text, step.args), *named])})"
        outs = ["_" if slot is None else f"v{slot.i}" for slot in step.outs]
        if not outs:
            return call
        returns = step.operation._schema.returns
        one = len(returns) == 1 and isinstance(returns[0].type, torch.TensorType)
        return f"{outs[0]} = {call}" if one else f"{', '.join(outs)}, = leaves({call})"

    def text(self, value: Any) -> str:
        if isinstance(value, Slot):
            return f"v{value.i}"
        if isinstance(value, list | tuple) and any(True for _ in slots_in(value)):
            parts = "".join(f"{self.text(part)}, " for part in value)
            return f"[{parts}]" if isinstance(value, list) else f"({parts})"
        name = f"c{len(self.names)}"
        self.names[name] = value
        return name

    def _operation(self, operation: Any) -> str:
        name = self.operations.setdefault(operation, f"f{len(self.operations)}")
        self.names[name] = operation
        return name
