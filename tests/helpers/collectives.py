"""What devices tell each other in a compiled program of JAX, read from its text."""

from __future__ import annotations

import re
from collections import Counter

KINDS = ("all-reduce", "all-gather", "collective-permute", "all-to-all", "reduce-scatter")
_CALLS = r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%?([\w.\-]+)"
_LOOP = r"(?:body|condition)=%?([\w.\-]+)"


def collectives(program: str) -> tuple[dict[str, int], dict[str, int]]:
    """How many of each kind stand in the innermost loop of a solve and its condition, and how many elsewhere.

    A solve is a loop inside of another; what its failure needs is in a loop by itself.
    """
    parts = _computations(program)
    called = {name: set(re.findall(_CALLS, text)) | _branches(text) for name, text in parts.items()}

    def reached(names: set[str]) -> set[str]:
        found: set[str] = set()
        while names:
            found |= names
            names = {other for name in names for other in called[name]} & set(parts) - found
        return found

    loops = [set(re.findall(_LOOP, line)) for text in parts.values() for line in text.splitlines() if " while(" in line]
    inside = {name for loop in loops for part in reached(loop) for name in re.findall(_LOOP, parts[part])}
    innermost = [loop for loop in loops if loop <= inside and not any(" while(" in parts[p] for p in reached(loop))]
    steps = reached(set().union(*innermost))
    counts = {name: Counter(re.findall(rf" ({'|'.join(KINDS)})(?:-start)?\(", text)) for name, text in parts.items()}
    here = sum((counts[name] for name in steps), Counter())
    return dict(here), dict(sum(counts.values(), Counter()) - here)


def _computations(program: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for match in re.finditer(r"^(?:ENTRY )?%?([\w.\-]+) \([^\n]*\{\n(.*?)^\}", program, re.MULTILINE | re.DOTALL):
        found[match[1]] = match[2]
    return found


def _branches(text: str) -> set[str]:
    lists = re.findall(r"branch_computations=\{([^}]*)\}", text)
    return {name.strip(" %") for names in lists for name in names.split(",")}
