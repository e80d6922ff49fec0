"""Sums, multiples and products of sparse matrices: static structure, values that are computed or traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from ..choose import choose_format
from ..entries.integers import check_size, repeat_rows, starts_of
from ..entries.order import in_order
from ..entries.regather import flatten
from ..rows import CsrStructure

if TYPE_CHECKING:
    from ..sparse_matrix import SparseMatrix

_PLAIN = ("csr", "csc", "coo")  # formats that any structure has


def by_rows(like: SparseMatrix, A: sp.csr_array, **shapes: Any) -> SparseMatrix:
    """A known matrix, that the caller owns, with the backend of `like` and its format, or what suits."""
    A.sum_duplicates()
    return finished(like, CsrStructure.of(A), A.data, **shapes)


def finished(like: SparseMatrix, structure: CsrStructure, values: Array, **shapes: Any) -> SparseMatrix:
    """Values in row order, in the format of `like` if that suits any structure, else in the one that suits this."""
    bk = like.bk
    matrix: Any = like.rebuilt(structure, (values,), **shapes)
    if like.format in _PLAIN:
        return matrix.to(like.format)
    choice = choose_format(bk, structure.starts, structure.cols, structure.shape)
    found = matrix.to(choice.format)
    found.reason = choice.reason
    return found


def plus(A: SparseMatrix, B: SparseMatrix) -> SparseMatrix:
    """A + B on the union of the structures; where all values are known, without entries that cancel."""
    if A.shape != B.shape:
        raise ValueError(f"Matrices of the shapes {A.shape} and {B.shape} were added; expected equal ones.")
    if A.structure == B.structure:
        return A.same_structure([a + b for a, b in zip(*_values(A, B), strict=True)])
    if A.constant is not None and B.constant is not None:
        return by_rows(A, A.to_scipy() + B.to_scipy(), **A.shapes)
    bk, first, second = A.bk, A.structure.entries(), B.structure.entries()
    rows, cols = np.concatenate([first.rows, second.rows]), np.concatenate([first.cols, second.cols])
    dtype = np.result_type(A.dtype, B.dtype)
    values = bk.concat([_entries(M, dtype) for M in (A, B)], 0)
    order = in_order(rows, cols, A.shape)
    structure = CsrStructure(starts_of(order.rows, A.shape[0]), order.cols, A.shape)
    return finished(A, structure, order.values(bk, values), **A.shapes)


def _values(A: SparseMatrix, B: SparseMatrix) -> tuple[list[Array], list[Array]]:
    dtype = np.result_type(A.dtype, B.dtype)
    known = A.constant is not None and B.constant is not None
    bk = get_backend("numpy") if known else A.bk
    one, other = ([bk.astype(v, dtype) for v in (M.constant or () if known else M.arrays())] for M in (A, B))
    return one, other


def _entries(A: SparseMatrix, dtype: np.dtype) -> Array:
    values = A.entry_values()
    return A.bk.astype(values if A.constant is None else A.bk.asarray(values, like=A.anchor()), dtype)


def scaled(A: SparseMatrix, c: Any, divide: bool) -> SparseMatrix:
    """A times a number, or divided by it; the number may be traced."""
    factor, dtype = as_factor(A.bk, c, A.dtype)
    known = isinstance(factor, np.ndarray)
    host = get_backend("numpy") if known and A.constant is not None else A.bk
    values = A.known_or_arrays() if known else A.arrays()
    if known:
        factor = host.asarray(factor, like=values[0] if values else None)
    cast = [host.astype(v, dtype) for v in values]
    found = [v / factor if divide else v * factor for v in cast]
    # the zeros of padding would be NaN times infinity, or divided by zero
    keeps_zeros = known and bool(np.isfinite(c)) and not (divide and c == 0)
    return A.same_structure(found if keeps_zeros else A.structure.masked(host, found))


def as_factor(bk: Backend, c: Any, dtype: np.dtype) -> tuple[Array, np.dtype]:
    """What a matrix of `dtype` is multiplied by, without axes, and the dtype of the product; NumPy where it is known.

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


def times(A: SparseMatrix, B: SparseMatrix) -> SparseMatrix:
    """A @ B on the structure of all products that may be non-zero."""
    if A.shape[1] != B.shape[0]:
        raise ValueError(
            f"Matrices of the shapes {A.shape} and {B.shape} were multiplied; expected equal inner numbers."
        )
    shape = A.shape[0], B.shape[1]
    shapes = {"in_shape": B.shapes["in_shape"], "out_shape": A.shapes["out_shape"]}
    if A.constant is not None and B.constant is not None:
        return by_rows(A, A.to_scipy() @ B.to_scipy(), **shapes)
    bk, (left, right) = A.bk, _pairs(A, B)
    first, second = A.structure.entries(), B.structure.entries()
    dtype = np.result_type(A.dtype, B.dtype)
    values = bk.take(_entries(A, dtype), left) * bk.take(_entries(B, dtype), right)
    order = in_order(first.rows[left], second.cols[right], shape)
    structure = CsrStructure(starts_of(order.rows, shape[0]), order.cols, shape)
    return finished(A, structure, order.values(bk, values), **shapes)


def _pairs(A: SparseMatrix, B: SparseMatrix) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the entries of A and of B that meet in a product: the column of one is the row of the other."""
    inner = A.structure.entries().cols
    starts = starts_of(B.structure.entries().rows, B.shape[0])
    counts = np.diff(starts)[inner]
    check_size(int(counts.sum(dtype=np.int64)), "single products of entries")
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    left = repeat_rows(ends)
    return left, np.arange(len(left), dtype=np.int32) + (starts[inner] - ends[:-1])[left]


def summed(A: SparseMatrix, axis: int | None) -> Array:
    """Sums of all entries, of columns (0) or of rows (1)."""
    check_axis(axis)
    bk = get_backend("numpy") if A.constant is not None else A.bk
    rows, cols, _ = A.structure.entries()
    values = A.entry_values()
    if axis is None:
        found = bk.sum(values, (0,))
    elif axis in (0, -2):
        found = bk.segment_sum(values, cols, A.shape[1])
    else:
        found = bk.segment_sum(values, rows, A.shape[0], sorted=True)
    return found if A.constant is None else A.bk.asarray(np.asarray(found), like=A.anchor())


def check_axis(axis: int | None) -> None:
    """That there are sums along it.

    Raises:
        ValueError: there are none.
    """
    if axis not in (None, 0, 1, -1, -2):
        raise ValueError(f"axis={axis!r} was given; expected 0 (sums of columns), 1 (sums of rows) or None.")


def joint_values(matrices: list[SparseMatrix], dtype: np.dtype) -> Array:
    """The values of several matrices in one row, each in row order; NumPy where all are known."""
    if all(M.constant is not None for M in matrices):
        return flatten(get_backend("numpy"), [M.entry_values().astype(dtype, copy=False) for M in matrices])
    return matrices[0].bk.concat([_entries(M, dtype) for M in matrices], 0)
