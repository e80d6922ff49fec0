"""Names of `scipy.sparse.linalg` that `krylix.scipy_like` does not define: SciPy's own, looked up when used."""

from __future__ import annotations

from typing import Any

import scipy.sparse.linalg as spl

THEIRS = tuple(name for name in spl.__all__ if not name.startswith("_") and name != "test")
"""Public names of SciPy's module."""


def __getattr__(name: str) -> Any:
    """SciPy's object of this name.

    Raises:
        AttributeError: SciPy has no such name either.
    """
    if name.startswith("_") or not hasattr(spl, name):
        raise AttributeError(f"module 'krylix.scipy_like' has no attribute {name!r}, nor has scipy.sparse.linalg.")
    return getattr(spl, name)


def __dir__() -> list[str]:
    return sorted(THEIRS)
