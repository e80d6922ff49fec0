"""Functions that record their calls, and where these stand in for others while a profile runs.

They are attributes of backends (in the `__dict__` of the instance), of classes and of modules, which are what they were
when the last profile has ended. So nothing has to ask whether a profile runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from threading import RLock
from types import FrameType
from typing import Any, NamedTuple

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
    opened = _open(description, args, frame)
    if not opened:
        return function(*args, **kwargs)
    facts: dict[str, Any] = {}
    try:
        found = function(*args, **kwargs)
        if any(recorded.blocking and not event.traced for recorded, event in opened):
            wait_for(found)
    except BaseException as error:
        _close(opened)
        facts = _facts(description, error) | {"error": type(error).__name__}
        raise
    else:
        _close(opened)
        facts = _facts(description, found)
        return found
    finally:
        for _, event in opened:
            event.traced = facts.get("traced", event.traced)
            event.facts.update((key, value) for key, value in facts.items() if key != "traced")


def _is_compiling() -> bool:
    """Is PyTorch's compiler reading this? It sees no more than what is called without a profile."""
    compiler = sys.modules.get("torch.compiler")
    return compiler is not None and compiler.is_dynamo_compiling()


def _open(
    description: CallDescription, args: tuple[Any, ...], frame: FrameType | None
) -> list[tuple[RecordedRun, ProfileEvent]]:
    opened = []
    for recorded in tuple(_running):
        event = _opened(description, recorded, args, frame)
        if event is not None:  # TensorFlow's AutoGraph, which may read this, knows no shorter way to write it
            opened.append((recorded, event))
    return opened


def _opened(
    description: CallDescription, recorded: RecordedRun, args: tuple[Any, ...], frame: FrameType | None
) -> ProfileEvent | None:
    kind, name, backend, _ = description
    bk = backend(args) if callable(backend) else backend
    library = None if bk is None else bk.name
    title = name(args) if callable(name) else name
    return recorded.open(title, kind, library, arrays_of(args), is_traced(bk), frame)


def _close(opened: list[tuple[RecordedRun, ProfileEvent]]) -> None:
    for recorded, event in opened:
        recorded.close(event)


def _facts(description: CallDescription, found: Any) -> dict[str, Any]:
    return {} if description.facts is None else description.facts(found)


@contextmanager
def region(name: str) -> Iterator[None]:
    """An event of this name around the `with` block."""
    opened = _open(CallDescription("region", name), (), sys._getframe(2))
    try:
        yield
    finally:
        _close(opened)


def arrays_of(args: Iterable[Any]) -> dict[str, Any]:
    """Shapes and dtypes of the arrays among the positional arguments."""
    found = [(x.shape, x.dtype) for x in args if hasattr(x, "shape") and hasattr(x, "dtype")]
    return {"shapes": [_sizes(shape) for shape, _ in found], "dtypes": [_word(d) for _, d in found]} if found else {}


def _sizes(shape: Any) -> tuple[int | None, ...] | None:
    """None for what is known only when a program runs."""
    try:
        return tuple(n if n is None else int(n) for n in shape)
    except (TypeError, ValueError):
        return None


def _word(dtype: Any) -> str:
    return str(getattr(dtype, "name", dtype)).rpartition(".")[2]


def wait_for(found: Any) -> None:
    """Wait until the arrays of a result have their values."""
    if isinstance(found, dict):
        found = tuple(found.values())
    if isinstance(found, list | tuple):
        for part in found:
            wait_for(part)
    elif hasattr(found, "block_until_ready"):
        found.block_until_ready()
    elif getattr(found, "is_cuda", False):
        sys.modules["torch"].cuda.synchronize(found.device)
    elif hasattr(found, "residual_norm"):  # the result of a solve
        wait_for(found.x)


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
