"""Sums, products, parts and extreme entries of sparse matrices, with static structure and possibly traced values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend
from ..errors import UnsupportedOperation
from .entries.integers import (
    check_size,
    csr_array,
    places_in_rows,
    repeat_rows,
    sorted_entries,
    starts_from,
    starts_of,
)
from .entries.regather import Regather
from .structure import Structure

if TYPE_CHECKING:  # whose methods these are
    from .sparse_matrix import SparseMatrix


def matrix_sum(A: SparseMatrix, B: SparseMatrix) -> SparseMatrix:
    """A + B: with the structure of A if B has the same, else in rows, on the union of both.

    Where all values are known, without entries that cancel.
    """
    if A.shape != B.shape:
        raise ValueError(f"Matrices of the shapes {A.shape} and {B.shape} were added; expected equal ones.")
    if A.structure == B.structure:
        return A.holding([a + b for a, b in zip(*_values(A, B), strict=True)])
    if _both_in_scipy(A, B):
        return _by_rows(A, A.known() + B.known())
    first, second = A.structure.entries(), B.structure.entries()
    rows, cols = np.concatenate([first.rows, second.rows]), np.concatenate([first.cols, second.cols])
    values, order = joint_values([A, B], np.result_type(A.dtype, B.dtype)), sorted_entries(rows, cols, A.shape)
    return A.in_rows(starts_of(order.rows, A.shape[0]), order.cols, A.shape, order.values(A.bk, values))


def _both_in_scipy(A: SparseMatrix, B: SparseMatrix) -> bool:
    """Are both known single matrices, with which SciPy can compute?"""
    return A.constant is not None and B.constant is not None and A.systems is None and B.systems is None


def _by_rows(A: SparseMatrix, found: sp.csr_array) -> SparseMatrix:
    """Wrap a known result of SciPy, on the device of A."""
    found.sum_duplicates()
    return A.in_rows(found.indptr, found.indices, found.shape, found.data)


def _values(A: SparseMatrix, B: SparseMatrix) -> tuple[list[Array], list[Array]]:
    check_systems([A, B])
    dtype = np.result_type(A.dtype, B.dtype)
    known = A.constant is not None and B.constant is not None
    bk = A.host if known else A.bk
    one, other = ([bk.astype(v, dtype) for v in (M.known_or_arrays() if known else M.arrays())] for M in (A, B))
    return one, other  # of one matrix beside a batch: without the first axis, as sums repeat it


def scalar_multiple(A: SparseMatrix, c: Any, divide: bool) -> SparseMatrix:
    """A times a number, or divided by it; the number may be traced."""
    factor, dtype = as_factor(A.bk, c, A.dtype)
    known = isinstance(factor, np.ndarray)
    host = A.host if known else A.bk
    values = A.known_or_arrays() if known else A.arrays()
    if known:
        factor = host.asarray(factor, like=values[0] if values else None)
    cast = [host.astype(v, dtype) for v in values]
    found = [v / factor if divide else v * factor for v in cast]
    # the zeros of padding would be NaN times infinity, or divided by zero
    keeps_zeros = known and bool(np.isfinite(c)) and not (divide and c == 0)
    return A.holding(found if keeps_zeros else A.structure.masked(host, found))


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


def matrix_product(A: SparseMatrix, B: SparseMatrix) -> SparseMatrix:
    """A @ B in rows, on the structure of all products that may be non-zero."""
    if A.shape[1] != B.shape[0]:
        raise ValueError(
            f"Matrices of the shapes {A.shape} and {B.shape} were multiplied; expected equal inner numbers."
        )
    if _both_in_scipy(A, B):
        return _by_rows(A, A.known() @ B.known())
    meeting = products_of_entries(A.structure, B.structure)
    bk, factors = entries_together([A, B], np.result_type(A.dtype, B.dtype))
    shape = (A.shape[0], B.shape[1])
    return A.in_rows(starts_of(meeting.rows, shape[0]), meeting.cols, shape, meeting.values(bk, *factors))


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


def joint_values(matrices: Sequence[SparseMatrix], dtype: np.dtype) -> Array:
    """Concatenate the values of several matrices in row order, for each system; NumPy where known.

    Raises:
        ValueError: batches of different length are among them.
    """
    systems = check_systems(matrices)
    bk, values = entries_together(matrices, dtype)
    if systems is not None:
        values = [v if len(v.shape) == 2 else bk.broadcast_to(v, (systems, int(v.shape[0]))) for v in values]
    return values[0] if len(values) == 1 else bk.concat(values, len(values[0].shape) - 1)


def entries_together(matrices: Sequence[SparseMatrix], dtype: np.dtype) -> tuple[Backend, list[Array]]:
    """Values of each matrix in row order, NumPy's where all are known, and their library."""
    known = all(M.constant is not None for M in matrices)
    bk = matrices[0].host if known else matrices[0].bk
    return bk, [bk.astype(M.entry_values() if known else M.entry_arrays(), dtype) for M in matrices]


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


def on_common_backend(A: SparseMatrix, B: SparseMatrix) -> tuple[SparseMatrix, SparseMatrix]:
    """Bring both to one library.

    Raises:
        TypeError: they are of two libraries.
    """
    if A.bk is B.bk:
        return A, B
    first: Any = A.on_backend(B.bk, B.anchor()) if A.bk.on_host else A
    second: Any = B.on_backend(A.bk, A.anchor()) if B.bk.on_host else B
    if first is None or second is None or first.bk is not second.bk:
        raise TypeError(
            f"Matrices of {A.bk.name} and {B.bk.name} were combined; expected one library. Move one of them."
        )
    return first, second


# --- parts ---


def submatrix(A: SparseMatrix, key: Any) -> SparseMatrix | Array:
    """`A[key]`: rows, or a dense array where SciPy's result has less than two axes.

    SciPy selects from a matrix that holds the number of each entry in its place.
    """
    rows, cols, _ = A.structure.entries()
    numbers = np.arange(1, len(rows) + 1, dtype=np.int32)
    chosen = csr_array(numbers, cols, starts_of(rows, A.shape[0]), A.shape)[_plain(key, A.shape)]
    if not sp.issparse(chosen) or chosen.ndim < 2:
        found = chosen.toarray() if sp.issparse(chosen) else np.asarray(chosen)
        return _dense(A, found.astype(np.int32) - np.int32(1))
    chosen = chosen.tocsr()
    chosen.sort_indices()
    values = A.host.take_in_bounds(A.entry_values(), chosen.data - np.int32(1))
    return A.in_rows(chosen.indptr, chosen.indices, chosen.shape, values)


def _plain(key: Any, shape: tuple[int, int]) -> Any:
    """The rows of `A[rows]` as a pair, and lists as arrays."""
    if isinstance(key, np.ndarray) and key.dtype == bool and key.shape == shape:
        return np.nonzero(key)
    pair = key if isinstance(key, tuple) else (key, slice(None))
    if len(pair) > 2:
        raise IndexError(f"{len(pair)} indices were given for a matrix; expected A[rows] or A[rows, columns].")
    if len(pair) == 1:
        pair = (pair[0], slice(None))
    return tuple(np.asarray(k) if isinstance(k, (list, range)) else k for k in pair)


def _dense(A: SparseMatrix, entries: np.ndarray) -> Array:
    (found,) = Regather((entries.reshape(-1),))(A.host, (A.entry_values(),))
    return A.bk.reshape(found if A.constant is None else A.placed(found), entries.shape)


def row_block(A: SparseMatrix, first: int, last: int) -> sp.csr_array:
    """Rows `first` to `last` of one matrix with known values, `(last - first, columns)`, sorted, without duplicates.

    Raises:
        UnsupportedOperation: it is a batch of matrices, or its values are not known now.

    Cost: of a stencil and of diagonals a pass over these rows; of other formats that of SciPy's slice of all of them.
    """
    values = A.known_values() if A.systems is None else None
    if values is None:
        what = "a batch of matrices" if A.systems is not None else "a matrix whose values are not known now"
        raise UnsupportedOperation(f"Rows of {what} cannot be cut; give one matrix with values, outside of programs.")
    found = A.structure.row_block(values, first, last)
    if found is None:
        block = sp.csr_array(A.known())[first:last]
    else:
        rows, columns, entries = found
        block = sp.csr_array((entries, (rows - first, columns)), shape=(last - first, A.shape[1]), dtype=A.dtype)
    block.sum_duplicates()
    return block


# --- extreme entries ---


def extreme(A: SparseMatrix, axis: int | None, largest: bool) -> Array:
    """The largest or smallest of all entries, of columns (0) or of rows (1); of a batch for each system."""
    if axis in (0, -2):
        by_columns: Any = A.transpose()
        return extreme(by_columns, 1, largest)
    rows = A.structure.entries().rows
    if axis is None:
        starts, length = np.array([0, len(rows)], np.int32), A.shape[0] * A.shape[1]
    else:
        starts, length = starts_of(rows, A.shape[0]), A.shape[1]
    found = extreme_of_lines(A.host, A.entry_values(), starts, length, largest)
    found = found[..., 0] if axis is None else found
    return found if A.constant is None else A.placed(np.asarray(found))


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
