"""Puts watched functions in the places of all that profiles watch."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from ..registry import loaded_backends, when_loaded
from . import description
from .description import WatchedPlace
from .operations import watch_backend, watch_parts
from .watching import innermost, put, watched_function

_versions: dict[tuple[str, str], Callable[..., Any]] = {}


def install() -> None:
    """Put all watched functions in their places."""
    for bk in loaded_backends():
        _watch(bk)
    for bk in description.further_backends:
        watch_backend(bk)
    for place in (place for places in description.providers for place in places()):
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
