"""Functions that record their calls, and where these stand in for others while a profile runs.

They are attributes of backends (in the `__dict__` of the instance), of classes and of modules, which are what they were
when the last profile has ended. So nothing has to ask whether a profile runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import RLock
from types import FrameType
from typing import Any, NamedTuple

from ..registry import backend_name, get_backend
from .description import CallDescription, is_traced
from .event import ProfileEvent
from .recording import RecordedRun

_running: list[RecordedRun] = []  # of all threads, the innermost last
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
        if not _running or _is_compiling():
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
        if not _running or _is_compiling():
            return function(*args, **kwargs)
        return _recorded(description, function, args, kwargs, sys._getframe(1))

    return called


def _recorded(
    description: CallDescription, function: Callable[..., Any], args: Any, kwargs: Any, frame: FrameType | None
) -> Any:
    """Call a function as an event of every profile that runs. It takes little by itself: callers are timed, too."""
    kind, name, backend, facts_of = description
    bk = backend(args) if callable(backend) else backend
    traced = bk is not None and not bk.is_eager and is_traced(bk)
    opened = _open(kind, name if isinstance(name, str) else name(args), bk, args, traced, frame)
    if not opened:
        return function(*args, **kwargs)
    try:
        found = function(*args, **kwargs)
        if not traced and (bk is None or not bk.on_host) and any(recorded.blocking for recorded, _ in opened):
            wait_for(found)
    except BaseException as error:
        _close(opened)
        _tell(opened, _facts(facts_of, error) | {"error": type(error).__name__})
        raise
    _close(opened)
    if facts_of is not None:
        _tell(opened, _facts(facts_of, found))
    return found


def _facts(facts_of: Callable[[Any], dict[str, Any]] | None, found: Any) -> dict[str, Any]:
    """A profile breaks no call: numbers that lie on another process, for example, stay unknown."""
    try:
        return {} if facts_of is None else facts_of(found)
    except Exception as error:
        return {"unknown": str(error)}


def _is_compiling() -> bool:
    """Is PyTorch's compiler reading this? It sees no more than what is called without a profile."""
    compiler = sys.modules.get("torch.compiler")
    return compiler is not None and compiler.is_dynamo_compiling()


def _open(
    kind: str, name: str, bk: Any, args: tuple[Any, ...], traced: bool, frame: FrameType | None
) -> list[tuple[RecordedRun, ProfileEvent]]:
    library = None if bk is None else bk.name
    opened = []
    for recorded in _running[:]:
        event = recorded.open(kind, name, library, args, traced, frame)
        if event is not None:  # TensorFlow's AutoGraph, which may read this, knows no shorter way to write it
            opened.append((recorded, event))
    return opened


def _close(opened: list[tuple[RecordedRun, ProfileEvent]]) -> None:
    for recorded, event in opened:
        recorded.close(event)


def _tell(opened: list[tuple[RecordedRun, ProfileEvent]], facts: dict[str, Any]) -> None:
    traced = facts.pop("traced", False)
    for _, event in opened:
        event.traced = event.traced or traced
        event.facts.update(facts)


@contextmanager
def region(name: str) -> Iterator[None]:
    """An event of this name around the `with` block."""
    opened = _open("region", name, None, (), False, sys._getframe(2))
    try:
        yield
    finally:
        _close(opened)


def wait_for(found: Any) -> None:
    """Wait until the arrays of a result have their values."""
    if isinstance(found, dict):
        found = tuple(found.values())
    if isinstance(found, list | tuple):
        for part in found:
            wait_for(part)
    elif hasattr(found, "block_until_ready"):
        found.block_until_ready()
    elif hasattr(found, "iterations") and hasattr(found, "x"):  # the result of a solve
        wait_for(found.x)
    elif _is_on_accelerator(found) and (name := backend_name(found)) is not None:
        get_backend(name)._bind("block_until_ready")(found)


def _is_on_accelerator(x: Any) -> bool:
    device = str(getattr(x, "device", "")).lower()
    return device != "" and "cpu" not in device


# --- what is running ------------------------------------------------------------------------------------------------


def innermost() -> RecordedRun | None:
    """The recording that began last."""
    return _running[-1] if _running else None


_stands: list[Stand] = []


def put(owner: Any, name: str, function: Any) -> None:
    """Put a function in the place of another one until the last profile has ended."""
    with _lock:
        if _running:
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
            _running.append(recording)
            if not _stands:
                install()
        yield
    finally:
        with _lock:
            recording.finish()
            _running.remove(recording)
            while _stands and not _running:
                owner, name, before = _stands.pop()
                if before is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)
