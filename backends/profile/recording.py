"""One call in a profile."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple

from ..standard.library import RULES

KINDS = {
    "solve": "a call of linear_solve, of a prepared solver, of solve_nonlinear or minimize",
    "set-up": "checks, the choice of a method, preconditioners and factors",
    "run": "the iterations of a solve, or an application of factors",
    "judge": "the outcome as a result; of a failure what `on_failure` says, and its cause",
    "trace": "the matrix of a function",
    "product": "A x",
    "preconditioner": "M r, or an application of factors",
    "operation": "an operation on arrays",
    "user": "a function of the user, called by krylix",
    "host call": "a function on the host, called by a program",
    "compiled": "a compiled function; its first call includes compiling it",
    "derivative": "a function that backend.jacobian or hessian made",
    "region": "what the user has named",
}
"""Kind of an event -> what it is."""


@dataclass(eq=False, slots=True)
class ProfileEvent:
    """One call.

    Attributes:
        name: of the function.
        kind: a key of `KINDS`.
        library: name of the backend, or None.
        thread: number of the thread, in order of appearance.
        parent: the call around it, or None.
        lines: of the user's files, the outermost first, the calling one last.
        traced: was it recorded into a program instead of run? Its time is then that of tracing.
        start, end: in seconds of `time.perf_counter`; end is None while it runs.
        inside: seconds of the calls that it made.
        facts: shapes and dtypes of its arrays, and for a solve its outcome.
    """

    name: str
    kind: str
    library: str | None
    thread: int
    parent: ProfileEvent | None = None
    lines: tuple[SourceLine, ...] = ()
    traced: bool = False
    start: float = 0.0
    end: float | None = None
    inside: float = 0.0
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def duration(self) -> float:
        """Seconds, with the calls that it made."""
        return 0.0 if self.end is None else self.end - self.start

    @property
    def own_time(self) -> float:
        """Seconds without the calls that it made."""
        return max(self.duration - self.inside, 0.0)

    @property
    def depth(self) -> int:
        """Number of calls around it."""
        return 0 if self.parent is None else self.parent.depth + 1

    def __repr__(self) -> str:
        traced = ", traced" if self.traced else ""
        return f"<{self.kind} {self.name}: {time_text(self.duration)}{traced}>"


def time_text(seconds: float) -> str:
    """Three digits, in a unit that suits them."""
    unit, factor = next(((u, f) for u, f in (("s", 1), ("ms", 1e3)) if seconds * f >= 1), ("us", 1e6))
    return f"{seconds * factor:.3g} {unit}"


# --- The user's lines that led to a call: frames outside of krylix and of the array libraries -------------------------

_OTHERS = frozenset((
    "krylix", "numpy", "scipy", "jax", "jaxlib", "torch", "tensorflow", "keras", "functools", "contextlib",
    "concurrent", "threading", "runpy", "importlib",
))  # fmt: skip


class SourceLine(NamedTuple):
    """A line of a user's file, inside of a function."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{PurePath(self.file).name}:{self.line} {self.function}"


_files: dict[str, bool] = {}  # name -> is it of the user?


def is_of_user(frame: FrameType) -> bool:
    """Is the frame of code that is neither krylix nor an array library?"""
    file = frame.f_code.co_filename
    found = _files.get(file)
    if found is None:
        module = str(frame.f_globals.get("__name__", ""))
        # what TensorFlow makes of functions lies in files that nobody can open
        found = module.partition(".")[0] not in _OTHERS and "__autograph_generated_file" not in file
        if not file.startswith("<"):  # the name of text that was executed says nothing
            _files[file] = found
    return found


def source_lines_below(
    frame: FrameType | None, outer: FrameType | None, lines_of_outer: tuple[SourceLine, ...]
) -> tuple[SourceLine, ...]:
    """All lines of the user from the start of the program to this frame, the innermost last.

    Args:
        outer: the frame that made the call around this one; where there is no code of the user in between, the lines
            are the same.
    """
    lines: list[SourceLine] = []
    while frame is not None:
        if frame is outer and not lines:
            return lines_of_outer
        if is_of_user(frame):
            lines.append(SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(reversed(lines))


# --- The events of one run --------------------------------------------------------------------------------------------


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
        self, kind: str, name: str, library: str | None, args: Sequence[Any], traced: bool, frame: FrameType | None
    ) -> ProfileEvent | None:
        """Begin an event in this thread; None if its calls do not count, or it repeats the one around it."""
        if self.end is not None or not (library is None or self.libraries is None or library in self.libraries):
            return None
        thread = self._here()
        around = thread.around
        parent, outer = around[-1] if around else (None, None)
        # A backend's function of the standard may call that of `xp`, which is watched, too.
        is_twice = kind == "operation" and name in RULES and parent is not None and parent.name == name
        if parent is not None and parent.kind == kind and (kind in _MADE_OF_THE_SAME or is_twice):
            return None
        event = ProfileEvent(name, kind, library, thread.number, parent, (), traced)
        if self.trace:
            event.lines = source_lines_below(frame, outer, parent.lines if parent is not None else ())
            event.facts = arrays_of(args)
        self.events.append(event)
        around.append((event, None if kind == "region" else frame))
        event.start = perf_counter()
        return event

    def close(self, event: ProfileEvent) -> None:
        """End an event, and those inside that have not ended."""
        now = perf_counter()
        if event.end is not None:  # the profile has ended before
            return
        event.end = now
        around = self._here().around
        while around and around.pop()[0] is not event:
            pass
        if event.parent is not None:
            event.parent.inside += now - event.start

    def finish(self) -> None:
        """End the recording; calls that other threads have not left by now end with it."""
        self.end = perf_counter()
        for event in list(self.events):
            if event.end is None:
                event.end, event.facts["unfinished"] = self.end, True

    def _here(self) -> threading.local:
        """`number` of this thread, and `around`: the calls that it has not left, innermost last, with their frames."""
        here = self._of_thread
        if not hasattr(here, "around"):
            with _lock:
                here.number, here.around = len(self.threads), []
                self.threads.append(threading.current_thread().name)
        return here

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
_MADE_OF_THE_SAME = {"product", "preconditioner"}  # operators that are made of others: one event


def arrays_of(args: Iterable[Any]) -> dict[str, Any]:
    """Shapes and dtypes of the arrays among the positional arguments."""
    shapes, dtypes = [], []
    for x in args:
        shape, dtype = getattr(x, "shape", None), getattr(x, "dtype", None)
        if shape is not None and dtype is not None:
            try:
                sizes = shape if type(shape) is tuple else tuple(n if n is None else int(n) for n in shape)
            except (TypeError, ValueError):  # known only when a program runs
                sizes = None
            shapes.append(sizes)
            key = type(dtype), dtype  # those of different libraries are not to be compared
            if key not in _words:
                _words[key] = str(getattr(dtype, "name", dtype)).rpartition(".")[2]
            dtypes.append(_words[key])
    return {"shapes": shapes, "dtypes": dtypes} if shapes else {}


_words: dict[tuple[type, Any], str] = {}


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
