"""Conversion of SciPy matrices and of the libraries' own sparse types."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend
from ..choose import MOST_DIAGONALS
from ..compressed import CscStructure, CsrStructure
from ..entries.checked import checked_scipy
from ..matrix import Matrix
from ..sparse_matrix import SparseMatrix
from ..structure import ValueOrder
from ..traced_coo import TracedCOO
from .build import from_csr, from_diagonals, from_entries, from_systems


def from_scipy(
    bk: Backend,
    A: Any,
    dtype: Any = None,
    like: Array | None = None,
    *,
    format: str | None = None,
    prune: bool = False,
    name: str = "A",
) -> SparseMatrix:
    """A SciPy sparse array or matrix of any format; it is not modified.

    On NumPy memory is shared where the matrix is in order: who keeps the result gives a copy, see `owned`.

    Args:
        bk: the library that will multiply.
        A: the matrix, with entries in any order, duplicates and explicit zeros.
        dtype: of the values; None: that of A, or double precision for integers.
        like: an array on whose device the values go.
        format: of the result; None: what suits, on NumPy CSR, CSC or few diagonals as they are.
        prune: drop explicit zeros.
        name: what to call it in a message.
    """
    A = checked_scipy(A, name)
    found = np.dtype(dtype) if dtype is not None else A.dtype if A.dtype.kind in "fc" else np.dtype(np.float64)
    if A.format == "csc" and bk.on_host and format in (None, "csc") and not prune:
        csc = _owned(sp.csc_array(A), A)
        structure = CscStructure(csc.indptr, csc.indices, csc.shape)
        return SparseMatrix.build(bk, structure, (csc.data.astype(found, copy=False),), like=like)
    if A.format == "dia" and bk.on_host and format is None and not prune and _are_few(A):
        return from_diagonals(bk, A.offsets, _by_rows(A).astype(found, copy=False), A.shape, format="dia", like=like)
    csr = _owned(_in_rows(A), A)
    if csr.dtype != found:
        csr = csr.astype(found)
        csr.has_canonical_format = True
    if bk.on_host and format is None and not prune:
        rows = SparseMatrix.build(bk, CsrStructure.of(csr), (csr.data,), like=like)
        rows._made["scipy"] = csr
        return rows
    if not bk.on_host or (prune and not np.all(csr.data)):
        csr = _own(csr, A)
    return from_csr(bk, csr, prune=prune, format=format, like=like)


def _in_rows(A: Any) -> sp.csr_array:
    """CSR view of a SciPy matrix as an object of its own, which shares its arrays where it is CSR.

    SciPy's constructor checks once more what has been checked, in as long as a product with thousands of entries takes.
    """
    arrays = (A.data, A.indices, A.indptr) if type(A) is sp.csr_array else ()
    usual = all(type(array) is np.ndarray and array.dtype.isnative for array in arrays)
    if not arrays or not usual or A.indices.dtype != A.indptr.dtype or A.indices.dtype not in (np.int32, np.int64):
        return sp.csr_array(A)
    same: sp.csr_array = object.__new__(sp.csr_array)
    same.__dict__.update(A.__dict__)
    for known in ("_has_canonical_format", "_has_sorted_indices"):  # not so any more if somebody wrote to the indices
        same.__dict__.pop(known, None)
    return same


def _are_few(A: Any) -> bool:
    """Has it few diagonals, each given once and mostly inside of the matrix? Their product is the fastest then."""
    offsets = np.asarray(A.offsets)
    few = 0 < len(offsets) <= MOST_DIAGONALS and len(np.unique(offsets)) == len(offsets)
    return few and bool(np.all(2 * np.abs(offsets) < min(A.shape)))


def _by_rows(A: Any) -> np.ndarray:
    """Diagonals `(k, n)` aligned by rows, of SciPy's `dia_array`, which aligns them by columns."""
    n, m = A.shape
    found, length = np.zeros((len(A.offsets), n), A.dtype), min(m, A.data.shape[1])
    for row, values, offset in zip(found, A.data, map(int, A.offsets), strict=True):
        lo, hi = max(0, -offset), min(n, length - offset)
        row[lo : max(lo, hi)] = values[lo + offset : max(lo, hi) + offset]
    return found


def _own(csr: sp.csr_array, given: Any) -> sp.csr_array:
    """Copy a matrix that shares memory with the given one, as libraries copy some arrays, and share others."""
    if not np.shares_memory(csr.data, getattr(given, "data", ())):
        return csr
    csr = csr.copy()
    csr.has_canonical_format = True
    return csr


def _owned(compressed: Any, given: Any) -> Any:
    """Canonical form; a copy if entries must be moved for it."""
    if compressed.has_canonical_format:
        return compressed
    if np.shares_memory(compressed.data, getattr(given, "data", ())):
        compressed = compressed.copy()
    compressed.sum_duplicates()
    return compressed


def from_native(
    bk: Backend, x: Any, dtype: Any = None, like: Array | None = None, *, format: str | None = None, name: str = "A"
) -> Matrix:  # fmt: skip
    """A sparse matrix of the library's own type: BCOO or BCSR, a sparse tensor, a SparseTensor; or a batch of them.

    Its values keep their derivatives. Where its indices are traced, the result is a `TracedCOO`, and nobody sees
    whether they lie inside of the matrix. The matrices of a batch get one pattern, the union of theirs.
    """
    if bk.on_host:
        return from_scipy(bk, x, dtype, like, format=format, name=name)
    bk.sparse.check(x, name)
    with bk.at_once() if bk.has_pure_arrays else nullcontext():  # then what is known stays so in compiled functions
        return _of_entries(bk, x, dtype, like, format)


def _of_entries(bk: Backend, x: Any, dtype: Any, like: Array | None, format: str | None) -> Matrix:
    values, rows, cols, shape, systems, given = bk.sparse.entries(x)
    if dtype is not None and bk.dtype(values) != np.dtype(dtype):
        values = bk.astype(values, np.dtype(dtype))
    known = [bk.concrete_value(lambda i=i: i) for i in (rows, cols)]  # type: ignore[misc]
    if known[0] is None or known[1] is None:
        return TracedCOO(bk, values, rows, cols, shape[-2:])
    if systems is not None:
        batch = from_systems(bk, systems, known[0], known[1], values, shape, like=like)
        return batch if format is None else batch.to(format)
    matrix = from_entries(bk, known[0], known[1], values, shape, format=format, like=like)
    rows, cols, form = given or (known[0], known[1], (len(known[0]),))
    matrix.value_order = ValueOrder.of(matrix.structure, np.asarray(rows), np.asarray(cols), form)
    return matrix


def pattern_from_scipy(bk: Backend, A: Any, dtype: Any, like: Array | None) -> SparseMatrix:
    """`from_scipy` for a matrix that is kept and takes other values in the order of `A.data`, zeros included."""
    entries = A
    if A.format == "dia" and not (bk.on_host and _are_few(A)):  # which SciPy converts without its zeros
        rows, cols = places_of_values(A)
        inside = (rows >= 0) & (rows < A.shape[0])
        entries = sp.coo_array((A.data.ravel()[inside], (rows[inside], cols[inside])), A.shape)
    matrix = from_scipy(bk, entries, dtype, like)
    if A.format not in ("lil", "dok"):
        matrix.value_order = ValueOrder.of(matrix.structure, *places_of_values(A), A.data.shape)
    return matrix


def places_of_values(A: Any) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each number of SciPy's `A.data`, zeros included; outside of A what its diagonals do not use."""
    if A.format != "dia":
        entries = A.tocoo()
        return entries.row, entries.col
    columns = np.broadcast_to(np.arange(A.data.shape[1]), A.data.shape)
    rows = np.where(columns < A.shape[1], columns - A.offsets[:, None], -1)
    return rows.ravel(), columns.ravel()
