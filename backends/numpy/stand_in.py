"""Base class of the array proxies that record a NumPy function."""

from __future__ import annotations

from typing import Any


class StandIn:
    """Array proxy: attributes, methods and operators of an array, but no values."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'{type(self).__name__}', which stands in for an array of NumPy, has no {name!r}.")
