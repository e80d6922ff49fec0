"""Modules that a library's folder may have beside its backend: its devices, its standard, its own operations."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any


def own_module(backend: type[Any], name: str) -> Any:
    """The module of this name beside the class of a backend, or beside one that it derives from; None if there is none.

    Late, by name: most solves need none of them, and only the folder of a library imports the library.
    """
    for cls in backend.__mro__:
        package = cls.__module__.rpartition(".")[0]
        beside = f"{package}.{name}"
        if package and package != __package__ and (beside in sys.modules or find_spec(beside)):
            return import_module(beside)
    return None


def needed_module(backend: Any, name: str, contents: str) -> Any:
    """Likewise, where nothing else does.

    Raises:
        TypeError: there is none.
    """
    found = own_module(type(backend), name)
    if found is None:
        raise TypeError(
            f"{type(backend).__name__} has no module {name!r} beside it; expected one with {contents}, as the folders "
            "in krylix.backends have, or a backend made of a namespace by krylix.register_backend."
        )
    return found
