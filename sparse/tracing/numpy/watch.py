"""The largest number that comes up in a function: an array that looks at each result."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.coefficients import largest


class WatchedArray(np.ndarray):
    """An array whose arithmetic is watched; `seen` is a list of one number, shared by all that is made of it."""

    seen: list[float]

    @classmethod
    def of(cls, array: np.ndarray, seen: list[float]) -> WatchedArray:
        """A view of an array."""
        watched = array.view(cls)
        watched.seen = seen
        return watched

    def __array_finalize__(self, source: Any) -> None:
        self.seen = getattr(source, "seen", [0.0])

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        plain = [x.view(np.ndarray) if isinstance(x, WatchedArray) else x for x in inputs]
        out = kwargs.get("out")
        if out is not None:
            kwargs["out"] = tuple(x.view(np.ndarray) if isinstance(x, WatchedArray) else x for x in out)
        result = getattr(ufunc, method)(*plain, **kwargs)
        if isinstance(result, np.ndarray) and result.dtype.kind in "fc":
            self.seen[0] = max(self.seen[0], largest(result))
            return out[0] if out is not None else WatchedArray.of(result, self.seen)
        return result
