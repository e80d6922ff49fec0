"""CSR, compressed sparse rows, and CSC, compressed sparse columns."""

from __future__ import annotations

from typing import Any

from .compressed import CscStructure, CsrStructure
from .entries.checked import read_lines
from .entries.integers import check_shape, sorted_entries, starts_of
from .sparse_matrix import SparseMatrix
from .structure import ValueOrder


class CSR(SparseMatrix):
    """Compressed rows: `values` and `columns` `(nnz,)` row by row, and where each row starts, `(n + 1,)`.

    Values `(systems, nnz)` make a batch of matrices.

    The backend is that of the values. Columns in any order and duplicates, which add up, are put in order.

    Raises:
        ValueError: lengths, shape, starts or columns do not fit.
        TypeError: columns or starts are no integers.

    Examples:
        >>> import numpy as np
        >>> from krylix.sparse import CSR
        >>> CSR(np.array([1.0, 2.0, 3.0]), columns=[0, 0, 1], starts=[0, 1, 3], shape=(2, 2)).toarray()
        array([[1., 0.],
               [2., 3.]])
    """

    structure_class = CsrStructure

    def __init__(self, values: Any, columns: Any, starts: Any, shape: Any) -> None:
        bk, values, rows, cols = read_lines(values, columns, starts, shape, "columns")
        self._set_entries(bk, rows, cols, values, check_shape(shape))


class CSC(SparseMatrix):
    """Compressed columns: `values` and `rows` `(nnz,)` column by column, and where each column starts, `(m + 1,)`.

    Values `(systems, nnz)` make a batch of matrices.

    The backend is that of the values. Rows in any order and duplicates, which add up, are put in order.

    Raises:
        ValueError: lengths, shape, starts or rows do not fit.
        TypeError: rows or starts are no integers.

    Examples:
        >>> import numpy as np
        >>> from krylix.sparse import CSC
        >>> CSC(np.array([1.0, 2.0, 3.0]), rows=[0, 1, 1], starts=[0, 2, 3], shape=(2, 2)).toarray()
        array([[1., 0.],
               [2., 3.]])
    """

    structure_class = CscStructure

    def __init__(self, values: Any, rows: Any, starts: Any, shape: Any) -> None:
        n, m = check_shape(shape)
        bk, values, cols, rows = read_lines(values, rows, starts, (m, n), "rows")
        order = sorted_entries(cols, rows, (m, n))
        structure = CscStructure(starts_of(order.rows, m), order.cols, (n, m))
        self._set(bk, structure, (order.values(bk, values),))
        self.value_order = ValueOrder.of(structure, rows, cols, (len(rows),))
