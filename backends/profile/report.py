"""Profiles as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from .event import ProfileEvent

_HEAD = f"{'ms':>10}{'own ms':>10}{'calls':>8}  call"


@dataclass(eq=False)
class _Row:
    """Calls of one name, from one line and inside of one row."""

    first: ProfileEvent
    total: float = 0.0
    own: float = 0.0
    calls: int = 0
    below: dict[Any, _Row] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, event: ProfileEvent) -> None:
        self.total += event.duration
        self.own += event.own_time
        told = {key: event.facts[key] for key in _OUTCOME if event.facts.get(key) is not None}
        if not self.calls:
            self.facts = told
        elif "iterations" in told and "iterations" in self.facts:
            told["iterations"] += self.facts["iterations"]
            self.facts["iterations"] = told["iterations"]
        self.facts = {key: fact for key, fact in self.facts.items() if _same(told.get(key), fact)}
        self.calls += 1


def _same(a: Any, b: Any) -> bool:
    """Two NaN, such as the residuals of failed solves, count as equal."""
    return bool(a == b or (a != a and b != b))


def report(profile: Any, min_duration: float) -> str:
    """See `Profile.report`."""
    rows = _tree(profile.events)
    waits = "each call waits for its result" if profile.blocking else "calls do not wait for their results"
    traced = any(event.traced for event in profile.events)
    lines = [f"{profile!r}; {waits}", _HEAD]
    left_out = 0
    for depth, row in _walk(rows, 0):
        if row.total < min_duration:
            left_out += 1
            continue
        lines.append(f"{1e3 * row.total:>10.3f}{1e3 * row.own:>10.3f}{row.calls:>8}  {'  ' * depth}{_text(row)}")
    if traced:
        lines.append("traced: recorded into a program, which runs later; the time is that of tracing")
    if left_out:
        lines.append(f"{left_out} rows below {1e3 * min_duration:g} ms are left out")
    return "\n".join([*lines, *profile.notes])


def _tree(events: list[ProfileEvent]) -> dict[Any, _Row]:
    top: dict[Any, _Row] = {}
    row_of: dict[int, _Row] = {}
    for event in events:
        parent = event.parent
        siblings = top if parent is None else row_of[id(parent)].below
        key = (event.name, event.kind, event.traced, event.lines, event.thread if parent is None else 0)
        row = row_of[id(event)] = siblings.setdefault(key, _Row(event))
        row.add(event)
    return top


def _walk(rows: dict[Any, _Row], depth: int) -> Iterator[tuple[int, _Row]]:
    for row in sorted(rows.values(), key=lambda row: -row.total):
        yield depth, row
        yield from _walk(row.below, depth + 1)


def _text(row: _Row) -> str:
    event, parent = row.first, row.first.parent
    words = [event.name if event.kind in ("operation", "solve") else f"{event.kind} {event.name}"]
    words += ["(traced)"] if event.traced else []
    words += [f"{key}={_short(fact)}" for key, fact in row.facts.items()]
    if event.lines and (parent is None or event.lines != parent.lines):
        words.append(f"<- {event.lines[-1]}")
    return " ".join(words)


def _short(fact: Any) -> str:
    return f"{fact:.3g}" if isinstance(fact, float) else str(fact)


_OUTCOME = ("method", "preconditioner", "iterations", "residual_norm", "gradient_norm", "converged", "error")
