"""The standard streams of a command: its report as lines or as JSON, a line of progress, and errors that end it."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from .. import __version__

_PATIENCE = 0.5  # seconds until the progress line appears, and between its changes
_BAR = 24  # characters
_ARGUMENT = re.compile(r"\b(method|preconditioner)='([^']+)'")


class UsageError(Exception):
    """An input cannot be used: exit code 2, and this text in one line."""


class SolveFailed(Exception):
    """The input was fine, but there is no result, or it could not be written: exit code 1."""


def as_options(message: str) -> str:
    """Return a message of the library, whose advice is about arguments, with advice about options.

    >>> as_options("for none give preconditioner=None, or preconditioner='ilu', with method='CG'.")
    'for none leave out --preconditioner, or --preconditioner ilu, with --method CG.'
    """
    return _ARGUMENT.sub(r"--\1 \2", message.replace("give preconditioner=None", "leave out --preconditioner"))


@contextmanager
def errors_of_library(action: str, subject: str = "") -> Iterator[None]:
    """Raise errors of the library as SolveFailed where the numbers or the machine are at fault, else as UsageError."""
    try:
        yield
    except (np.linalg.LinAlgError, RuntimeError, MemoryError, ArithmeticError) as error:
        raise SolveFailed(f"{subject}{action} failed: {error or type(error).__name__}") from error
    except (ValueError, TypeError, ImportError) as error:
        raise UsageError(f"{subject}{as_options(str(error))}") from error


class Fact(NamedTuple):
    """One fact of a report, for people and for programs.

    Attributes:
        label, text: a line for people; no line where the text is None.
        entries: for the JSON object.
    """

    label: str
    text: str | None
    entries: dict[str, Any] = {}  # noqa: RUF012  # never changed


class Report:
    """The report of a command: lines as they are known, with --json one object at the end, with --quiet nothing."""

    def __init__(self, options: argparse.Namespace, streams: Streams) -> None:
        self.streams = streams
        self._json: bool = options.json
        self._silent: bool = options.json or options.quiet
        self._object: dict[str, Any] = {"krylix": __version__, "command": options.command}

    def add(self, facts: Iterable[Fact]) -> None:
        """Facts, a line for each."""
        for label, text, entries in facts:
            self._object.update(entries)
            if text is not None:
                self.lines([f"{label:<16} {text}"])

    def lines(self, lines: Iterable[str]) -> None:
        """Lines for people only, such as those of a table."""
        if not self._silent:
            for line in lines:
                self.streams.say(line)

    def end(self) -> None:
        """Print the JSON object with --json; numbers that are not finite are null."""
        if self._json:
            self.streams.say(json.dumps(_plain(self._object), allow_nan=False))


def _plain(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: _plain(value) for key, value in x.items()}
    if isinstance(x, (list, tuple)):
        return [_plain(value) for value in x]
    if isinstance(x, np.generic):
        x = x.item()
    return None if isinstance(x, float) and not math.isfinite(x) else x


class Streams:
    """Lines on stdout, or on stderr where stdout carries the result.

    If the reader closes the pipe (`krylix ... | head`), the work is still done, and its outcome decides the exit code.
    A full disk is reported.
    """

    def __init__(self) -> None:
        self.problem: str | None = None
        self._ended = False
        self._aside = False

    def step_aside(self) -> None:
        """Write the following lines on stderr."""
        self._aside = True

    def say(self, line: str) -> None:
        """Write one line now; characters that the encoding lacks are escaped (file names may have any)."""
        stream = sys.stderr if self._aside else sys.stdout
        encoding = getattr(stream, "encoding", None) or "utf-8"
        self._write(stream, line.encode(encoding, "backslashreplace").decode(encoding) + "\n")

    def send(self, content: bytes) -> None:
        """Bytes on stdout."""
        self._write(getattr(sys.stdout, "buffer", None), content)

    def finish(self) -> None:
        """Write everything now, because a failure at the end of the process could not be handled."""
        self._write(sys.stdout, "")

    def _write(self, stream: Any, content: str | bytes) -> None:
        if self._ended or stream is None:
            return
        try:
            stream.write(content)
            stream.flush()
        except OSError as error:
            if self._aside and stream is sys.stderr:
                return
            self._ended = True
            if not isinstance(error, BrokenPipeError):
                what = "x" if self._aside else "the report"
                self.problem = f"{what} cannot be written: {error.strerror or error}."
            with suppress(OSError, ValueError):  # the rest must not fail again
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Activity:
    """Context: a line on stderr, if that is a terminal, names the activity and its time; it is erased at the end.

    Args:
        text: the activity.
        part: number of finished activities and of all, where this is one of several: drawn as a bar.
    """

    def __init__(self, text: str, part: tuple[int, int] | None = None) -> None:
        if part is not None:
            done, whole = part
            text = f"[{'#' * (_BAR * done // whole):<{_BAR}}] {done}/{whole} {text}"
        self.text, self.stream = text, sys.stderr
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
        except (OSError, ValueError):  # the terminal was closed
            self._done.set()
