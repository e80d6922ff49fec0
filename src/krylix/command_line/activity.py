"""Progress line on the terminal during long operations."""

from __future__ import annotations

import sys
import time
from threading import Event, Thread
from types import TracebackType

_PATIENCE = 0.5  # seconds until the line appears, and between its changes
_BAR = 24  # characters


class Activity:
    """Context: what is done, and for how long, on stderr where that is a terminal; nothing is left of it.

    Args:
        text: what is done.
        part: how many things are done and how many there are in all, where this is one of several: drawn as a bar.
    """

    def __init__(self, text: str, part: tuple[int, int] | None = None) -> None:
        self.text, self.stream = text if part is None else f"{_bar(*part)} {text}", sys.stderr
        self._done, self._thread, self._width = Event(), Thread(target=self._show, daemon=True), 0

    def __enter__(self) -> Activity:
        self.start = time.monotonic()
        if self.stream is not None and self.stream.isatty():
            self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._done.set()
        if self._thread.ident is not None:
            self._thread.join()
        if self._width:
            self._write("\r" + " " * self._width + "\r")

    def _show(self) -> None:
        while not self._done.wait(_PATIENCE):
            line = f"{self.text} ... {time.monotonic() - self.start:.0f} s"
            self._width = len(line)
            self._write(f"\r{line}")

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):  # a terminal that went away
            self._done.set()


def _bar(done: int, whole: int) -> str:
    return f"[{'#' * (_BAR * done // whole):<{_BAR}}] {done}/{whole}"
