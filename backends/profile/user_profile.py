"""What a user gets of a profile: events, a report in text, a file of trace events for viewers."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

from .recording import KINDS, ProfileEvent, RecordedRun, time_text
from .spans import Span
from .watching import recorded


class Profile:
    """The calls that were made inside `with krylix.profile()`.

    Attributes:
        notes: lines that the report ends with.
    """

    def __init__(self, libraries: Collection[str] | None, trace: bool, blocking: bool) -> None:
        self._recorded = RecordedRun(libraries, trace, blocking, self)
        self.notes: list[str] = []

    @property
    def events(self) -> list[ProfileEvent]:
        """All calls, in the order in which they began."""
        return list(self._recorded.events)

    @property
    def threads(self) -> list[str]:
        """Names of the threads that made calls."""
        return list(self._recorded.threads)

    @property
    def start(self) -> float:
        """When the profile began, in seconds of `time.perf_counter`."""
        return self._recorded.start

    @property
    def duration(self) -> float:
        """Seconds from the beginning to the end of the `with` block, or until now."""
        end = self._recorded.end
        return (perf_counter() if end is None else end) - self._recorded.start

    @property
    def blocking(self) -> bool:
        """Was the result of each call waited for? Otherwise times are those of handing work out."""
        return self._recorded.blocking

    def region(self, name: str) -> AbstractContextManager[object]:
        """A `with` block that is an event by itself, with the calls inside; in every profile that is running."""
        return Span("region", name, None, None, (), sys._getframe(1))

    def add_external_message(self, message: str) -> None:
        """Add a line to `notes`."""
        self.notes.append(str(message))

    @contextmanager
    def retime(self) -> Iterator[None]:
        """Run the same code again inside of the `with` block, without looking for lines; its times replace the first.

        Raises:
            ValueError: it has made other calls. Run it once or twice before profiling it, as first calls set up and
                compile what later ones reuse.
        """
        first = self._recorded
        again = RecordedRun(first.libraries, False, first.blocking, self)
        with recorded(again):
            yield
        self._recorded = first.with_times_of(again)

    def report(self, min_duration: float = 0.0) -> str:
        """The calls as a table: those with the same name, from the same line and inside the same call are one row.

        Args:
            min_duration: seconds; rows below are left out, and counted in the last line.
        """
        waits = "each call waits for its result" if self.blocking else "calls do not wait for their results"
        lines, left_out = [f"{self!r}; {waits}", _HEAD], 0
        for depth, row in _walk(_tree(self.events), 0):
            if row.total < min_duration:
                left_out += 1
                continue
            lines.append(f"{1e3 * row.total:>10.3f}{1e3 * row.own:>10.3f}{row.calls:>8}  {'  ' * depth}{_text(row)}")
        if any(event.traced for event in self.events):
            lines.append("traced: recorded into a program, which runs later; the time is that of tracing")
        if left_out:
            lines.append(f"{left_out} rows below {1e3 * min_duration:g} ms are left out")
        return "\n".join([*lines, *self.notes])

    def print(self, min_duration: float = 1e-3) -> None:
        """Print the report."""
        print(self.report(min_duration))  # noqa: T201

    def save(self, path: str | Path) -> None:
        """Write a file of trace events (JSON) for https://ui.perfetto.dev and chrome://tracing."""
        Path(path).write_text(json.dumps(trace_events(self), allow_nan=False), encoding="utf-8")

    def _record(self) -> AbstractContextManager[None]:
        return recorded(self._recorded)

    def __repr__(self) -> str:
        return f"<Profile: {len(self._recorded.events)} calls in {time_text(self.duration)}>"


# --- Profiles as text -------------------------------------------------------------------------------------------------

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


# --- Profiles as files of trace events, which Perfetto and chrome://tracing show --------------------------------------

_MICROSECONDS = 1e6


def trace_events(profile: Any) -> dict[str, Any]:
    """The object that the file holds: names of the process and its threads, and one complete event for each call."""
    process = os.getpid()
    names = [_name(process, 0, "process_name", "krylix")]
    names += [_name(process, k, "thread_name", thread) for k, thread in enumerate(profile.threads)]
    return {
        "traceEvents": [*names, *(_complete(process, event, profile.start) for event in profile.events)],
        "displayTimeUnit": "ms",
        "otherData": {
            "blocking": profile.blocking,
            "seconds": profile.duration,
            "notes": profile.notes,
            "kinds": KINDS,
        },
    }


def _name(process: int, thread: int, what: str, name: str) -> dict[str, Any]:
    return {"name": what, "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}


def _complete(process: int, event: ProfileEvent, start: float) -> dict[str, Any]:
    facts: dict[str, Any] = {"kind": event.kind, **event.facts}
    if event.library is not None:
        facts["library"] = event.library
    if event.lines:
        facts["line"] = str(event.lines[-1])
    if event.lines and (event.parent is None or event.parent.lines != event.lines):
        facts["stack"] = [f"{line.file}:{line.line} {line.function}" for line in event.lines]
    return {
        "name": event.name,
        "cat": "traced" if event.traced else event.kind,
        "ph": "X",
        "ts": _MICROSECONDS * (event.start - start),
        "dur": _MICROSECONDS * event.duration,
        "pid": process,
        "tid": event.thread,
        "args": _plain(facts),
    }


def _plain(value: Any) -> Any:
    """The value as JSON has it, which knows no infinity and no NaN."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, bool | int | float | str | None) else str(value)
