"""Puts watched functions in the places of all that profiles watch."""

from __future__ import annotations

from typing import Any

from ..registry import loaded_backends, when_loaded
from . import spans
from .operations import watch_backend, watch_parts
from .watching import innermost, put, watched_function


def install() -> None:
    """Put all watched functions in their places."""
    for bk in loaded_backends():
        _watch(bk)
    for bk in spans.further_backends:
        watch_backend(bk)
    for owner, name, description in (method for methods in spans.providers for method in methods()):
        put(owner, name, watched_function(description, vars(owner)[name]))


def _watch(bk: Any) -> None:
    watch_backend(bk)
    watch_parts(bk)


def _watch_late(bk: Any) -> None:
    """Watch a backend whose library is needed for the first time."""
    if innermost() is not None:
        _watch(bk)


when_loaded.append(_watch_late)
