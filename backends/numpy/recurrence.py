"""First-order linear recurrences in NumPy: in place, row after row, columns in parallel on all cores."""

from __future__ import annotations

import numpy as np

from ..cores import shared as cores

COST_OF_STEP = 1e5
_BLOCK = 8192  # numbers of a row that stay in the cache until the next one


def recurrence(factors: np.ndarray, x: np.ndarray, backward: bool) -> np.ndarray:
    """See `Recurrences.recurrence`."""
    found = x.astype(np.result_type(factors, x))  # a copy
    n, m = factors.shape
    order = range(n - 1, -1, -1) if backward else range(n)

    def work(first: int, last: int) -> None:
        for one in found:
            mine, own = list(one[:, first:last]), list(factors[:, first:last])
            room = np.empty(last - first, found.dtype)
            before = mine[order[0]] if n else room
            for i in order[1:]:
                np.multiply(own[i], before, out=room)
                before = mine[i]
                np.add(before, room, out=before)

    cores.in_blocks(work, m, _BLOCK)
    return found
