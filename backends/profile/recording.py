"""The events of one run."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from dataclasses import replace
from time import perf_counter
from types import FrameType
from typing import Any

from .event import ProfileEvent
from .source_lines import is_of_user, source_lines


class OtherCalls(ValueError):
    """A second run has made other calls than the first."""


class RecordedRun:
    """Events in the order of their starts.

    Args:
        libraries: names of the backends whose calls count; None for all.
        trace: look for the user's lines and the shapes of arrays?
        blocking: wait for the result of each call?
        owner: who the recording is for.
    """

    def __init__(self, libraries: Collection[str] | None, trace: bool, blocking: bool, owner: Any = None) -> None:
        self.events: list[ProfileEvent] = []
        self.threads: list[str] = []  # their names, in order of appearance
        self.libraries, self.trace, self.blocking, self.owner = libraries, trace, blocking, owner
        self.start = perf_counter()
        self.end: float | None = None
        self._of_thread = threading.local()

    def open(
        self, name: str, kind: str, library: str | None, facts: dict[str, Any], traced: bool, frame: FrameType | None
    ) -> ProfileEvent | None:
        """Begin an event in this thread; None if its calls do not count, or it repeats the one around it."""
        if self.end is not None or not (library is None or self.libraries is None or library in self.libraries):
            return None
        around = self._around()
        parent = around[-1] if around else None
        if kind in ("product", "preconditioner") and parent is not None and parent.kind == kind:
            return None  # an operator that is made of another one
        event = ProfileEvent(name, kind, library, self._thread(), parent, self._lines(frame, parent), traced=traced)
        event.facts.update(facts if self.trace else {})
        self.events.append(event)
        around.append(event)
        event.start = perf_counter()
        return event

    def close(self, event: ProfileEvent) -> None:
        """End an event, and those inside that have not ended."""
        now, around = perf_counter(), self._around()
        if event.end is not None:  # the profile has ended before
            return
        event.end = now
        while around and around.pop() is not event:
            pass
        if event.parent is not None:
            event.parent.inside += event.end - event.start

    def finish(self) -> None:
        """End the recording; calls that other threads have not left by now end with it."""
        self.end = perf_counter()
        for event in list(self.events):
            if event.end is None:
                event.end, event.facts["unfinished"] = self.end, True

    def _around(self) -> list[ProfileEvent]:
        around: list[ProfileEvent] | None = getattr(self._of_thread, "around", None)
        if around is None:
            around = self._of_thread.around = []
        return around

    def _thread(self) -> int:
        found: int | None = getattr(self._of_thread, "number", None)
        if found is None:
            with _lock:
                found = len(self.threads)
                self.threads.append(threading.current_thread().name)
            self._of_thread.number = found
        return found

    def _lines(self, frame: FrameType | None, parent: ProfileEvent | None) -> tuple[Any, ...]:
        """What krylix calls by itself has the lines of the call around it."""
        if not self.trace or frame is None:
            return ()
        return parent.lines if parent is not None and not is_of_user(frame) else source_lines(frame)

    def with_times_of(self, other: RecordedRun) -> RecordedRun:
        """These events with the times of another run, which must have made the same calls.

        Raises:
            OtherCalls: it has not.
        """
        pairs = list(_pairs(self._by_thread(), other._by_thread()))
        found = RecordedRun(self.libraries, self.trace, self.blocking, self.owner)
        found.start, found.end, found.threads = other.start, other.end, self.threads
        new: dict[int, ProfileEvent] = {}
        for own, timed in pairs:
            parent = None if own.parent is None else new[id(own.parent)]
            new[id(own)] = replace(own, start=timed.start, end=timed.end, inside=timed.inside, parent=parent)
        found.events = [new[id(event)] for event in self.events]
        return found

    def _by_thread(self) -> list[list[ProfileEvent]]:
        found: list[list[ProfileEvent]] = [[] for _ in self.threads]
        for event in self.events:
            found[event.thread].append(event)
        return found


_lock = threading.Lock()


def _pairs(
    mine: list[list[ProfileEvent]], theirs: list[list[ProfileEvent]]
) -> Iterator[tuple[ProfileEvent, ProfileEvent]]:
    if len(mine) != len(theirs):
        raise OtherCalls(f"The second run used {len(theirs)} threads, the first one {len(mine)}. {_HINT}")
    for first, second in zip(mine, theirs, strict=True):
        for number in range(max(len(first), len(second))):
            a, b = (events[number].name if number < len(events) else "no more" for events in (first, second))
            if a != b:
                raise OtherCalls(f"The second run made other calls: number {number} was {b}, in the first {a}. {_HINT}")
        yield from zip(first, second, strict=True)


_HINT = "Run the same code once or twice before it is profiled: first calls set up and compile what later ones reuse."
