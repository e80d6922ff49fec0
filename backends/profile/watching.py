"""Functions that record their calls, and where these stand in for others while a profile runs.

They are attributes of backends (in the `__dict__` of the instance) and of classes, which are what they were when the
last profile has ended. So no operation has to ask whether a profile runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import RLock
from types import FrameType
from typing import Any, NamedTuple

from .recording import RecordedRun
from .spans import RUNNING, CallDescription, Span, is_compiling

_lock = RLock()
_MISSING = object()


class Stand(NamedTuple):
    """What stood at a place before."""

    owner: Any
    name: str
    before: Any


class Watched:
    """A function that records its calls; with the attributes of the one that it calls."""

    def __init__(self, description: CallDescription, untimed: Callable[..., Any]) -> None:
        self.description, self.untimed = description, untimed
        self.__wrapped__ = untimed

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not RUNNING or is_compiling():
            return self.untimed(*args, **kwargs)
        return _recorded(self.description, self.untimed, args, kwargs, sys._getframe(1))

    def __getattr__(self, name: str) -> Any:
        if name in ("untimed", "description"):  # of one that is being unpickled
            raise AttributeError(name)
        return getattr(self.untimed, name)

    def __repr__(self) -> str:
        return f"<profiled {self.untimed!r}>"


def watched_function(description: CallDescription, function: Callable[..., Any]) -> Callable[..., Any]:
    """As `Watched`, but a plain function, which becomes a method in a class."""

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if not RUNNING or is_compiling():
            return function(*args, **kwargs)
        return _recorded(description, function, args, kwargs, sys._getframe(1))

    return called


def _recorded(
    description: CallDescription, function: Callable[..., Any], args: Any, kwargs: Any, frame: FrameType | None
) -> Any:
    kind, name, backend = description
    bk = backend(args) if callable(backend) else backend
    with Span(kind, name if isinstance(name, str) else name(args), bk, None, args, frame) as done:
        return done(function(*args, **kwargs))


# --- what is running --------------------------------------------------------------------------------------------------


def innermost() -> RecordedRun | None:
    """The recording that began last."""
    return RUNNING[-1] if RUNNING else None


_stands: list[Stand] = []


def put(owner: Any, name: str, function: Any) -> None:
    """Put a function in the place of another one until the last profile has ended."""
    with _lock:
        if RUNNING:
            _stands.append(Stand(owner, name, vars(owner).get(name, _MISSING)))
            setattr(owner, name, function)


@contextmanager
def recorded(recording: RecordedRun, install: Callable[[], None]) -> Iterator[None]:
    """Record into it inside the `with` block.

    Args:
        install: puts all watched functions in their places, called by the first of several profiles.
    """
    try:
        with _lock:
            RUNNING.append(recording)
            if not _stands:
                install()
        yield
    finally:
        with _lock:
            recording.finish()
            RUNNING.remove(recording)
            while _stands and not RUNNING:
                owner, name, before = _stands.pop()
                if before is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)
