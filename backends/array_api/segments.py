"""Orders of additions. Sums over segments by halving: the standard has no addition to places given by an array.

Neighbours in a segment are added, then the sums of neighbours, until each segment is one number. So the order of
additions is that of the entries of the segment alone, whatever else is summed, and rounding grows with the logarithm of
their number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ..interface.arrays import Array


class Halving(NamedTuple):
    """Where each step finds its terms; positions one beyond the last are those of a zero.

    Attributes:
        order: of the entries by segment; None if they are in it.
        steps: first and second term of each sum.
        places: where the sum of each segment is at last.
    """

    order: np.ndarray | None
    steps: list[tuple[np.ndarray, np.ndarray]]
    places: np.ndarray


def in_order(xp: Any, x: Array) -> Array:
    """`x` row after row in memory, itself if it is so: libraries sum rows that are strided in another order."""
    return xp.reshape(xp.reshape(x, (-1,)), tuple(x.shape))


def halving(ids: np.ndarray, count: int) -> Halving:
    """The steps for entries of the segments `ids` `(nnz,)`, all of which are below `count`."""
    order = None
    if np.any(ids[1:] < ids[:-1]):
        order = np.argsort(ids, kind="stable")
    lengths = np.bincount(ids, minlength=count)
    steps = []
    while lengths.size and lengths.max() > 1:
        steps.append(_step(lengths))
        lengths = (lengths + 1) // 2
    return Halving(order, steps, np.where(lengths > 0, np.cumsum(lengths) - lengths, lengths.sum()))


def _step(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Terms of the sums of neighbours, in segments of these lengths that follow each other."""
    pairs, starts = (lengths + 1) // 2, np.cumsum(lengths) - lengths
    segment = np.repeat(np.arange(len(lengths)), pairs)
    within = np.arange(len(segment)) - (np.cumsum(pairs) - pairs)[segment]
    first = starts[segment] + 2 * within
    alone = 2 * within + 1 >= lengths[segment]
    return first, np.where(alone, lengths.sum(), first + 1)


# --- Rows put in at places of an array, by gathers: the standard has no assignment to places given by an array --------


def scatter_rows(
    xp: Any, take: Callable[[Array, np.ndarray], Array], rows: Array, places: np.ndarray, values: Array, mode: str
) -> Array:
    """A copy of rows `(n, channels)` with others put in at places `(count,)`: "update", "add", "max" or "min"."""
    n, count = int(rows.shape[0]), len(places)
    both = xp.concat([rows, values], axis=0)
    if mode == "update":
        last = np.arange(n)
        last[places] = n + np.arange(count)  # of equal places the last one counts
        return take(both, last)
    combine = {"add": xp.add, "max": xp.maximum, "min": xp.minimum}[mode]
    plan = halving(np.concatenate([np.arange(n), places]), n)  # so no segment is empty
    found = both if plan.order is None else take(both, plan.order)
    for first, second in plan.steps:
        one, size = take(found, first), int(found.shape[0])
        paired = second < size
        other = combine(one, take(found, np.where(paired, second, first)))
        found = take(xp.concat([one, other], axis=0), np.arange(len(first)) + np.where(paired, len(first), 0))
    return take(found, plan.places)
