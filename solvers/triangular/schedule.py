"""Level schedule of a triangular system: rows that may be solved at the same time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

_STEP = 4096  # rows that a step of a loop could solve in the time that it takes by itself (JAX on a CPU: 5-17 us)
_MOST_PLACES = 4  # for each row


class Schedule(NamedTuple):
    """Rows grouped by level, in steps of equal width, so that a loop reads and writes whole blocks.

    Attributes:
        levels: how many levels there are.
        width: places of a step.
        order: int32 `(steps * width,)`: the row in each place, -1 where there is none.
        places: int32 `(n,)`: the place of each row.
    """

    levels: int
    width: int
    order: np.ndarray
    places: np.ndarray

    @property
    def steps(self) -> int:
        """Number of steps."""
        return len(self.order) // self.width


def find_levels(starts: np.ndarray, cols: np.ndarray, n: int) -> np.ndarray:
    """int32 `(n,)`: level of each row, one above the highest level of the rows that it depends on, else 0.

    Args:
        starts, cols: rows and columns of the entries beside the diagonal of a triangular matrix, as in CSR.

    Cost: a few calls of NumPy per level, one pass over the entries.

    Source: Anderson and Saad, Solving sparse triangular linear systems on parallel computers (1989), level scheduling.
    """
    levels = np.zeros(n, np.int32)
    missing = np.diff(starts).astype(np.int32)  # rows that each row still waits for
    ready = np.flatnonzero(missing == 0)
    first, dependents = _dependents(starts, cols, n)
    mark, level, one = np.empty(n, np.int32), 0, np.int32(1)  # of one dtype: else `at` is ten times slower
    while len(ready):
        levels[ready] = level
        level += 1
        count = first[ready + 1] - first[ready]
        ends = np.cumsum(count)
        at = np.arange(ends[-1]) + np.repeat(first[ready] - ends + count, count)
        found = dependents[at]
        np.subtract.at(missing, found, one)
        found = found[missing[found] == 0]
        number = np.arange(len(found), dtype=np.int32)
        mark[found] = number  # a row that occurs several times keeps the last
        ready = found[mark[found] == number]
    return levels


def _dependents(starts: np.ndarray, cols: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Dependents of each row, as pointers and row indices."""
    by_row = sp.csr_array((np.ones(len(cols), np.int8), cols, starts), (n, n))
    by_column = by_row.tocsc()
    return by_column.indptr.astype(np.intp), by_column.indices.astype(np.intp)  # as NumPy indexes with


def make_schedule(levels: np.ndarray) -> Schedule:
    """Make a schedule for rows with these levels."""
    n = len(levels)
    sizes = np.bincount(levels, minlength=1)
    width = _best_width(sizes)
    steps = -(-sizes // width)  # of each level
    first = (np.cumsum(steps) - steps) * width  # place
    by_level = np.argsort(levels, kind="stable")
    within = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = np.empty(n, np.int32)
    places[by_level] = np.repeat(first, sizes) + within
    order = np.full(int(steps.sum()) * width, -1, np.int32)
    order[places] = np.arange(n, dtype=np.int32)
    return Schedule(len(sizes), width, order, places)


def _best_width(sizes: np.ndarray) -> int:
    """Width of the steps: wide ones are few, narrow ones have little padding, at most 3 places per row.

    That takes at most half as many steps more than there are levels.
    """
    widest, most = int(sizes.max(initial=1)), _MOST_PLACES * max(int(sizes.sum()), 1)
    widths = {max(widest >> k, 1) for k in range(widest.bit_length() + 1)}
    steps = {width: int((-(-sizes // width)).sum()) for width in widths}
    allowed = [width for width in widths if steps[width] * width <= most]
    return min(allowed, key=lambda width: steps[width] * (_STEP + width))
