"""Batches of matrices on one structure, from entries or from single matrices of any patterns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....backends import Array, Backend, get_backend
from ..entries.integers import as_indices, check_shape, check_size
from ..operations.arithmetic import joint_values
from ..operations.change import on_common_backend
from ..sparse_matrix import SparseMatrix
from .build import from_entries


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
