"""Sums, products, parts and extreme entries of matrices: what concerns their entries only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...backends import Array, Backend
from .entries.integers import check_size, places_in_rows, repeat_rows, sorted_entries, starts_from, starts_of
from .structure import Structure


def as_factor(bk: Backend, c: Any, dtype: np.dtype) -> tuple[Array, np.dtype]:
    """Scalar factor of a matrix of `dtype`, and the dtype of the product; NumPy where it is known.

    Raises:
        TypeError: it is no single number.
    """
    if isinstance(c, (int, float, complex, np.generic)) or (isinstance(c, np.ndarray) and c.size == 1):
        number: Any = c.reshape(())[()] if isinstance(c, np.ndarray) else c
        found = np.result_type(dtype, number)
        found = found if found.kind in "fc" else dtype
        return np.asarray(number, found), found
    if bk.is_array(c) and all(int(n) == 1 for n in c.shape):
        found = np.result_type(dtype, bk.dtype(c))
        return bk.astype(bk.reshape(c, ()), found), found
    got = f"an array of shape {tuple(c.shape)}" if hasattr(c, "shape") else f"a {type(c).__name__}"
    raise TypeError(f"A matrix was multiplied or divided elementwise by {got}; expected a number. Use A @ v.")


def check_systems(matrices: Sequence[Any]) -> int | None:
    """Number of systems of a sum or product of these; None where none of them is a batch.

    Raises:
        ValueError: they have different numbers of systems.
    """
    counts = (getattr(M, "systems", None) for M in matrices)  # SciPy has no batches
    found = {count for count in counts if count is not None}
    if len(found) > 1:
        raise ValueError(
            f"Batches of {' and '.join(map(str, sorted(found)))} matrices were combined; expected as many of each."
        )
    return found.pop() if found else None


class Meeting(NamedTuple):
    """The entries of A and B that meet in A @ B, in the order of the entries of the product that they add to."""

    rows: np.ndarray  # int32 (nnz,), of the product, in row order
    cols: np.ndarray
    left: np.ndarray  # int32, one for each single product: the number of A's entry, in row order
    right: np.ndarray  # of B's
    ids: np.ndarray | None  # to which entry of the product it adds; None: to one of its own

    def values(self, bk: Backend, one: Array, other: Array) -> Array:
        """Values of the product, from those of both in row order, `(nnz,)` or for a batch `(systems, nnz)`."""
        first, second = (bk.take_in_bounds(v, i, len(v.shape) - 1) for v, i in ((one, self.left), (other, self.right)))
        found = first * second
        return found if self.ids is None else bk.sum_entries(found, self.ids, len(self.rows), sorted=True)


def products_of_entries(A: Structure, B: Structure) -> Meeting:
    """Symbolic product: pairs of entries that contribute to A @ B. Cost: counting sorts, linear in their number."""
    left, right = _pairs(A, B)
    order = sorted_entries(A.entries().rows[left], B.entries().cols[right], (A.shape[0], B.shape[1]))
    if order.order is not None:
        left, right = left[order.order], right[order.order]
    return Meeting(order.rows, order.cols, left, right, order.ids)


def _pairs(A: Structure, B: Structure) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the entries of A and of B that meet in a product: the column of one is the row of the other."""
    inner = A.entries().cols
    starts = starts_of(B.entries().rows, B.shape[0])
    counts = np.diff(starts)[inner]
    check_size(int(counts.sum(dtype=np.int64)), "single products of entries")
    pairs = starts_from(counts)
    left = repeat_rows(pairs)
    return left, starts[inner][left] + places_in_rows(pairs)


def as_key(key: Any, shape: tuple[int, int]) -> Any:
    """The rows of `A[rows]` as a pair, and lists as arrays."""
    if isinstance(key, np.ndarray) and key.dtype == bool and key.shape == shape:
        return np.nonzero(key)
    pair = key if isinstance(key, tuple) else (key, slice(None))
    if len(pair) > 2:
        raise IndexError(f"{len(pair)} indices were given for a matrix; expected A[rows] or A[rows, columns].")
    if len(pair) == 1:
        pair = (pair[0], slice(None))
    return tuple(np.asarray(k) if isinstance(k, (list, range)) else k for k in pair)


def extreme_of_lines(bk: Backend, values: Array, starts: np.ndarray, length: int, largest: bool) -> Array:
    """The extreme of each line of entries, `(..., nnz)` one line after the other, `(..., lines)`.

    Lines with fewer than `length` entries have zeros, too.
    """
    counts, lead = np.diff(starts), tuple(int(n) for n in values.shape[:-1])
    if not counts.any():
        return bk.zeros((*lead, len(counts)), bk.dtype(values), values)
    stored = _of_stored(bk, values, starts, largest)
    with_zeros = bk.where(bk.asarray(counts < length, like=values), _choose(bk, largest)(stored, 0), stored)
    return bk.where(bk.asarray(counts > 0, like=values), with_zeros, 0)


def _choose(bk: Backend, largest: bool) -> Any:
    return bk.xp.maximum if largest else bk.xp.minimum


def _of_stored(bk: Backend, values: Array, starts: np.ndarray, largest: bool) -> Array:
    """The extreme of the stored entries of each line; of a line without any, unspecified.

    Cost: one pass in NumPy, elsewhere one for each power of two below the longest line: an entry is compared with that
    1, then 2, 4, ... places further, or with the last of its line. To meet an entry twice changes no extreme.
    """
    counts, axis, choose = np.diff(starts), len(values.shape) - 1, _choose(bk, largest)
    full = counts > 0
    if bk.on_host:
        found = (np.maximum if largest else np.minimum).reduceat(values, starts[:-1][full], axis)
        return found[..., np.maximum(np.cumsum(full) - 1, 0)]
    if len(counts) == 1:
        return (bk.xp.max if largest else bk.xp.min)(values, axis=axis, keepdims=True)
    places = np.arange(int(starts[-1]), dtype=np.int32)
    last, step = (starts[1:] - np.int32(1))[repeat_rows(starts)], 1
    while step < counts.max():
        further = np.minimum(places + np.int32(step), last).astype(np.int32)
        values, step = choose(values, bk.take_in_bounds(values, further, axis)), 2 * step
    return bk.take_in_bounds(values, np.minimum(starts[:-1], starts[-1] - 1).astype(np.int32), axis)
