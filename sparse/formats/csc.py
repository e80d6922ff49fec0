"""CSC: the entries column by column, each with its row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ...backends import Array
from ...backends.interface.bilinear import Arrays, Bilinear
from .entries.integers import as_indices, check_shape, check_size, lengths_text, repeat_rows, starts_of
from .entries.order import put_in_order, rows_first
from .entries.sample import entries_sample
from .making.given import as_values, check_lengths, check_starts
from .sparse_matrix import SparseMatrix
from .structure import Slots, Sources, Structure


@dataclass(frozen=True)
class CscForm(Bilinear):
    """Products of values in column order; indices: starts, rows, columns."""

    n: int
    m: int

    def product(self, bk: Any, values: Arrays, indices: Arrays, x: Array) -> Array:
        _, rows, cols = indices
        return bk.entries_product(values[0], rows, cols, x, self.n)

    def product_transposed(self, bk: Any, values: Arrays, indices: Arrays, y: Array) -> Array:
        starts, rows, cols = indices
        return bk.entries_product(values[0], cols, rows, y, self.m, starts)

    def sample(self, bk: Any, indices: Arrays, y: Array, x: Array) -> Arrays:
        _, rows, cols = indices
        return (entries_sample(bk, rows, cols, y, x),)


class CscStructure(Structure):
    """`starts` `(m + 1,)` and `lines` `(nnz,)`, the rows, rising within each column."""

    format: ClassVar[str] = "csc"

    def __init__(self, starts: np.ndarray, lines: np.ndarray, shape: tuple[int, int]) -> None:
        super().__init__(shape)
        check_size(len(lines), "entries")
        self.starts, self.lines = starts.astype(np.int32, copy=False), lines.astype(np.int32, copy=False)

    @property
    def form(self) -> CscForm:
        return CscForm(*self.shape)

    @property
    def value_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((len(self.lines),),)

    @property
    def nnz(self) -> int:
        return len(self.lines)

    @property
    def indices(self) -> tuple[np.ndarray, ...]:
        return self.starts, self.lines, self.cols

    @cached_property
    def cols(self) -> np.ndarray:
        """`(nnz,)`: the column of each entry."""
        return repeat_rows(self.starts)

    def _find_entries(self) -> Slots:
        order = rows_first(self.lines, self.shape[0])
        return Slots(self.lines[order], self.cols[order], order)

    def _static(self) -> tuple[Any, ...]:
        return self.starts, self.lines

    @classmethod
    def from_entries(cls, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> tuple[CscStructure, Sources]:
        order = rows_first(cols, shape[1])
        return cls(starts_of(cols, shape[1]), rows[order], shape), (order,)

    def compiled(self, values: Sequence[np.ndarray]) -> sp.csc_array:
        return sp.csc_array((values[0], self.lines, self.starts), self.shape)

    def summary(self) -> str:
        return lengths_text(np.diff(self.starts)).replace("row", "column")


class CSC(SparseMatrix):
    """Compressed columns: `values` and `rows` `(nnz,)` column by column, and where each column starts, `(m + 1,)`.

    The backend is that of the values. Rows in any order and duplicates, which add up, are put in order.

    Raises:
        ValueError: lengths, shape, starts or rows do not fit.
        TypeError: rows or starts are no integers.
    """

    structure_class = CscStructure

    def __init__(self, values: Any, rows: Any, starts: Any, shape: Any) -> None:
        n, m = check_shape(shape)
        bk, values = as_values(values, 1)
        found = as_indices(np.array(rows), n, "The rows")
        cols = repeat_rows(check_starts(starts, m, len(found)))
        check_lengths(values, found, "rows")
        ordered, values = put_in_order(bk, cols, found, values, (m, n))
        self._set(bk, CscStructure(starts_of(ordered.rows, m), ordered.cols, (n, m)), (values,))
