"""Consecutive rows of a matrix as CSR, as a rank stores them: of stencils and diagonals without making the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..errors import UnsupportedOperation
from .boxes import Shifted
from .dia import DiaStructure
from .entries.integers import row_strides
from .sparse_matrix import SparseMatrix
from .stencil import StencilStructure

_Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, columns, values


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
    structure: Any = A.structure
    if isinstance(structure, StencilStructure):
        found = _of_boxes(structure, values, first, last)
    elif isinstance(structure, DiaStructure):
        found = _of_diagonals(structure, values[0], first, last)
    else:
        rows = sp.csr_array(A.known())[first:last]
        rows.sum_duplicates()
        return rows
    rows, columns, entries = found
    made = sp.csr_array((entries, (rows - first, columns)), shape=(last - first, A.shape[1]), dtype=A.dtype)
    made.sum_duplicates()
    return made


def _of_boxes(structure: StencilStructure, values: Sequence[np.ndarray], first: int, last: int) -> _Entries:
    out_strides, in_strides = row_strides(structure.out_grid), row_strides(structure.in_grid)
    slab = out_strides[0] if out_strides else 1
    low, high = first // slab, -(-last // slab)  # planes along the first axis that have some of the rows
    parts = []
    for box, number, value in zip(structure.boxes, structure.numbers, values, strict=True):
        cut = _cut(box, low, high)
        if cut is None:
            continue
        rows = _places(cut.lo, cut.shape, out_strides)
        columns = _places(cut.start, cut.shape, in_strides)
        own = value if number else value[cut.lo[0] - box.lo[0] :][: cut.shape[0]] if box.lo else value
        entries = np.broadcast_to(own, cut.shape).reshape(-1)
        kept = (rows >= first) & (rows < last)
        parts.append((rows[kept], columns[kept], entries[kept]))
    return _joined(parts)


def _cut(box: Shifted, low: int, high: int) -> Shifted | None:
    """The part of a box in planes `low` to `high`; None where it has none."""
    if not box.lo:
        return box if low < high else None
    a, b = max(box.lo[0], low), min(box.lo[0] + box.shape[0], high)
    if a >= b:
        return None
    shift = box.start[0] - box.lo[0]
    return Shifted((a, *box.lo[1:]), (b - a, *box.shape[1:]), (a + shift, *box.start[1:]))


def _places(lo: Sequence[int], shape: Sequence[int], strides: Sequence[int]) -> np.ndarray:
    """Numbers of the points of a box, int64, as the whole grid may have more than int32 counts."""
    found = np.zeros((1,) * len(shape), np.int64)
    for axis, (a, n, stride) in enumerate(zip(lo, shape, strides, strict=True)):
        line = (a + np.arange(n, dtype=np.int64)) * stride
        found = found + line.reshape([-1 if k == axis else 1 for k in range(len(shape))])
    return np.broadcast_to(found, tuple(shape)).reshape(-1)


def _of_diagonals(structure: DiaStructure, values: np.ndarray, first: int, last: int) -> _Entries:
    parts, columns = [], structure.shape[1]
    for d, offset in enumerate(structure.offsets):
        rows = np.arange(max(first, -offset), min(last, columns - offset), dtype=np.int64)
        if not len(rows):
            continue
        if structure.present is not None:
            rows = rows[structure.present[d, rows]]
        parts.append((rows, rows + offset, values[d, rows]))
    return _joined(parts)


def _joined(parts: Sequence[_Entries]) -> _Entries:
    if not parts:
        none = np.zeros(0, np.int64)
        return none, none, np.zeros(0)
    rows, columns, values = (np.concatenate([part[k] for part in parts]) for k in range(3))
    return rows, columns, values
