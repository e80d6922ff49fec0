"""Vectorised operations on rows of CSR matrices: reductions, selections of entries, products in one pass."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from ....backends.host_math import csr_matmat

_ROOM = 6  # times the entries of both factors: a product that could have more is counted beforehand
_CLASSES = (2, 8, 20, 60)  # rows that exceed `most` by up to so many are sorted together, in a padded table


def reduced(ufunc: np.ufunc, x: np.ndarray, starts: np.ndarray, empty: float) -> np.ndarray:
    """`ufunc` over the entries x of each row; `empty` for rows without entries."""
    # Differences of prefix sums would suffer from cancellation.
    first, some = starts[:-1], starts[1:] > starts[:-1]
    if some.all():
        return ufunc.reduceat(x, first) if len(first) else np.zeros(0, x.dtype)
    reductions = np.full(len(first), empty, x.dtype)
    if some.any():  # reduceat gives the first entry of a later row for an empty one
        reductions[some] = ufunc.reduceat(x, first[some])
    return reductions


def row_sums(x: np.ndarray, A: sp.csr_array) -> np.ndarray:
    """Row sums of x, one number for each entry of A; a product with ones is the fastest way."""
    return np.asarray(sp.csr_array((x, A.indices, A.indptr), A.shape) @ np.ones(A.shape[1], x.dtype))


def row_counts(mask: np.ndarray, A: sp.csr_array) -> np.ndarray:
    """Number of entries of each row of A in the mask."""
    return np.diff(_counts_before(mask, A))


def _counts_before(mask: np.ndarray, A: sp.csr_array) -> np.ndarray:
    """Number of entries of the mask before each row of A, and in all."""
    before = np.zeros(len(mask) + 1, A.indptr.dtype)
    np.cumsum(mask, out=before[1:])
    return gathered(before, A.indptr)


def repeated(per_row: np.ndarray, A: sp.csr_array) -> np.ndarray:
    """For each entry of A the value of its row."""
    return np.repeat(per_row, np.diff(A.indptr))


def gathered(x: np.ndarray, indices: np.ndarray) -> np.ndarray:
    """`x[indices]` for indices in range, four times as fast, because NumPy need not convert and check 32-bit ones."""
    return x.take(indices, mode="clip")


def on_diagonal(A: sp.csr_array) -> np.ndarray:
    """Mask of the diagonal entries."""
    return np.asarray(A.indices == repeated(np.arange(A.shape[0], dtype=A.indices.dtype), A))


def numbered(mask: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Number the elements in a mask 0, 1, ..., and likewise all others."""
    return np.where(mask, np.cumsum(mask), np.cumsum(~mask)).astype(dtype) - 1


def submatrix(A: sp.csr_array, rows: np.ndarray, numbers: np.ndarray, width: int) -> sp.csr_array:
    """These rows of A with renumbered columns; all other rows of A must be empty."""
    starts = A.indptr[np.append(rows, A.shape[0])]
    return sp.csr_array((A.data, gathered(numbers, A.indices), starts), (len(rows), width))


def inverse_permutation(order: np.ndarray) -> np.ndarray:
    """New number of each unknown."""
    places = np.empty_like(order)
    places[order] = np.arange(len(order), dtype=order.dtype)
    return places


def permuted(A: sp.csr_array, rows: np.ndarray | None, cols: np.ndarray | None) -> sp.csr_array:
    """A with row `rows[k]` as row k and column `cols[k]` as column k, unsorted; None: unchanged."""
    A = A if rows is None else sp.csr_array(A[rows])
    if cols is None:
        return A
    return sp.csr_array((A.data, gathered(inverse_permutation(cols), A.indices), A.indptr), A.shape)


def keys_of(rows: np.ndarray, cols: np.ndarray, width: int) -> np.ndarray:
    """One number for each position, ascending for entries in row order."""
    return rows * np.int64(width) + cols


def find_keys(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Positions (int32) in an ascending list of keys; -1 for missing ones."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int32)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[at] == wanted, at, -1).astype(np.int32)


def transposed_entries(A: sp.csr_array, places: np.ndarray) -> np.ndarray:
    """Positions (int32) of the entries (j, i) of A, with sorted rows, for the entries (i, j) at `places`, or -1."""
    numbers = np.arange(len(A.indices), dtype=np.int32)
    mirror = sp.csr_array(sp.csr_array((numbers, A.indices, A.indptr), A.shape).T)
    if np.array_equal(mirror.indptr, A.indptr) and np.array_equal(mirror.indices, A.indices):  # the usual case
        return np.asarray(mirror.data.take(places))
    n, rows = A.shape[0], repeated(np.arange(A.shape[0], dtype=np.int64), A)
    return find_keys(keys_of(rows, A.indices, n), keys_of(A.indices.take(places), rows.take(places), n))


def selected(A: sp.csr_array, mask: np.ndarray, data: np.ndarray | None = None) -> sp.csr_array:
    """The entries of A in the mask, with other values if `data` are given."""
    places, values = np.flatnonzero(mask), A.data if data is None else data
    return sp.csr_array((values.take(places), A.indices.take(places), _counts_before(mask, A)), A.shape)


def largest_in_rows(sizes: np.ndarray, starts: np.ndarray, most: int) -> np.ndarray:
    """Mask of the `most` largest entries of each row."""
    lengths, kept = np.diff(starts), np.ones(len(sizes), bool)
    longest, below = int(lengths.max(initial=0)), most
    classes = [min(most + more, longest) for more in _CLASSES]
    while classes[-1] < longest:  # tables stay at most twice as large as their contents
        classes.append(min(2 * classes[-1], longest))
    for above in sorted(set(classes)):
        rows = np.flatnonzero((lengths > below) & (lengths <= above))
        below = above
        if not len(rows):
            continue
        width = int(lengths[rows].max())
        places = starts[rows][:, None] + np.arange(width, dtype=starts.dtype)
        padding = np.arange(width) >= lengths[rows][:, None]
        table = sizes.take(places, mode="clip")
        table[padding] = -1  # below any size, so that padding is among the smallest
        cut = np.argpartition(table, width - most - 1, axis=1)[:, : width - most]
        kept[np.take_along_axis(places, cut, 1)[~np.take_along_axis(padding, cut, 1)]] = False
    return kept


def product(A: sp.csr_array, B: sp.csr_array) -> sp.csr_array:
    """A B with unsorted rows.

    SciPy counts the entries of a product first, which takes a third of the time. Here the largest possible number is
    allocated if that is not much; unused memory is never touched.
    """
    lengths = np.diff(B.indptr)
    room = int(gathered(lengths, A.indices).sum(dtype=np.int64))
    index = A.indices.dtype
    dtypes = {A.indptr.dtype, B.indices.dtype, B.indptr.dtype, index}
    fits = room <= _ROOM * (A.nnz + B.nnz) and room <= np.iinfo(index).max
    if csr_matmat is None or not fits or len(dtypes) > 1 or A.dtype != B.dtype:
        return sp.csr_array(A @ B)
    starts = np.empty(A.shape[0] + 1, index)
    cols, data = np.empty(room, index), np.empty(room, A.dtype)
    csr_matmat(A.shape[0], B.shape[1], A.indptr, A.indices, A.data, B.indptr, B.indices, B.data, starts, cols, data)
    used = int(starts[-1])
    return sp.csr_array((data[:used].copy(), cols[:used].copy(), starts), (A.shape[0], B.shape[1]))


def sorted_rows(A: sp.csr_array, hermitian: bool) -> sp.csr_array:
    """A with sorted rows; transposing sorts in two passes, and a Hermitian matrix is its own adjoint."""
    return sp.csr_array(A.conj().T) if hermitian else sp.csr_array(A.tocsc().tocsr())
