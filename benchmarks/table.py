"""Rows of the printed table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from .measure import Comparison

HEADER = ("what", "krylix", "peer", "ratio", "budget", "ok?")


@dataclass(frozen=True)
class Row:
    """One comparison. A budget is for the ratio, or for krylix's seconds where `budget_seconds` is given."""

    what: str
    peer: str
    measured: Comparison | None = None  # None: the peer is missing, or there is no peer
    missing: str = ""  # why
    budget: float | None = None
    budget_seconds: float | None = None

    @property
    def ok(self) -> bool | None:
        """Within the budget? None without one, or without a measurement."""
        if self.measured is None:
            return None
        if self.budget_seconds is not None:
            return self.measured.krylix <= self.budget_seconds
        return None if self.budget is None else self.measured.ratio <= self.budget

    def cells(self) -> tuple[str, ...]:
        limit = "" if self.budget is None else f"<= {self.budget:.3g}"
        if self.budget_seconds is not None:
            limit = f"<= {duration(self.budget_seconds)}"
        if self.measured is None:
            return (self.what, "", f"{self.peer}: {self.missing}", "", limit, "")
        verdict = {None: "", True: "yes", False: "NO"}[self.ok]
        m = self.measured
        return (
            self.what,
            duration(m.krylix),
            f"{self.peer}: {duration(m.peer)}",
            f"{m.ratio:.2f}" if m.ratio >= 0.1 else f"{m.ratio:.2g}",
            limit,
            verdict,
        )


def duration(seconds: float) -> str:
    """Three digits, in a unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{seconds / size:#.3g} {unit}".replace(". ", " ")
    return f"{seconds / 1e-6:#.3g} µs".replace(". ", " ")


def markdown(rows: Sequence[Row]) -> str:
    """The table, its columns aligned."""
    lines = [HEADER, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADER))]
    text = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |" for line in lines
    ]
    return "\n".join([text[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *text[1:]])


def as_json(facts: dict[str, object], groups: Sequence[str], rows: Sequence[Row]) -> str:
    """What was measured, without budgets, which are a matter of the developers.

    Args:
        facts: about the machine and the measurement.
        groups: which benchmark each row is of.
        rows: what was measured.
    """
    lines: list[dict[str, object]] = []
    for group, row in zip(groups, rows, strict=True):
        m = row.measured
        measured: dict[str, object] = {"missing": row.missing}
        if m is not None:
            measured = {"seconds": m.krylix, "peer_seconds": m.peer, "ratio": m.ratio}
        lines.append({"group": group, "what": row.what, "peer": row.peer} | measured)
    return json.dumps({"format": 1} | facts | {"rows": lines}, indent=1, ensure_ascii=False) + "\n"
