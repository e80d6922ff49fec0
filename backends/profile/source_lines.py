"""The user's lines that led to a call: frames outside of krylix and of the array libraries."""

from __future__ import annotations

from pathlib import PurePath
from types import FrameType
from typing import NamedTuple

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


def is_of_user(frame: FrameType) -> bool:
    """Is the frame of code that is neither krylix nor an array library?"""
    if "__autograph_generated_file" in frame.f_code.co_filename:  # of TensorFlow, which nobody can open
        return False
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] not in _OTHERS


def source_lines(frame: FrameType | None) -> tuple[SourceLine, ...]:
    """All lines of the user from the start of the program to this frame, the innermost last."""
    found: list[SourceLine] = []
    while frame is not None:
        if is_of_user(frame):
            code = frame.f_code
            found.append(SourceLine(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(reversed(found))
