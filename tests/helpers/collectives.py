"""What devices tell each other in a compiled program of JAX, read from its text, as benchmarks/scaling.py does too."""

from __future__ import annotations

import re
from collections import Counter
from math import prod
from typing import NamedTuple

KINDS = ("all-reduce", "all-gather", "collective-permute", "all-to-all", "reduce-scatter")
_CALLS = r"(?:calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)"
_LOOP = r"(?:body|condition)=%?([\w.\-]+)"
_TRIPS = r'known_trip_count":\{"n":"(\d+)"'


class Message(NamedTuple):
    """One collective operation.

    Attributes:
        kind: one of `KINDS`.
        bytes: size of the result on one device.
        in_step: is it in the loop of a solve's steps or its condition? Otherwise it is before or after all steps.
        times: how often it runs, in each step or in the program: it may lie in loops of known length.
    """

    kind: str
    bytes: int
    in_step: bool
    times: int


def messages(program: str) -> list[Message]:
    """Every collective operation of a compiled program.

    The loop of steps is a loop without a known number of turns inside of another one, and has none like that in it: a
    solve consists of rounds of steps. What its failure needs is in a loop by itself.
    """
    parts = _computations(program)
    called = {name: _called(text) for name, text in parts.items()}

    def reached(name: str, times: int) -> Counter[str]:
        """The computations below one of them, and how often each runs."""
        found = Counter({name: times})
        for other, trips in called[name]:
            if other in parts:
                found += reached(other, times * max(trips, 1))
        return found

    below = {name: reached(name, 1) for name in parts}
    loops = {other for calls in called.values() for other, trips in calls if trips == 0}
    inside = {name for loop in loops for name in below[loop] if name != loop} & loops
    steps = {name for name in inside if not (set(below[name]) - {name}) & loops}
    in_steps = sum((below[name] for name in steps), Counter())
    entry = re.search(r"^ENTRY %?([\w.\-]+) ", program, re.MULTILINE)
    outside = below[entry[1]] if entry else Counter(parts)
    found = []
    for name, text in parts.items():
        times = in_steps[name] or outside[name]
        found += [Message(kind, size, name in in_steps, times) for kind, size in _collectives(text)]
    return found


def collectives(program: str) -> tuple[dict[str, int], dict[str, int]]:
    """How many of each kind run in a step of a solve, and how many stand elsewhere."""
    step: Counter[str] = Counter()
    rest: Counter[str] = Counter()
    for one in messages(program):
        (step if one.in_step else rest)[one.kind] += one.times if one.in_step else 1
    return dict(step), dict(rest)


def _computations(program: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in re.finditer(r"^(?:ENTRY )?%?([\w.\-]+) \([^\n]*\{\n(.*?)^\}", program, re.MULTILINE | re.DOTALL):
        found[match[1]] = match[2]
    return found


def _called(computation: str) -> list[tuple[str, int]]:
    """The computations that one calls, and the number of turns: 1 but for loops, 0 where it is not known."""
    found = []
    for line in computation.splitlines():
        if " while(" in line:
            trips = re.search(_TRIPS, line)
            found += [(name, int(trips[1]) if trips else 0) for name in re.findall(_LOOP, line)]
        found += [(name, 1) for name in re.findall(_CALLS, line)]
        for names in re.findall(r"branch_computations=\{([^}]*)\}", line):
            found += [(name.strip(" %"), 1) for name in names.split(",")]
    return found


def _collectives(computation: str) -> list[tuple[str, int]]:
    found = []
    for shapes, kind, start in re.findall(rf"= (.*?) ({'|'.join(KINDS)})(-start)?\(", computation):
        size = sum(map(_bytes, re.findall(r"(\w+)\[([\d,]*)\]", shapes)))
        halves = start and kind in ("collective-permute", "all-gather")  # operands are named in the result, too
        found.append((kind, size // 2 if halves else size))
    return found


def _bytes(array: tuple[str, str]) -> int:
    dtype, shape = array
    bits = 8 if dtype == "pred" else int(re.sub(r"\D+", "", dtype) or 0)
    return prod(int(n) for n in shape.split(",") if n) * bits // 8


def constants(program: str) -> list[int]:
    """Bytes of the constants of a compiled program, which lie in full on each device."""
    return [_bytes(array) for array in re.findall(r"= (\w+)\[([\d,]*)\]\S* constant\(", program)]
