"""Backends of libraries that have no folder here: made of a namespace of the array API standard, or given ready."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import numpy as np

from .interface.backend import Backend

_NEEDED = ("asarray", "astype", "concat", "matmul", "permute_dims", "take", "where")


def namespace_of(x: Any) -> Any:
    """The namespace of the standard that an array names as its own, if that is not NumPy's and complete; else None."""
    own = getattr(type(x), "__array_namespace__", None)
    try:
        namespace = None if own is None else own(x)
    except Exception:  # of another version of the standard, say: no array that can be computed with
        return None
    return None if namespace is np or not _has_all(namespace) else namespace


def imported_namespace(name: str) -> Any:
    """The module of this name, if it is imported and of the standard; else None."""
    module = sys.modules.get(name)
    return module if hasattr(module, "__array_namespace_info__") and _has_all(module) else None


def of_namespace(namespace: Any, name: str) -> Backend:
    """A backend made of the functions of the namespace.

    Raises:
        TypeError: it has not all that is needed.
    """
    if not _has_all(namespace):
        raise TypeError(
            f"{namespace!r:.80} was given; expected a namespace of the array API standard, such as a module, or a "
            f"krylix.backends.Backend. It has no {', '.join(n for n in _NEEDED if not hasattr(namespace, n))}."
        )
    # by name, as only those who have such arrays need it
    found: Backend = import_module(".array_api.backend", __package__).ArrayApiBackend(namespace, name)
    return found


def _has_all(namespace: Any) -> bool:
    return all(callable(getattr(namespace, name, None)) for name in _NEEDED)
