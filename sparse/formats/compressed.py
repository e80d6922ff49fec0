"""Lists of entries: compressed rows (CSR), compressed columns (CSC), coordinates (COO)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
import scipy.sparse as sp

from ...backends import Array
from ...backends.interface.kernels import Arrays, Bilinear
from .entries.checked import as_values, check_lengths, known_array, read_lines
from .entries.integers import (
    as_indices,
    check_shape,
    check_size,
    csr_array,
    entries_in,
    lengths_text,
    repeat_rows,
    rows_first,
    sorted_entries,
    starts_of,
)
from .entries.values import entries_sample
from .sparse_matrix import SparseMatrix
from .structure import Slots, Sources, Structure, ValueOrder

C = TypeVar("C", bound="CompressedStructure")


@dataclass(frozen=True)
class EntriesForm(Bilinear):
    """Products of entries; indices: rows, columns, and for entries in row order where each row starts."""

    n: int
    m: int

    def product(self, bk: Any, values: Arrays, indices: Arrays, x: Array) -> Array:
        rows, cols, *starts = indices
        return bk.entries_product(values[0], rows, cols, x, self.n, *starts)

    def product_transposed(self, bk: Any, values: Arrays, indices: Arrays, y: Array) -> Array:
        return bk.entries_product(values[0], indices[1], indices[0], y, self.m)

    def sample(self, bk: Any, indices: Arrays, y: Array, x: Array, each: bool = False) -> Arrays:
        return (entries_sample(bk, indices[0], indices[1], y, x, each),)


@dataclass(frozen=True)
class TransposedForm(Bilinear):
    """The products of the transpose of a form, with the same indices."""

    form: Bilinear

    def product(self, bk: Any, values: Arrays, indices: Arrays, x: Array) -> Array:
        return self.form.product_transposed(bk, values, indices, x)

    def product_transposed(self, bk: Any, values: Arrays, indices: Arrays, y: Array) -> Array:
        return self.form.product(bk, values, indices, y)

    def sample(self, bk: Any, indices: Arrays, y: Array, x: Array, each: bool = False) -> Arrays:
        return self.form.sample(bk, indices, x, y, each)


class CompressedStructure(Structure):
    """The entries of rows, or of columns, one after the other.

    Attributes:
        starts: where each row (or column) starts.
        lines: `(nnz,)`, the column (or row) of each entry, rising within each row (or column).
    """

    axis: ClassVar[int]  # 0: by rows, 1: by columns

    def __init__(self, starts: np.ndarray, lines: np.ndarray, shape: tuple[int, int]) -> None:
        super().__init__(shape)
        check_size(len(lines), "entries")
        self.starts, self.lines = starts.astype(np.int32, copy=False), lines.astype(np.int32, copy=False)

    @property
    def value_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((len(self.lines),),)

    @property
    def nnz(self) -> int:
        return len(self.lines)

    @property
    def indices(self) -> tuple[np.ndarray, ...]:
        return self.owners, self.lines, self.starts

    @cached_property
    def owners(self) -> np.ndarray:
        """`(nnz,)`: the row (or column) of each entry."""
        return repeat_rows(self.starts)

    def _static(self) -> tuple[Any, ...]:
        return self.starts, self.lines

    def summary(self) -> str:
        text = lengths_text(np.diff(self.starts))
        return text.replace("row", "column") if self.axis else text

    def on_diagonal(self, count: int) -> CompressedStructure:
        n, m = self.shape
        repeated = _repeated(self.starts, self.lines, self.shape[1 - self.axis], count)
        return type(self)(*repeated, (n * count, m * count))

    @classmethod
    def of(cls: type[C], A: Any) -> C:
        """The structure of a canonical SciPy CSR (or CSC) matrix; its index arrays are shared."""
        check_size(A.nnz, "entries")
        return cls(A.indptr, A.indices, A.shape)

    def flipped(self) -> CompressedStructure:
        """The transpose: the same arrays, read the other way round."""
        other = CsrStructure if self.axis else CscStructure
        return other(self.starts, self.lines, self.shape[::-1])


class CsrStructure(CompressedStructure):
    """The entries row by row; all formats are converted by way of it."""

    format: ClassVar[str] = "csr"
    axis = 0
    values_by_rows = True

    @property
    def rows(self) -> np.ndarray:
        """`(nnz,)`: the row of each entry."""
        return self.owners

    @property
    def cols(self) -> np.ndarray:
        """`(nnz,)`: the column of each entry."""
        return self.lines

    @property
    def form(self) -> EntriesForm:
        return EntriesForm(*self.shape)

    def in_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return entries_in(self.starts[rows], self.starts[rows + 1], self.cols, rows)

    def _find_entries(self) -> Slots:
        return Slots(self.rows, self.cols, np.arange(self.nnz, dtype=np.int32))

    @classmethod
    def from_entries(cls, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> tuple[CsrStructure, Sources]:
        return cls.by_rows(rows, cols, shape), (np.arange(len(cols), dtype=np.int32),)

    @classmethod
    def by_rows(cls, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> CsrStructure:
        """The structure of entries in row order."""
        return cls(starts_of(rows, shape[0]), cols, shape)

    def to_scipy(self, values: Sequence[np.ndarray]) -> sp.csr_array:
        return csr_array(values[0], self.cols, self.starts, self.shape)

    def compiled(self, values: Sequence[np.ndarray]) -> sp.csr_array:
        return self.to_scipy(values)


class CscStructure(CompressedStructure):
    """The entries column by column: CSR of the transpose."""

    format: ClassVar[str] = "csc"
    axis = 1

    @property
    def form(self) -> TransposedForm:
        return TransposedForm(EntriesForm(*self.shape[::-1]))

    def _find_entries(self) -> Slots:
        order = rows_first(self.lines, self.shape[0])
        return Slots(self.lines[order], self.owners[order], order)

    @classmethod
    def from_entries(cls, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> tuple[CscStructure, Sources]:
        order = rows_first(cols, shape[1])
        return cls(starts_of(cols, shape[1]), rows[order], shape), (order,)

    def compiled(self, values: Sequence[np.ndarray]) -> sp.csc_array:
        return sp.csc_array((values[0], self.lines, self.starts), self.shape)


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


def _repeated(starts: np.ndarray, lines: np.ndarray, size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and indices of `count` copies on the diagonal of a block matrix."""
    copies = np.arange(count, dtype=np.int32)[:, None]
    first = (starts[:-1] + copies * np.int32(len(lines))).reshape(-1)
    return np.append(first, np.int32(count * len(lines))), (lines + copies * np.int32(size)).reshape(-1)


# --- matrices ---


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
