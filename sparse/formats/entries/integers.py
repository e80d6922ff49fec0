"""Index arrays: int32, row pointers, grid numbers, sorts of entries, and SciPy matrices of canonical ones."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from ....backends.interface.arrays import check_range

LIMIT = 2**31 - 1


def check_shape(shape: Any) -> tuple[int, int]:
    """A shape `(n, m)` of two numbers that fit in 32 bits."""
    try:
        found = tuple(operator.index(n) for n in shape)
    except TypeError as error:
        raise ValueError(f"The shape {shape!r} was given; expected two whole numbers (rows, columns).") from error
    if len(found) != 2 or min(found) < 0:
        raise ValueError(f"The shape {shape!r} was given; expected two numbers (rows, columns), none negative.")
    for n in found:
        check_size(n, "rows or columns")
    return found[0], found[1]


def check_size(count: int, what: str) -> int:
    """`count`, which a 32-bit index must be able to hold."""
    if count > LIMIT:
        raise ValueError(
            f"A sparse matrix with {count} {what} was asked for; krylix indexes with 32 bits, up to {LIMIT}. "
            "Split the problem, or give a function instead of a matrix."
        )
    return int(count)


def as_indices(x: Any, limit: int, what: str) -> np.ndarray:
    """Whole numbers `(k,)` from 0 to `limit` - 1 as int32; the same memory where it fits."""
    found = np.asarray(x)
    if found.ndim != 1 and (found.dtype.kind in "iu" or not found.size):
        raise ValueError(f"{what} have the shape {found.shape}; expected one axis.")
    return check_range(found, limit, what).astype(np.int32, copy=False)


def starts_of(rows: np.ndarray, n: int) -> np.ndarray:
    """`(n + 1,)` int32: where each row starts in a list of entries in row order."""
    return starts_from(np.bincount(rows, minlength=n))


def starts_from(lengths: np.ndarray) -> np.ndarray:
    """`(n + 1,)` int32: where each row starts, from the lengths `(n,)` of the rows."""
    starts = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=starts[1:])
    return starts


def places_in_rows(starts: np.ndarray) -> np.ndarray:
    """`(nnz,)` int32: the number of each entry within its row."""
    return np.arange(starts[-1], dtype=np.int32) - np.repeat(starts[:-1], np.diff(starts))


def repeat_rows(starts: np.ndarray) -> np.ndarray:
    """`(nnz,)` int32: the row of each entry, from where the rows start."""
    return np.repeat(np.arange(len(starts) - 1, dtype=np.int32), np.diff(starts))


def is_canonical(rows: np.ndarray, cols: np.ndarray) -> bool:
    """Are the entries in row order, with rising columns and none twice?"""
    if len(rows) < 2:
        return True
    step = rows[1:] - rows[:-1]
    return bool(np.all((step > 0) | ((step == 0) & (cols[1:] > cols[:-1]))))


def lengths_text(lengths: np.ndarray) -> str:
    """Row lengths in a few words."""
    if not len(lengths):
        return "no rows"
    low, middle, high = int(lengths.min()), float(np.median(lengths)), int(lengths.max())
    return f"{low} per row" if low == high else f"{low} to {high} per row, median {middle:g}"


def as_tuple(x: Any) -> tuple[Any, ...]:
    """A single array as a tuple of one, sequences as they are."""
    return tuple(x) if isinstance(x, (tuple, list)) else (x,)


# --- Row-major numbering of grid points -------------------------------------------------------------------------------


def row_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Distance in row-major order between neighbours along each axis."""
    strides, distance = [], 1
    for n in reversed(shape):
        strides.append(distance)
        distance *= n
    return tuple(reversed(strides))


def affine(start: int, strides: Sequence[int], shape: Sequence[int], dtype: type = np.int32) -> np.ndarray:
    """`start + sum(strides * i)` for all i in `shape`, int32. Every result must be below 2^31."""
    found: np.ndarray = np.full((1,) * len(shape), start, dtype)
    for axis in reversed(range(len(shape))):
        if shape[axis] > 1:
            steps = np.arange(shape[axis], dtype=dtype) * dtype(strides[axis])
            found = found + steps.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(found, tuple(shape))


def points(lo: Sequence[int], shape: Sequence[int], grid: Sequence[int], dtype: type = np.int32) -> np.ndarray:
    """Numbers of the points of a box on a grid, in its order, int32 if nothing else is asked for."""
    strides = row_strides(grid)
    return affine(sum(a * s for a, s in zip(lo, strides)), strides, shape, dtype).reshape(-1)


# --- Counting sorts of entries by row and column, and summation of duplicates -----------------------------------------


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


# --- Sampling of matrix rows and their entries ------------------------------------------------------------------------

_GOLDEN = (5**0.5 - 1) / 2  # whose multiples have no common period with the lines of any grid


def evenly_spread(n: int, count: int) -> np.ndarray:
    """Rising numbers of at most `count` of n rows, scattered evenly, the same ones every time: int64."""
    if n <= count:
        return np.arange(n)
    return np.unique((np.arange(count) * _GOLDEN % 1 * n).astype(np.int64))


def entries_in(first: np.ndarray, end: np.ndarray, cols: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns, int64, of the entries in some rows, of which each has `cols[first:end]`."""
    lengths = end - first
    entries = np.repeat(first, lengths) + places_in_rows(starts_from(lengths))
    return np.repeat(rows, lengths), cols[entries].astype(np.int64)


# --- SciPy CSR and CSC arrays from canonical arrays, without checks or copies -----------------------------------------


def csr_array(values: np.ndarray, cols: np.ndarray, starts: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
    """Rows with rising columns and no duplicates; nothing is copied."""
    return _canonical(sp.csr_array((values, cols, starts), shape, copy=False))


def csc_array(values: np.ndarray, rows: np.ndarray, starts: np.ndarray, shape: tuple[int, int]) -> sp.csc_array:
    """Columns with rising rows and no duplicates; nothing is copied."""
    return _canonical(sp.csc_array((values, rows, starts), shape, copy=False))


def _canonical(A: Any) -> Any:
    A.has_sorted_indices = A.has_canonical_format = True
    return A
