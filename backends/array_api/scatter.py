"""Rows put in at places of an array, by gathers: the standard has no assignment to places given by an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..interface.arrays import Array
from .sums import halving


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
