"""Standard output and standard error: the report, and what is piped to other programs."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any


class Streams:
    """Lines on stdout, or on stderr where stdout carries the result.

    Where nobody reads on (`krylix ... | head`), the work is done all the same, and its outcome decides about the exit
    code. A full disk is a problem to speak of.
    """

    def __init__(self) -> None:
        self.problem: str | None = None
        self._ended = False
        self._aside = False

    def step_aside(self) -> None:
        """Say what follows on stderr."""
        self._aside = True

    def say(self, line: str) -> None:
        """One line now, whatever characters the encoding lacks (file names may have any)."""
        stream = sys.stderr if self._aside else sys.stdout
        encoding = getattr(stream, "encoding", None) or "utf-8"
        self._write(stream, line.encode(encoding, "backslashreplace").decode(encoding) + "\n")

    def send(self, content: bytes) -> None:
        """Bytes on stdout."""
        self._write(getattr(sys.stdout, "buffer", None), content)

    def finish(self) -> None:
        """Let nothing be left for the end of the process, where nobody could see to a failure."""
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
            with suppress(OSError, ValueError):  # what could not be written must not fail again
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
