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
    while frame is not None and not is_of_user(frame):
        if frame is outer:
            return lines_of_outer
        frame = frame.f_back
    return lines_of_outer if frame is outer and outer is not None else _all_lines(frame)


def _all_lines(frame: FrameType | None) -> tuple[SourceLine, ...]:
    found: list[SourceLine] = []
    while frame is not None:
        if is_of_user(frame):
            code = frame.f_code
            found.append(SourceLine(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return tuple(reversed(found))
