"""Functions of other layers that a profile watches, which these layers register: backends cannot know them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple

from ..registry import loaded_backends, when_loaded
from .operations import watch_backend, watch_parts
from .watching import CallDescription, innermost, put, watched_function


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


_providers: list[Callable[[], Iterable[WatchedPlace]]] = []
_backends: list[Any] = []
_versions: dict[tuple[str, str], Callable[..., Any]] = {}


def register_places(places: Callable[[], Iterable[WatchedPlace]], *backends: Any) -> None:
    """Have profiles watch functions, and further backends than those of libraries.

    Args:
        places: called when a profile begins.
        backends: instances that solvers use inside.
    """
    _providers.append(places)
    _backends.extend(backends)


def install() -> None:
    """Put all watched functions in their places."""
    for bk in loaded_backends():
        _watch(bk)
    for bk in _backends:
        watch_backend(bk)
    for place in (place for places in _providers for place in places()):
        put(place.owner, place.name, _watched_version(place))


def _watched_version(place: WatchedPlace) -> Callable[..., Any]:
    """For a module the same one in each profile, as other functions may have been kept for it."""
    function = vars(place.owner)[place.name]
    if not isinstance(place.owner, ModuleType):
        return watched_function(place.description, function)
    key = place.owner.__name__, place.name
    if key not in _versions or _versions[key].__wrapped__ is not function:  # type: ignore[attr-defined]
        _versions[key] = watched_function(place.description, function)
    return _versions[key]


def _watch(bk: Any) -> None:
    watch_backend(bk)
    watch_parts(bk)


def _watch_late(bk: Any) -> None:
    """Watch a backend whose library is needed for the first time."""
    if innermost() is not None:
        _watch(bk)


when_loaded.append(_watch_late)
