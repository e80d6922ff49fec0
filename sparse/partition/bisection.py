"""Recursive bisection: a partition into parts of equal size, one split after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Split = Callable[
    [np.ndarray, int], np.ndarray
]  # places of some unknowns, how many go left -> the same, left ones first


def recursive_bisection(n: int, parts: int, split: Split) -> np.ndarray:
    """`(n,)`: part of each unknown. Sizes of parts differ by one at most.

    Args:
        split: puts the unknowns of the first half in front.
    """
    labels = np.zeros(n, np.int32)
    sizes = np.diff(np.arange(parts + 1) * n // parts)
    waiting = [(np.arange(n), 0, parts)]
    while waiting:
        places, first, count = waiting.pop()
        if count == 1:
            labels[places] = first
            continue
        left = count // 2
        size = int(sizes[first : first + left].sum())
        ordered = split(places, size) if 0 < size < len(places) else places
        waiting += [(ordered[:size], first, left), (ordered[size:], first + left, count - left)]
    return labels


def by_coordinates(coordinates: np.ndarray) -> Split:
    """Split across the axis along which the unknowns reach farthest.

    Source: Berger & Bokhari, A partitioning strategy for nonuniform problems on multiprocessors, 1987.
    """

    def split(places: np.ndarray, size: int) -> np.ndarray:
        own = coordinates[places]
        axis = int(np.ptp(own, axis=0).argmax())
        return places[np.argpartition(own[:, axis], size - 1)]

    return split
