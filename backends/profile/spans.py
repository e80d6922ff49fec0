"""Spans: `with` blocks that are events of the profiles that run, and two empty calls where none does.

What other layers need of profiles, loaded with krylix.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ..registry import backend_name, get_backend

if TYPE_CHECKING:
    from .recording import ProfileEvent, RecordedRun

T = TypeVar("T")
Facts = Callable[[Any], dict[str, Any]]

RUNNING: list[RecordedRun] = []  # of all threads, the innermost last


class _NoSpan:
    def __enter__(self) -> _NoSpan:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __call__(self, result: T, **facts: Any) -> T:
        return result


class Span:
    """A `with` block as an event of every profile that runs; `result = done(result)` ends it.

    The result of a call of it is waited for where a profile is blocking. Spans take little by themselves, because the
    calls around them are timed, too.

    Args:
        kind: a key of `event.KINDS`.
        name: of the event.
        bk: the backend whose arrays these are, or None.
        facts: of a result, or of the error that leaves the block; with the key "traced" if it was part of a program.
        args: arrays whose shapes are noted.
        frame: whose callers are looked through for lines of the user.
    """

    __slots__ = ("_args", "_bk", "_facts", "_frame", "_kind", "_name", "_opened", "_traced")

    def __init__(
        self, kind: str, name: str, bk: Any, facts: Facts | None, args: tuple[Any, ...], frame: FrameType | None
    ) -> None:
        self._kind, self._name, self._bk, self._facts, self._args, self._frame = kind, name, bk, facts, args, frame
        self._opened: list[tuple[RecordedRun, ProfileEvent]] = []
        self._traced = False

    def __enter__(self) -> Span:
        bk = self._bk
        self._traced = bk is not None and not bk.is_eager and is_traced(bk)
        library = None if bk is None else bk.name
        for recorded in RUNNING[:]:
            event = recorded.open(self._kind, self._name, library, self._args, self._traced, self._frame)
            if event is not None:  # TensorFlow's AutoGraph, which may read this, knows no shorter way to write it
                self._opened.append((recorded, event))
        return self

    def __call__(self, result: T, **facts: Any) -> T:
        """Return the result after its arrays are there, and end the event, with these facts."""
        if not self._opened:
            return result
        on_host = self._bk is not None and self._bk.on_host
        if not (self._traced or on_host) and any(recorded.blocking for recorded, _ in self._opened):
            wait_for(result)
        self._close(facts | self._facts_of(result))
        return result

    def __exit__(self, kind: Any, error: BaseException | None, traceback: object) -> None:
        facts: dict[str, Any] = {} if error is None else {"error": type(error).__name__}
        if error is not None and self._opened:
            for recorded, event in self._opened:
                recorded.close(event)
            facts = self._facts_of(error) | facts
        self._close(facts)

    def _facts_of(self, result: Any) -> dict[str, Any]:
        """A profile breaks no call: numbers that lie on another process, for example, stay unknown."""
        try:
            return {} if self._facts is None else self._facts(result)
        except Exception as error:
            return {"unknown": str(error)}

    def _close(self, facts: dict[str, Any]) -> None:
        traced = facts.pop("traced", False)
        for recorded, event in self._opened:
            recorded.close(event)
            event.traced = event.traced or traced
            event.facts.update(facts)


_NO_SPAN = _NoSpan()


def span(kind: str, name: str, bk: Any = None, facts: Facts | None = None) -> Span | _NoSpan:
    """Show a `with` block to the profiles that run: `with span("set-up", "read") as done: system = done(...)`.

    Args:
        kind: a key of `event.KINDS`.
        name: of the event.
        bk: the backend whose arrays these are, or None.
        facts: of the result, or of the error.
    """
    if not RUNNING or is_compiling():
        return _NO_SPAN
    return Span(kind, name, bk, facts, (), sys._getframe(1))


def is_compiling() -> bool:
    """Whether PyTorch's compiler traces this call. Spans are then left out of its graph."""
    compiler = sys.modules.get("torch.compiler")
    return compiler is not None and compiler.is_dynamo_compiling()


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


def is_traced(bk: Any) -> bool:
    """Whether operations of this backend are recorded into a program that runs later."""
    if bk is None or bk.is_eager or not bk.compiled():
        return False
    return bool(not bk.has_pure_arrays or bk.in_program())


def name_of(function: Any) -> str:
    """Name of a user's function, or of its class."""
    return str(getattr(function, "__name__", type(function).__name__))


# --- methods that profiles watch: products, of which there are too many for spans -------------------------------------


class CallDescription(NamedTuple):
    """Description of the events of a watched method.

    Attributes:
        kind: a key of `event.KINDS`.
        name: a text, or a function of the call's positional arguments.
        backend: whose arrays these are: a backend, a function of the positional arguments, or None.
    """

    kind: str
    name: str | Callable[[tuple[Any, ...]], str]
    backend: Any = None


class WatchedMethod(NamedTuple):
    """A method that is looked up in its class when it is called.

    Attributes:
        owner: the class.
        name: under which the function stands there.
        description: of its calls.
    """

    owner: type
    name: str
    description: CallDescription


providers: list[Callable[[], Iterable[WatchedMethod]]] = []
further_backends: list[Any] = []


def register_methods(methods: Callable[[], Iterable[WatchedMethod]], *backends: Any) -> None:
    """Have profiles watch methods of other layers, which this one cannot know.

    Args:
        methods: called when a profile begins.
        backends: instances that solvers use inside, beside those of libraries.
    """
    providers.append(methods)
    further_backends.extend(backends)
