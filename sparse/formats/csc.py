"""CSC: the entries column by column, each with its row."""

from __future__ import annotations

from typing import Any

from .compressed import CscStructure
from .entries.integers import as_indices, check_shape, repeat_rows, starts_of
from .entries.order import put_in_order
from .making.given import as_values, check_lengths, check_starts, known_array
from .sparse_matrix import SparseMatrix
from .stored import Stored


class CSC(SparseMatrix):
    """Compressed columns: `values` and `rows` `(nnz,)` column by column, and where each column starts, `(m + 1,)`.

    Values `(systems, nnz)` make a batch of matrices.

    The backend is that of the values. Rows in any order and duplicates, which add up, are put in order.

    Raises:
        ValueError: lengths, shape, starts or rows do not fit.
        TypeError: rows or starts are no integers.
    """

    structure_class = CscStructure

    def __init__(self, values: Any, rows: Any, starts: Any, shape: Any) -> None:
        n, m = check_shape(shape)
        bk, values = as_values(values, 1)
        found = as_indices(known_array(rows, "The rows"), n, "The rows")
        cols = repeat_rows(check_starts(starts, m, len(found)))
        check_lengths(values, found, "rows")
        ordered, values = put_in_order(bk, cols, found, values, (m, n))
        self._set(Stored(bk, CscStructure(starts_of(ordered.rows, m), ordered.cols, (n, m)), (values,)))
