"""Explanation of the automatic choice."""

from __future__ import annotations

from dataclasses import dataclass

from ..iteration.method import Method
from .facts import Facts
from .table import ROWS


@dataclass(frozen=True)
class Explanation:
    """Explanation of an automatic choice; hashable.

    Attributes:
        system: description of the system.
        passed: rows of the table that do not hold.
        row: the row that holds.
        method: its method and preconditioner.
        why: the reason for it.
        fallback: the method that is tried where this one fails.
    """

    system: str
    passed: tuple[str, ...]
    row: str
    method: str
    why: str
    fallback: str | None

    def __str__(self) -> str:
        lines = [self.system, *(f"  no   {known}" for known in self.passed), f"  yes  {self.row}"]
        lines.append(f"-> {self.method}: {self.why}")
        if self.fallback is not None:
            lines.append(f"   if it fails: {self.fallback}")
        return "\n".join(lines)


def explain(facts: Facts, number: int, fallback: Method | None) -> Explanation:
    """Explain why row `number` of the table decides."""
    row = ROWS[number]
    method = row.method if row.preconditioner is None or facts.preconditioned else f"{row.method}, preconditioned"
    name = None if fallback is None else fallback.name
    return Explanation(_system(facts), tuple(r.known for r in ROWS[:number]), row.known, method, row.why, name)


def _system(facts: Facts) -> str:
    A, count = facts.A, facts.problem.layout.systems
    systems = "" if count == 1 else f", {count} systems at once"
    what = f"{A!r}{systems}"
    if facts.matrix is not None and facts.matrix is not A:
        what += f", traced to {facts.matrix!r}"
    elif facts.untraced is not None:
        what += f", which {facts.untraced}"
    return what
