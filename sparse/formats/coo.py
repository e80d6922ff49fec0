"""COO: coordinate format, which stores the row and column of each entry."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from .compressed import EntriesForm
from .entries.checked import as_values, check_lengths, known_array
from .entries.integers import as_indices, check_shape, check_size
from .sparse_matrix import SparseMatrix
from .structure import Slots, Sources, Structure


class CooStructure(Structure):
    """`rows` and `cols` `(nnz,)`, in row order."""

    format: ClassVar[str] = "coo"
    values_by_rows = True

    def __init__(self, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> None:
        super().__init__(shape)
        check_size(len(cols), "entries")
        self.rows, self.cols = rows.astype(np.int32, copy=False), cols.astype(np.int32, copy=False)

    @property
    def form(self) -> EntriesForm:
        return EntriesForm(*self.shape)

    @property
    def value_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((len(self.cols),),)

    @property
    def nnz(self) -> int:
        return len(self.cols)

    @property
    def indices(self) -> tuple[np.ndarray, ...]:
        return self.rows, self.cols

    def _find_entries(self) -> Slots:
        return Slots(self.rows, self.cols, np.arange(self.nnz, dtype=np.int32))

    def _static(self) -> tuple[Any, ...]:
        return self.rows, self.cols

    @classmethod
    def from_entries(cls, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> tuple[CooStructure, Sources]:
        return cls(rows, cols, shape), (np.arange(len(cols), dtype=np.int32),)


class COO(SparseMatrix):
    """Entries: `values`, `rows` and `columns` `(nnz,)`; values `(systems, nnz)` make a batch of matrices.

    The backend is that of the values. Any order and duplicates, which add up, are put in order.

    Raises:
        ValueError: lengths, shape, rows or columns do not fit.
        TypeError: rows or columns are no integers.

    Examples:
        >>> import numpy as np
        >>> from krylix.sparse import COO
        >>> COO(np.array([1.0, 2.0, 3.0]), rows=[0, 1, 1], columns=[0, 0, 1], shape=(2, 2)).toarray()
        array([[1., 0.],
               [2., 3.]])
    """

    structure_class = CooStructure

    def __init__(self, values: Any, rows: Any, columns: Any, shape: Any) -> None:
        n, m = check_shape(shape)
        bk, values = as_values(values, 1)
        rows = as_indices(known_array(rows, "The rows"), n, "The rows")
        cols = as_indices(known_array(columns, "The columns"), m, "The columns")
        check_lengths(values, rows, "rows")
        check_lengths(values, cols, "columns")
        self._set_entries(bk, rows, cols, values, (n, m))
