"""Counting sorts of entries by row and column, and summation of duplicates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from .integers import check_size, is_canonical


class Order(NamedTuple):
    """Conversion of a list of entries to row order without duplicates."""

    rows: np.ndarray  # int32 (nnz,), of the result
    cols: np.ndarray
    order: np.ndarray | None  # the permutation of the entries; None: they are in order
    ids: np.ndarray | None  # to which entry of the result each entry adds, in the new order; None: no duplicates

    def values(self, bk: Backend, values: Array) -> Array:
        """The values of the result; differentiable, and pure NumPy for NumPy arrays. Of a batch `(systems, nnz)`."""
        host = get_backend("numpy") if isinstance(values, np.ndarray) else bk
        if self.order is not None:
            values = host.take_in_bounds(values, self.order, len(values.shape) - 1)
        return values if self.ids is None else host.sum_entries(values, self.ids, len(self.rows), sorted=True)


def sorted_entries(rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int], sum_duplicates: bool = True) -> Order:
    """Sort entries by row, then column, and find those at the same place.

    Cost: two counting sorts, none where the entries are in order. `sum_duplicates=False` promises that there are none.
    """
    if is_canonical(rows, cols):
        return Order(rows, cols, None, None)
    order = rows_first(cols, shape[1])
    order = order[rows_first(rows[order], shape[0])]
    rows, cols = rows[order], cols[order]
    if not sum_duplicates:
        return Order(rows, cols, order, None)
    new = np.ones(len(rows), bool)
    new[1:] = (rows[1:] != rows[:-1]) | (cols[1:] != cols[:-1])
    if new.all():
        return Order(rows, cols, order, None)
    return Order(rows[new], cols[new], order, np.cumsum(new, dtype=np.int32) - np.int32(1))


def rows_first(rows: np.ndarray, n: int) -> np.ndarray:
    """The permutation (int32) that sorts `rows`, numbers below n, and keeps the order of equals; in linear time."""
    count = check_size(len(rows), "entries")
    # one entry per column, so that SciPy's change from columns to rows counts and distributes their numbers
    by_column = sp.csc_array((np.empty(count, np.int8), rows, np.arange(count + 1, dtype=np.int32)), (n, count))
    return by_column.tocsr().indices
