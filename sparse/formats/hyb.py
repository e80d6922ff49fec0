"""HYB: hybrid format, an ELL part for all rows and short segments for the rest of long rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...backends import Array
from ...backends.interface.kernels import Arrays, Bilinear
from .ell import filled, pack, packed_entries, scatter, without_padding
from .entries.given import read_lines
from .entries.integers import (
    check_shape,
    check_size,
    lengths_text,
    places_in_rows,
    repeat_rows,
    starts_from,
    starts_of,
)
from .entries.order import rows_first
from .entries.sample import ell_sample
from .sparse_matrix import SparseMatrix
from .structure import Slots, Sources, Structure

PIECE = 8  # entries
_COST_OF_A_PIECE = 4  # in stored values


@dataclass(frozen=True)
class HybForm(Bilinear):
    """Products of an ELL part and of pieces that are added to their rows.

    Indices: columns `(k, n)`, columns of the pieces `(8, c)`, rows of the pieces `(c,)`, and the lengths of rows and
    pieces if there is padding.
    """

    n: int
    m: int

    def product(self, bk: Any, values: Arrays, indices: Arrays, x: Array) -> Array:
        cols, piece_cols, piece_rows = indices[:3]
        sums = bk.ell_product(values[1], piece_cols, x)
        return bk.ell_product(values[0], cols, x) + bk.sum_entries(sums, piece_rows, self.n, sorted=True)

    def product_transposed(self, bk: Any, values: Arrays, indices: Arrays, y: Array) -> Array:
        cols, piece_cols, piece_rows = indices[:3]
        rest = scatter(bk, values[1], piece_cols, bk.take_in_bounds(y, piece_rows, 1), self.m)
        return scatter(bk, values[0], cols, y, self.m) + rest

    def sample(self, bk: Any, indices: Arrays, y: Array, x: Array, each: bool = False) -> Arrays:
        cols, piece_cols, piece_rows = indices[:3]
        found = (
            ell_sample(bk, cols, y, x, each),
            ell_sample(bk, piece_cols, bk.take_in_bounds(y, piece_rows, 1), x, each),
        )
        if len(indices) == 3:
            return found
        return tuple(without_padding(bk, part, lengths) for lengths, part in zip(indices[3:], found, strict=True))


class HybStructure(Structure):
    """An ELL part `(k, n)`, and pieces `(8, c)` of the rows `piece_rows` `(c,)`, in row order.

    The lengths say how many places of each row or piece hold entries; the others are padding.
    """

    format: ClassVar[str] = "hyb"

    def __init__(
        self,
        cols: np.ndarray,
        lengths: np.ndarray,
        piece_cols: np.ndarray,
        piece_lengths: np.ndarray,
        piece_rows: np.ndarray,
        shape: tuple[int, int],
    ) -> None:
        super().__init__(shape)
        self.cols, self.lengths = cols, lengths
        self.piece_cols, self.piece_lengths, self.piece_rows = piece_cols, piece_lengths, piece_rows

    @property
    def form(self) -> HybForm:
        return HybForm(*self.shape)

    @property
    def value_shapes(self) -> tuple[tuple[int, ...], ...]:
        return self.cols.shape, self.piece_cols.shape

    @cached_property
    def nnz(self) -> int:
        return int(self.lengths.sum(dtype=np.int64) + self.piece_lengths.sum(dtype=np.int64))

    @property
    def indices(self) -> tuple[np.ndarray, ...]:
        return self.cols, self.piece_cols, self.piece_rows

    @property
    def masks(self) -> tuple[np.ndarray, ...]:
        return () if self.nnz == self.size else (self.lengths, self.piece_lengths)

    def padding(self) -> tuple[np.ndarray | None, ...]:
        if self.nnz == self.size:
            return None, None
        return filled(self.cols, self.lengths), filled(self.piece_cols, self.piece_lengths)

    def _find_entries(self) -> Slots:
        rows, cols, slots = packed_entries(self.cols, self.lengths)
        pieces, more_cols, more_slots = packed_entries(self.piece_cols, self.piece_lengths)
        rows = np.concatenate([rows, self.piece_rows[pieces]])
        # the pieces of a row come after its first entries: a stable sort by row keeps the columns rising
        order = rows_first(rows, self.shape[0])
        more_slots = more_slots + np.int32(self.cols.size)
        return Slots(rows[order], np.concatenate([cols, more_cols])[order], np.concatenate([slots, more_slots])[order])

    def _static(self) -> tuple[Any, ...]:
        return self.cols, self.lengths, self.piece_cols, self.piece_lengths, self.piece_rows

    @classmethod
    def from_entries(cls, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> tuple[HybStructure, Sources]:
        starts = starts_of(rows, shape[0])
        lengths = np.diff(starts)
        width = best_width(lengths)
        first = np.minimum(lengths, width)
        packed, source = pack(cols, starts[:-1], first, width, shape[1])
        rest = lengths - first
        pieces = -(-rest // PIECE)
        first_piece = starts_from(pieces)
        piece_rows, number = repeat_rows(first_piece), places_in_rows(first_piece)
        piece_starts = (starts[:-1] + first)[piece_rows] + PIECE * number
        piece_lengths = np.minimum(rest[piece_rows] - PIECE * number, PIECE).astype(np.int32)
        piece_cols, piece_source = pack(cols, piece_starts.astype(np.int32), piece_lengths, PIECE, shape[1])
        check_size(packed.size + piece_cols.size, "stored values")
        structure = cls(packed, first, piece_cols, piece_lengths, piece_rows, shape)
        return structure, (source, piece_source)

    def summary(self) -> str:
        total = np.bincount(self.piece_rows, self.piece_lengths, self.shape[0]).astype(np.int64) + self.lengths
        return (
            f"{self.cols.shape[0]} places per row and {len(self.piece_rows)} pieces of {PIECE}, {lengths_text(total)}"
        )


def best_width(lengths: np.ndarray) -> int:
    """The width of the ELL part, between the median and the 90th percentile of the row lengths.

    It minimises the number of stored values, with a surcharge for each piece. Cost: one histogram.
    """
    if not len(lengths):
        return 0
    count = np.bincount(lengths)
    at = np.arange(len(count))
    low, high = (int(np.searchsorted(np.cumsum(count), q * len(lengths))) for q in (0.5, 0.9))

    def cost(width: int) -> int:
        pieces = int((-(-(at[width + 1 :] - width) // PIECE) * count[width + 1 :]).sum())
        return width * len(lengths) + (PIECE + _COST_OF_A_PIECE) * pieces

    return min(range(low, high + 1), key=cost)


class HYB(SparseMatrix):
    """Rows of very different length; from `values` and `columns` `(nnz,)` row by row, and the starts `(n + 1,)`.

    That is what `CSR` takes, batches too; the entries are laid out anew: as many of each row as most rows have side by
    side, the rest in pieces of 8. Any skew of the row lengths costs about 1.3 stored values per entry. Padding as in
    `ELL`.

    Raises:
        ValueError: lengths, shape, starts or columns do not fit.
        TypeError: columns or starts are no integers.

    Examples:
        >>> import numpy as np
        >>> from krylix.sparse import HYB
        >>> HYB(np.array([1.0, 2.0, 3.0]), columns=[0, 0, 1], starts=[0, 1, 3], shape=(2, 2)).toarray()
        array([[1., 0.],
               [2., 3.]])
    """

    structure_class = HybStructure

    def __init__(self, values: Any, columns: Any, starts: Any, shape: Any) -> None:
        bk, values, rows, cols = read_lines(values, columns, starts, shape, "columns")
        self._set_entries(bk, rows, cols, values, check_shape(shape))
