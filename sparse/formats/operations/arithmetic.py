"""Sums, scalar multiples and products of sparse matrices, with static structure and possibly traced values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend
from ..compressed import CsrStructure
from ..entries.integers import check_size, places_in_rows, repeat_rows, sorted_entries, starts_from, starts_of
from ..storage import Sparse, SparseStorage
from ..structure import Structure


def matrix_sum(A: Sparse, B: Sparse) -> Sparse:
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
    return _in_rows(A, rows, cols, joint_values([A, B], np.result_type(A.dtype, B.dtype)), A.shape)


def _both_in_scipy(A: SparseStorage, B: SparseStorage) -> bool:
    """Are both known single matrices, with which SciPy can compute?"""
    return A.constant is not None and B.constant is not None and A.systems is None and B.systems is None


def _by_rows(A: Sparse, found: sp.csr_array) -> Sparse:
    """Wrap a known result of SciPy, on the device of A."""
    found.sum_duplicates()
    return A.beside(CsrStructure.of(found), (found.data,))


def _in_rows(A: Sparse, rows: np.ndarray, cols: np.ndarray, values: Array, shape: tuple[int, int]) -> Sparse:
    """Entries in any order as rows, beside A, of one matrix or of each system; duplicates add up."""
    order = sorted_entries(rows, cols, shape)
    structure = CsrStructure.by_rows(order.rows, order.cols, shape)
    return A.beside(structure, (order.values(A.bk, values),))


def _values(A: SparseStorage, B: SparseStorage) -> tuple[list[Array], list[Array]]:
    check_systems([A, B])
    dtype = np.result_type(A.dtype, B.dtype)
    known = A.constant is not None and B.constant is not None
    bk = A.host if known else A.bk
    one, other = ([bk.astype(v, dtype) for v in (M.known_or_arrays() if known else M.arrays())] for M in (A, B))
    return one, other  # of one matrix beside a batch: without the first axis, as sums repeat it


def scalar_multiple(A: Sparse, c: Any, divide: bool) -> Sparse:
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


def matrix_product(A: Sparse, B: Sparse) -> Sparse:
    """A @ B in rows, on the structure of all products that may be non-zero."""
    if A.shape[1] != B.shape[0]:
        raise ValueError(
            f"Matrices of the shapes {A.shape} and {B.shape} were multiplied; expected equal inner numbers."
        )
    if _both_in_scipy(A, B):
        return _by_rows(A, A.known() @ B.known())
    meeting = products_of_entries(A.structure, B.structure)
    bk, factors = entries_together([A, B], np.result_type(A.dtype, B.dtype))
    structure = CsrStructure.by_rows(meeting.rows, meeting.cols, (A.shape[0], B.shape[1]))
    return A.beside(structure, (meeting.values(bk, *factors),))


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


def joint_values(matrices: Sequence[SparseStorage], dtype: np.dtype) -> Array:
    """Concatenate the values of several matrices in row order, for each system; NumPy where known.

    Raises:
        ValueError: batches of different length are among them.
    """
    systems = check_systems(matrices)
    bk, values = entries_together(matrices, dtype)
    if systems is not None:
        values = [v if len(v.shape) == 2 else bk.broadcast_to(v, (systems, int(v.shape[0]))) for v in values]
    return values[0] if len(values) == 1 else bk.concat(values, len(values[0].shape) - 1)


def entries_together(matrices: Sequence[SparseStorage], dtype: np.dtype) -> tuple[Backend, list[Array]]:
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
