"""Which functions profiles watch, and what their events say: the part that other layers use, loaded with krylix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple


class CallDescription(NamedTuple):
    """What the events of a function say.

    Attributes:
        kind: a key of `event.KINDS`.
        name: a text, or a function of the call's positional arguments.
        backend: whose arrays these are: a backend, a function of the positional arguments, or None.
        facts: of the result, or of an error; with the key "traced" if the call was part of a program.
    """

    kind: str
    name: str | Callable[[tuple[Any, ...]], str]
    backend: Any = None
    facts: Callable[[Any], dict[str, Any]] | None = None


class WatchedPlace(NamedTuple):
    """A function that is looked up when it is called: as an attribute of a class, or a global name of a module.

    Attributes:
        owner: the class or module.
        name: under which the function stands there.
        description: of its calls.
    """

    owner: Any
    name: str
    description: CallDescription


providers: list[Callable[[], Iterable[WatchedPlace]]] = []
further_backends: list[Any] = []


def register_places(places: Callable[[], Iterable[WatchedPlace]], *backends: Any) -> None:
    """Have profiles watch functions of other layers, which this one cannot know.

    Args:
        places: called when a profile begins.
        backends: instances that solvers use inside, beside those of libraries.
    """
    providers.append(places)
    further_backends.extend(backends)


def name_of(function: Any) -> str:
    """What to call a function of the user."""
    return str(getattr(function, "__name__", type(function).__name__))


def is_traced(bk: Any) -> bool:
    """Is an operation of this backend recorded into a program now, to run later?"""
    if bk is None or bk.is_eager or not bk.compiled():
        return False
    return bool(not bk.has_pure_arrays or bk.in_program())
