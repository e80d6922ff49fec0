"""Axes as the standard takes them, for libraries that read them otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def axes_of(axis: int | Sequence[int] | None, count: int) -> tuple[int, ...]:
    """Axes of an array with `count` axes, none of them negative; all where None is given.

    Raises:
        IndexError: an axis that the array has not, or one that is named twice.
    """
    if axis is None:
        return tuple(range(count))
    given = (axis,) if not hasattr(axis, "__len__") else tuple(axis)  # type: ignore[arg-type]
    found = tuple(int(a) % count if -count <= a < count else count for a in given)
    if count in found or len(set(found)) < len(found):
        raise IndexError(f"xp got axis={axis}; expected different axes of an array that has {count}.")
    return found


def one_axis(function: str, x: Any, axis: int | None) -> int:
    """An axis that is not negative; the only one where None is given.

    Raises:
        ValueError: None, and an array that has not one axis.
    """
    count = len(x.shape)
    if axis is None and count != 1:
        raise ValueError(f"xp.{function} got no axis and an array with {count} axes; expected axis=.")
    return axes_of(0 if axis is None else axis, count)[0]


def check_lengths(function: str, x1: Any, x2: Any, axis: int, length: int | None = None) -> None:
    """Refuse two arrays that differ along an axis, or have not this length: others would be broadcast."""
    lengths = (x1.shape[axis], x2.shape[axis])
    if lengths[0] != lengths[1] or length not in (None, lengths[0]):
        raise ValueError(
            f"xp.{function} got arrays of length {lengths[0]} and {lengths[1]} along axis {axis}; expected "
            + (f"{length} in both." if length is not None else "the same length.")
        )
