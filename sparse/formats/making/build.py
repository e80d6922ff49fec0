"""Matrices from entries and from diagonals, in the format that suits them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend, get_backend
from ..choose import MOST_DIAGONALS
from ..compressed import CsrStructure
from ..dia import DiaStructure, Nonzero, check_offsets
from ..entries.checked import check_lengths, working
from ..entries.integers import as_indices, check_shape, check_size, sorted_entries
from ..sparse_matrix import SparseMatrix, joint_values, nonzero_entries, on_common_backend, sparse_formats

Present = np.ndarray | Callable[[], np.ndarray] | None


def from_entries(
    bk: Backend,
    rows: Any,
    cols: Any,
    values: Any,
    shape: Any,
    *,
    format: str | None = None,
    prune: bool = True,
    like: Array | None = None,
    sum_duplicates: bool = True,
    in_shape: tuple[int, ...] | None = None,
    out_shape: tuple[int, ...] | None = None,
) -> SparseMatrix:
    """The matrix of entries in any order.

    Args:
        bk: the library that will multiply.
        rows, cols: integers of NumPy `(nnz,)`.
        values: `(nnz,)` of NumPy if they are known, else of `bk`, possibly traced; `(systems, nnz)` for a batch.
        shape: `(n, m)`.
        format: of the result; None: what `choose_format` finds.
        prune: drop known values that are 0 (of a batch: in all systems).
        like: an array on whose device known values are to go.
        sum_duplicates: False promises that no place occurs twice.
        in_shape, out_shape: of the arrays that it maps, if not `(m,)` and `(n,)`.

    Raises:
        ValueError: lengths, shape or positions do not fit.
        TypeError: rows or columns are no integers.

    Cost: counting sorts, linear in the number of entries; none where they are in order.
    """
    n, m = check_shape(shape)
    rows, cols = as_indices(rows, n, "The rows"), as_indices(cols, m, "The columns")
    check_lengths(values, rows, "rows")
    check_lengths(values, cols, "columns")
    where: dict[str, Any] = {"like": like, "in_shape": in_shape, "out_shape": out_shape}
    if isinstance(values, np.ndarray) and values.ndim == 1:
        A = sp.coo_array((working(values), (rows, cols)), (n, m)).tocsr()
        return from_csr(bk, A, prune=prune, format=format, **where)
    order = sorted_entries(rows, cols, (n, m), sum_duplicates)
    rows, cols, ordered = order.rows, order.cols, order.values(bk, values)
    if prune and isinstance(ordered, np.ndarray):
        rows, cols, ordered = nonzero_entries(rows, cols, working(ordered))
    structure = CsrStructure.by_rows(rows, cols, (n, m))
    return _in_format(SparseMatrix.build(bk, structure, (ordered,), **where), format)


def from_csr(
    bk: Backend, A: sp.csr_array, *, prune: bool = True, format: str | None = None, **where: Any
) -> SparseMatrix:
    """The matrix of a SciPy CSR array that the caller owns: it is put in order, and its memory shared.

    `where` is what `SparseMatrix.build` takes besides.
    """
    A.sum_duplicates()
    if prune and not np.all(A.data):
        A.eliminate_zeros()
    return _in_format(SparseMatrix.build(bk, CsrStructure.of(A), (A.data,), **where), format)


def _in_format(matrix: SparseMatrix, format: str | None) -> SparseMatrix:
    """A new matrix in a format, or CSR in the one that suits it."""
    if format is None:
        return matrix.in_suitable_format()
    if format not in sparse_formats():
        raise ValueError(f"The format {format!r} was asked for; there are {', '.join(sparse_formats())}.")
    found: Any = matrix.to(format)
    found.reason = "asked for"
    return found


def from_diagonals(
    bk: Backend,
    offsets: Any,
    diagonals: Any,
    shape: Any,
    *,
    prune: bool = True,
    format: str | None = None,
    like: Array | None = None,
    present: Present = None,
    in_shape: tuple[int, ...] | None = None,
    out_shape: tuple[int, ...] | None = None,
) -> SparseMatrix:
    """The matrix of diagonals; DIA, if no other format is asked for and they are not too many.

    Args:
        bk: the library that will multiply.
        offsets: column minus row of each diagonal, in any order; the same one twice adds up.
        diagonals: `(k, n)`, value i of each belongs to row i: NumPy if they are known, else of `bk`. What lies outside
            of the matrix is ignored.
        shape: `(n, m)`.
        prune: drop known values that are 0.
        format: of the result; None: DIA for up to 40 diagonals, else what suits the rows.
        like: an array on whose device known values are to go.
        present: where there are entries at all, bool `(k, n)` or a function that finds it when it is needed; for known
            values, with `prune`, that is where they are not 0.
        in_shape, out_shape: of the arrays that it maps, if not `(m,)` and `(n,)`.

    Raises:
        ValueError: offsets, shape and diagonals do not fit.

    Cost: known diagonals are read once, to drop those that are 0, and used as they are.
    """
    n, m = check_shape(shape)
    steps = check_offsets(offsets, (n, m))
    if tuple(diagonals.shape) != (len(steps), n):
        raise ValueError(f"Diagonals of the shape {tuple(diagonals.shape)} were given; expected {(len(steps), n)}.")
    known = isinstance(diagonals, np.ndarray)
    diagonals = working(diagonals) if known else diagonals
    host = get_backend("numpy") if known else bk
    steps, diagonals, present = _rising(host, steps, diagonals, present)
    if known and prune:
        kept = [d for d in range(len(steps)) if diagonals[d].any()]
        if len(kept) < len(steps):
            steps, diagonals = steps[kept], diagonals[kept]
        present = Nonzero(diagonals)
    structure = DiaStructure(steps, (n, m), present)
    where: dict[str, Any] = {"like": like, "in_shape": in_shape, "out_shape": out_shape}
    matrix: Any = SparseMatrix.build(bk, structure, (diagonals,), **where)
    if format is None and len(steps) <= MOST_DIAGONALS:
        matrix.reason = f"{len(steps)} diagonals, at most {MOST_DIAGONALS}"
        return matrix
    return _in_format(matrix.to("csr") if format is None else matrix, format)


def _rising(
    bk: Backend, steps: np.ndarray, diagonals: Array, present: Present
) -> tuple[np.ndarray, Array, Present]:  # fmt: skip
    """The diagonals by rising offset, each once."""
    if np.all(steps[1:] > steps[:-1]):
        return steps, diagonals, present
    unique, which = np.unique(steps, return_inverse=True)
    if present is not None:
        given = present() if callable(present) else present
        present = np.zeros((len(unique), *given.shape[1:]), bool)
        np.logical_or.at(present, which, given)
    return unique, bk.segment_sum(diagonals, which.astype(np.int32), len(unique)), present


# --- Batches of matrices on one structure, from entries or from single matrices of any patterns -----------------------


def from_systems(
    bk: Backend, systems: Any, rows: Any, cols: Any, values: Any, shape: Any, *, like: Array | None = None
) -> SparseMatrix:
    """The batch of the matrices of entries in any order, which duplicates add up in, on the union of all patterns.

    Args:
        bk: the library that will multiply.
        systems: to which matrix each entry belongs, integers of NumPy `(nnz,)`.
        rows, cols: integers of NumPy `(nnz,)`.
        values: `(nnz,)` of NumPy if they are known, else of `bk`, possibly traced.
        shape: `(systems, n, m)`.
        like: an array on whose device known values are to go.

    Raises:
        ValueError: shape or positions do not fit, or there are too many numbers for 32-bit indices.
        TypeError: systems, rows or columns are no integers.

    Cost: one sort of the entries, none where all systems have the same ones in the same order; then a value is stored
    for each system at every place where any of them has an entry.
    """
    count, (n, m) = int(shape[0]), check_shape(shape[1:])
    systems = as_indices(systems, count, "The numbers of the systems")
    rows, cols = as_indices(rows, n, "The rows"), as_indices(cols, m, "The columns")
    host = get_backend("numpy") if isinstance(values, np.ndarray) else bk
    options: dict[str, Any] = {"prune": False, "like": like}
    each = len(rows) // max(count, 1)
    tables = [a.reshape(count, each) for a in (systems, rows, cols)] if each * count == len(rows) else []
    if tables and all(np.array_equal(a, np.broadcast_to(f, a.shape)) for a, f in zip(tables, _equal(tables))):
        return from_entries(bk, rows[:each], cols[:each], host.reshape(values, (count, each)), (n, m), **options)
    places, found = np.unique(rows.astype(np.int64) * m + cols, return_inverse=True)
    size = check_size(count * len(places), "stored values, as the union of all patterns in every system")
    slots = (systems.astype(np.int64) * len(places) + found.reshape(-1)).astype(np.int32)
    full = host.reshape(host.segment_sum(values, slots, size), (count, len(places)))
    return from_entries(bk, places // max(m, 1), places % max(m, 1), full, (n, m), sum_duplicates=False, **options)


def _equal(tables: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Systems, rows and columns of entries that are the same in all systems, in the same order."""
    return [np.arange(len(tables[0]), dtype=np.int32)[:, None], tables[1][:1], tables[2][:1]]


def matrix_batch(matrices: Sequence[SparseMatrix]) -> SparseMatrix:
    """One batch of single matrices of one shape: with their structure if it is the same, else on the union of all.

    Raises:
        TypeError: they are of different libraries.
    """
    example = next((A for A in matrices if not A.bk.on_host), matrices[0])
    stored = [on_common_backend(example, A)[1] for A in matrices]
    first = stored[0]
    known = all(s.constant is not None for s in stored)
    host, dtype = first.host if known else first.bk, np.result_type(*(s.dtype for s in stored))
    if all(s.structure == first.structure for s in stored[1:]):
        arrays = [s.known_or_arrays() if known else s.arrays() for s in stored]
        pattern: Any = first if all(s.value_order == first.value_order for s in stored) else first.to(first.format)
        return pattern.with_stored_values([host.stack([host.astype(v, dtype) for v in vs]) for vs in zip(*arrays)])
    entries = [s.structure.entries() for s in stored]
    systems = np.repeat(np.arange(len(stored), dtype=np.int32), [len(e.rows) for e in entries])
    rows, cols = np.concatenate([e.rows for e in entries]), np.concatenate([e.cols for e in entries])
    shape = (len(stored), *first.shape)
    return from_systems(first.bk, systems, rows, cols, joint_values(stored, dtype), shape, like=first.anchor())
