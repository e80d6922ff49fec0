"""Products of arrays with any number of axes."""

from __future__ import annotations

from typing import Any

from ..interface.arrays import Array


def tensordot(bk: Any, a: Array, b: Array, axes: Any = 2, *others: Any) -> Array:
    """Sums of products over the last `axes` axes of a and the first ones of b, or over `(axes of a, axes of b)`."""
    if others or not hasattr(b, "shape"):
        raise TypeError(
            f"tensordot got {4 if others else 3} arguments, the second of type {type(b).__name__}; expected two arrays "
            "and axes=(axes of the first, axes of the second)."
        )
    return bk.xp.tensordot(a, b, axes=axes)
