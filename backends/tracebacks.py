"""Tracebacks of errors as users see them: the line that called krylix, ours, and the user's functions inside."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_RAISES = dis.opmap["RAISE_VARARGS"]
# Modules between krylix and a user's function, that call it.
_LIBRARIES = {"krylix", "numpy", "scipy", "jax", "jaxlib", "torch", "tensorflow", "keras", *sys.stdlib_module_names}


def front_door(function: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a public function: what it raises has no frames of krylix but one."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            __tracebackhide__ = True  # for pytest
            shorten(error)
            raise

    return named_in_tracebacks(called, function.__name__)


def named_in_tracebacks(function: Callable[P, R], name: str) -> Callable[P, R]:
    """The function, which tracebacks show by this name."""
    function.__code__ = function.__code__.replace(co_name=name)
    return function


def shorten(error: BaseException) -> None:
    """Take frames of krylix and libraries from around those of the user's functions; the one that has caught it stays.

    A failure inside of krylix, which neither it nor a user's function has raised, keeps all frames. What krylix raises
    while it handles another error says all itself.
    """
    here = error.__traceback__
    if here is None:
        return
    if error.__cause__ is not None:
        error.__cause__.__traceback__ = _users_part(error.__cause__.__traceback__)
    elif _raised_by_krylix(here):
        error.__suppress_context__ = True
    error.__traceback__ = _with_next(here, _users_part(here.tb_next))


def _users_part(traceback: TracebackType | None) -> TracebackType | None:
    """From the user's first frame, and to the last one if krylix has raised; else all, or nothing if it has."""
    entries = list(_entries(traceback))
    of_users = [i for i, entry in enumerate(entries) if _library_of(entry) not in _LIBRARIES]
    ours = _raised_by_krylix(traceback)
    if not of_users:
        return None if ours else traceback
    part: TracebackType | None = None
    for entry in reversed(entries[of_users[0] : of_users[-1] + 1 if ours else None]):
        part = _with_next(entry, part)
    return part


def _with_next(entry: TracebackType, following: TracebackType | None) -> TracebackType:
    return TracebackType(following, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)


def _entries(traceback: TracebackType | None) -> Iterator[TracebackType]:
    while traceback is not None:
        yield traceback
        traceback = traceback.tb_next


def _library_of(entry: TracebackType) -> str:
    return str(entry.tb_frame.f_globals.get("__name__", "")).split(".")[0]


def _raised_by_krylix(traceback: TracebackType | None) -> bool:
    """Was the error raised by a `raise` statement of krylix, rather than by an operation that failed?"""
    entries = list(_entries(traceback))
    if not entries or _library_of(entries[-1]) != "krylix":
        return False
    return entries[-1].tb_frame.f_code.co_code[entries[-1].tb_lasti] == _RAISES
