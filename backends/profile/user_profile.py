"""What a user gets of a profile."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from .event import ProfileEvent, time_text
from .recording import RecordedRun
from .report import report
from .spans import Span
from .timeline import draw
from .trace_events import write
from .watching import recorded


class Profile:
    """The calls that were made inside `with krylix.profile()`.

    Attributes:
        notes: lines that the report ends with.
    """

    def __init__(
        self, libraries: Collection[str] | None, trace: bool, blocking: bool, install: Callable[[], None]
    ) -> None:
        self._recorded = RecordedRun(libraries, trace, blocking, self)
        self._install = install
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
        with recorded(again, self._install):
            yield
        self._recorded = first.with_times_of(again)

    def report(self, min_duration: float = 0.0) -> str:
        """The calls as a table: those with the same name, from the same line and inside the same call are one row.

        Args:
            min_duration: seconds; rows below are left out, and counted in the last line.
        """
        return report(self, min_duration)

    def print(self, min_duration: float = 1e-3) -> None:
        """Print the report."""
        print(self.report(min_duration))  # noqa: T201

    def save(self, path: str | Path) -> None:
        """Write a file of trace events (JSON) for https://ui.perfetto.dev and chrome://tracing."""
        write(self, Path(path))

    def plot(self, path: str | Path | None = None, ax: Any = None) -> Any:
        """Draw the calls along the time, nested ones below those that made them.

        Args:
            path: a picture to write (.png, .pdf, .svg), or None.
            ax: axes of matplotlib to draw on; None makes a figure.

        Returns:
            the axes.

        Raises:
            ImportError: matplotlib is not installed.
        """
        return draw(self, None if path is None else Path(path), ax)

    def _record(self) -> AbstractContextManager[None]:
        return recorded(self._recorded, self._install)

    def __repr__(self) -> str:
        return f"<Profile: {len(self._recorded.events)} calls in {time_text(self.duration)}>"
