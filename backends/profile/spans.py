"""Spans: `with` blocks that are events of the profiles that run, and two empty calls where none does.

What other layers need of profiles, loaded with krylix.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, TypeVar

from ..registry import backend_name, get_backend

T = TypeVar("T")
Facts = Callable[[Any], dict[str, Any]]

RUNNING: list[Any] = []  # profiles of all threads, the innermost last


class Span:
    """A `with` block as an event of every profile that runs; `result = done(result)` ends it.

    The result of a call of it is waited for where a profile is blocking. Spans take little by themselves, because the
    calls around them are timed, too.

    Args:
        kind: a key of `recording.KINDS`.
        name: of the event.
        bk: the backend whose arrays these are, or None.
        facts: of a result, or of the error that leaves the block; with the key "traced" if it was part of a program.
        args: arrays whose shapes are noted.
        frame: whose callers are looked through for lines of the user.
    """

    __slots__ = ("_bk", "_facts", "_given", "_opened", "_traced")

    def __init__(
        self, kind: str, name: str, bk: Any, facts: Facts | None, args: tuple[Any, ...], frame: FrameType | None
    ) -> None:
        self._bk, self._facts = bk, facts
        self._traced = bk is not None and not bk.is_eager and is_traced(bk)
        self._given = (kind, name, None if bk is None else bk.name, args, self._traced, frame)
        self._opened: list[tuple[Any, Any]] = []  # profiles, and their events

    def __enter__(self) -> Span:
        for running in RUNNING[:]:
            event = running.open_event(*self._given)
            if event is not None:  # TensorFlow's AutoGraph, which may read this, knows no shorter way to write it
                self._opened.append((running, event))
        return self

    def __call__(self, result: T, **facts: Any) -> T:
        """Return the result after its arrays are there, and end the event, with these facts."""
        if not self._opened:
            return result
        on_host = self._bk is not None and self._bk.on_host
        if not (self._traced or on_host) and any(running.blocking for running, _ in self._opened):
            wait_for(result)
        self._close(facts | self._facts_of(result))
        return result

    def __exit__(self, kind: Any, error: BaseException | None, traceback: object) -> None:
        self._close({})
        if error is not None and self._opened:
            self._close(self._facts_of(error) | {"error": type(error).__name__})

    def _facts_of(self, result: Any) -> dict[str, Any]:
        """A profile breaks no call: numbers that lie on another process, for example, stay unknown."""
        try:
            return {} if self._facts is None else self._facts(result)
        except Exception as error:
            return {"unknown": str(error)}

    def _close(self, facts: dict[str, Any]) -> None:
        traced = facts.pop("traced", False)
        for running, event in self._opened:
            running.close_event(event)
            event.traced = event.traced or traced
            event.facts.update(facts)


class NoSpan:
    """A `with` block that is no event."""

    def __enter__(self) -> NoSpan:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def __call__(self, result: T, **facts: Any) -> T:
        return result


NO_SPAN = NoSpan()


def span(kind: str, name: str, bk: Any = None, facts: Facts | None = None) -> Span | NoSpan:
    """Show a `with` block to the profiles that run: `with span("set-up", "read") as done: system = done(...)`.

    Args: as of `Span`.
    """
    if not RUNNING or is_compiling():
        return NO_SPAN
    return Span(kind, name, bk, facts, (), sys._getframe(1))


def is_compiling() -> bool:
    """Whether PyTorch's compiler traces this call. Spans are then left out of its graph."""
    compiler = sys.modules.get("torch.compiler")
    return compiler is not None and compiler.is_dynamo_compiling()


def wait_for(result: Any) -> None:
    """Wait until the arrays of a result have their values."""
    if isinstance(result, dict | list | tuple):
        for part in result.values() if isinstance(result, dict) else result:
            wait_for(part)
    elif hasattr(result, "block_until_ready"):
        result.block_until_ready()
    elif hasattr(result, "iterations") and hasattr(result, "x"):  # the result of a solve
        wait_for(result.x)
    elif "cpu" not in (str(getattr(result, "device", "")).lower() or "cpu") and (name := backend_name(result)):
        get_backend(name)._bind("block_until_ready")(result)


def is_traced(bk: Any) -> bool:
    """Whether operations of this backend are recorded into a program that runs later."""
    if bk is None or bk.is_eager or not bk.compiled():
        return False
    return bool(not bk.has_pure_arrays or bk.in_program())


def name_of(function: Any) -> str:
    """Name of a user's function, or of its class."""
    return str(getattr(function, "__name__", type(function).__name__))


# --- Methods that profiles watch: products, of which there are too many for spans -------------------------------------

# Class, name of its method, kind and name of the events (or a function of the call's positional arguments), and the
# backend whose arrays these are (or such a function, or None).
WatchedMethod = tuple[type, str, str, "str | Callable[[tuple[Any, ...]], str]", Any]

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
