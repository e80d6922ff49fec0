"""Profiles as files of trace events, which Perfetto and chrome://tracing show."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from .event import KINDS, ProfileEvent

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


def write(profile: Any, path: Path) -> None:
    """Write the file."""
    text = json.dumps(trace_events(profile), allow_nan=False)
    path.write_text(text, encoding="utf-8")


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
