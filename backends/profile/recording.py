"""A profile: the calls of one run, the user's lines that led to them, and their report in text and for viewers."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path, PurePath
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple

from ..standard.library import RULES
from .spans import Span
from .watching import watched

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

    @property
    def has_new_lines(self) -> bool:
        """Was it called from other lines than the call around it?"""
        return bool(self.lines) and (self.parent is None or self.parent.lines != self.lines)

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


# --- The events of one run --------------------------------------------------------------------------------------------


class OtherCalls(ValueError):
    """A second run has made other calls than the first."""


class Profile:
    """The calls that were made inside `with krylix.profile()`.

    Attributes:
        events: all calls, in the order in which they began.
        threads: names of the threads that made calls, in order of appearance.
        start: when the profile began, in seconds of `time.perf_counter`.
        blocking: was the result of each call waited for? Otherwise times are those of handing work out.
        notes: lines that the report ends with.
    """

    def __init__(self, libraries: Collection[str] | None, trace: bool, blocking: bool) -> None:
        self.blocking = blocking
        self.notes: list[str] = []
        self._libraries, self._trace = libraries, trace
        self._begin()

    def _begin(self) -> None:
        self.events: list[ProfileEvent] = []
        self.threads: list[str] = []
        self.start = self._end = 0.0
        self._of_thread = threading.local()

    @property
    def duration(self) -> float:
        """Seconds from the beginning to the end of the `with` block, or until now."""
        return min(self._end, perf_counter()) - self.start

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
        first = vars(self).copy()
        self._begin()
        self._trace = False
        try:
            with self.record():
                yield
            for event, timed in _pairs(first["events"], first["threads"], self.events, self.threads):
                timed.lines, timed.facts, timed.traced = event.lines, event.facts, event.traced
        except BaseException:
            vars(self).update(first)
            raise
        self._trace = first["_trace"]

    def report(self, min_duration: float = 0.0) -> str:
        """The calls as a table: those with the same name, from the same line and inside the same call are one row.

        Args:
            min_duration: seconds; rows below are left out, and counted in the last line.
        """
        waits = "each call waits for its result" if self.blocking else "calls do not wait for their results"
        lines, left_out = [f"{self!r}; {waits}", f"{'ms':>10}{'own ms':>10}{'calls':>8}  call"], 0
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
        process = os.getpid()
        names = [("process_name", 0, "krylix"), *(("thread_name", k, name) for k, name in enumerate(self.threads))]
        told = {"blocking": self.blocking, "seconds": self.duration, "notes": self.notes, "kinds": KINDS}
        file = {
            "traceEvents": [
                *(
                    {"name": what, "ph": "M", "pid": process, "tid": k, "args": {"name": name}}
                    for what, k, name in names
                ),
                *({"pid": process, **_trace_event(event, self.start)} for event in self.events),
            ],
            "displayTimeUnit": "ms",
            "otherData": told,
        }
        Path(path).write_text(json.dumps(file, allow_nan=False, default=str), encoding="utf-8")

    def __repr__(self) -> str:
        return f"<Profile: {len(self.events)} calls in {time_text(self.duration)}>"

    # --- recording ----------------------------------------------------------------------------------------------------

    @contextmanager
    def record(self) -> Iterator[None]:
        """Record inside the `with` block; calls that other threads have not left at its end, end with it."""
        with watched(self):
            self.start, self._end = perf_counter(), math.inf
            try:
                yield
            finally:
                self._end = perf_counter()
                for event in list(self.events):
                    if event.end is None:
                        event.end, event.facts["unfinished"] = self._end, True

    def open_event(
        self, kind: str, name: str, library: str | None, args: Sequence[Any], traced: bool, frame: FrameType | None
    ) -> ProfileEvent | None:
        """Begin an event in this thread; None if its calls do not count, or it repeats the one around it."""
        if self._end < math.inf or not (library is None or self._libraries is None or library in self._libraries):
            return None
        thread = self._here()
        parent, outer = thread.around[-1] if thread.around else (None, None)
        if parent is not None and parent.kind == kind and _repeats(kind, name, parent.name):
            return None
        event = ProfileEvent(name, kind, library, thread.number, parent, (), traced)
        if self._trace:
            event.lines = source_lines_below(frame, outer, parent.lines if parent is not None else ())
            event.facts = arrays_of(args)
        self.events.append(event)
        thread.around.append((event, None if kind == "region" else frame))
        event.start = perf_counter()
        return event

    def close_event(self, event: ProfileEvent) -> None:
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

    def _here(self) -> threading.local:
        """`number` of this thread, and `around`: the calls that it has not left, innermost last, with their frames."""
        here = self._of_thread
        if not hasattr(here, "around"):
            with _lock:
                here.number, here.around = len(self.threads), []
                self.threads.append(threading.current_thread().name)
        return here


_lock = threading.Lock()


def _repeats(kind: str, name: str, around: str) -> bool:
    """Is a call part of the call around it, of the same kind, and no event by itself?

    So are operators that others are made of, and the function of `xp` that a function of the standard calls.
    """
    return kind in ("product", "preconditioner") or (kind == "operation" and name in RULES and name == around)


def _pairs(
    first: list[ProfileEvent], threads: list[str], second: list[ProfileEvent], threads_of_second: list[str]
) -> Iterator[tuple[ProfileEvent, ProfileEvent]]:
    """The events of two runs, thread by thread.

    Raises:
        OtherCalls: the second run has made other calls.
    """
    hint = (
        "Run the same code once or twice before it is profiled: first calls set up and compile what later ones reuse."
    )
    if len(threads) != len(threads_of_second):
        raise OtherCalls(f"The second run used {len(threads_of_second)} threads, the first one {len(threads)}. {hint}")
    for thread in range(len(threads)):
        runs = [[event for event in events if event.thread == thread] for events in (first, second)]
        names = ([event.name for event in run] for run in runs)
        for number, (a, b) in enumerate(zip_longest(*names, fillvalue="no more")):
            if a != b:
                raise OtherCalls(f"The second run made other calls: number {number} was {b}, in the first {a}. {hint}")
        yield from zip(*runs, strict=True)


# --- The report ------------------------------------------------------------------------------------------------------

_OUTCOME = ("method", "preconditioner", "iterations", "residual_norm", "gradient_norm", "converged", "error")


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
        facts = {key: event.facts[key] for key in _OUTCOME if event.facts.get(key) is not None}
        if self.calls and "iterations" in facts and "iterations" in self.facts:
            facts["iterations"] = self.facts["iterations"] = facts["iterations"] + self.facts["iterations"]
        # Facts that all calls share. Two NaN, such as the residuals of failed solves, count as equal.
        same = {key for key, b in facts.items() if (a := self.facts.get(key)) == b or (a != a and b != b)}
        self.facts = {key: fact for key, fact in self.facts.items() if key in same} if self.calls else facts
        self.calls += 1


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
    event = row.first
    words = [event.name if event.kind in ("operation", "solve") else f"{event.kind} {event.name}"]
    words += ["(traced)"] if event.traced else []
    words += [f"{key}={fact:.3g}" if isinstance(fact, float) else f"{key}={fact}" for key, fact in row.facts.items()]
    words += [f"<- {event.lines[-1]}"] if event.has_new_lines else []
    return " ".join(words)


def _trace_event(event: ProfileEvent, start: float) -> dict[str, Any]:
    """The event as Perfetto and chrome://tracing read it; JSON knows no infinity and no NaN."""
    facts: dict[str, Any] = {"kind": event.kind, **event.facts}
    if event.library is not None:
        facts["library"] = event.library
    if event.lines:
        facts["line"] = str(event.lines[-1])
    if event.has_new_lines:
        facts["stack"] = [f"{line.file}:{line.line} {line.function}" for line in event.lines]
    return {
        "name": event.name,
        "cat": "traced" if event.traced else event.kind,
        "ph": "X",
        "ts": 1e6 * (event.start - start),
        "dur": 1e6 * event.duration,
        "tid": event.thread,
        "args": {k: str(f) if isinstance(f, float) and not math.isfinite(f) else f for k, f in facts.items()},
    }
