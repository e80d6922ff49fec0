"""CSR: the entries row by row, each with its column."""

from __future__ import annotations

from typing import Any

from .compressed import CsrStructure
from .entries.integers import as_indices, check_shape, repeat_rows, starts_of
from .entries.order import put_in_order
from .making.given import as_values, check_lengths, check_starts, known_array
from .sparse_matrix import SparseMatrix
from .stored import Stored


class CSR(SparseMatrix):
    """Compressed rows: `values` and `columns` `(nnz,)` row by row, and where each row starts, `(n + 1,)`.

    Values `(systems, nnz)` make a batch of matrices.

    The backend is that of the values. Columns in any order and duplicates, which add up, are put in order.

    Raises:
        ValueError: lengths, shape, starts or columns do not fit.
        TypeError: columns or starts are no integers.
    """

    structure_class = CsrStructure

    def __init__(self, values: Any, columns: Any, starts: Any, shape: Any) -> None:
        n, m = check_shape(shape)
        bk, values = as_values(values, 1)
        cols = as_indices(known_array(columns, "The columns"), m, "The columns")
        rows = repeat_rows(check_starts(starts, n, len(cols)))
        check_lengths(values, cols, "columns")
        ordered, values = put_in_order(bk, rows, cols, values, (n, m))
        self._set(Stored(bk, CsrStructure(starts_of(ordered.rows, n), ordered.cols, (n, m)), (values,)))
