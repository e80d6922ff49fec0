"""ELL and HYB: rows padded to equal length in `(k, n)` arrays; HYB has short segments for the rest of long rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from ...backends import Array, get_backend
from ...backends.interface.kernels import Arrays, Bilinear
from .entries.checked import as_values, known_array, read_lines
from .entries.integers import (
    check_shape,
    check_size,
    lengths_text,
    places_in_rows,
    repeat_rows,
    rows_first,
    starts_from,
    starts_of,
)
from .entries.values import ell_sample
from .sparse_matrix import SparseMatrix
from .structure import Slots, Sources, Structure, ValueOrder


@dataclass(frozen=True)
class EllForm(Bilinear):
    """Products of rows of equal length; indices: columns `(k, n)`, and the row lengths if there is padding."""

    n: int
    m: int

    def product(self, bk: Any, values: Arrays, indices: Arrays, x: Array) -> Array:
        return bk.ell_product(values[0], indices[0], x)

    def product_transposed(self, bk: Any, values: Arrays, indices: Arrays, y: Array) -> Array:
        return scatter(bk, values[0], indices[0], y, self.m)

    def sample(self, bk: Any, indices: Arrays, y: Array, x: Array, each: bool = False) -> Arrays:
        found = ell_sample(bk, indices[0], y, x, each)
        return (without_padding(bk, found, indices[1]) if len(indices) > 1 else found,)


def without_padding(bk: Any, found: Array, lengths: Array) -> Array:
    """`(..., k, n)` with 0 from place `lengths[i]` on in each row i."""
    places = bk.asarray(np.arange(int(found.shape[-2]), dtype=np.int32)[:, None], like=lengths)
    return bk.where(places < bk.astype(lengths, np.dtype(np.int32)), found, 0)


def scatter(bk: Any, values: Array, cols: Array, y: Array, m: int) -> Array:
    """The transposed product of values `(k, n)` or `(batch, k, n)` and columns with `(batch, n)`: `(batch, m)`."""
    count = int(cols.shape[0]) * int(cols.shape[1])
    flat = bk.reshape(cols, (count,))
    if y.shape[0] == 1 or len(values.shape) == 3:
        return bk.sum_entries(bk.reshape(values * y[:, None], (int(y.shape[0]), count)), flat, m)
    parts = values[:, :, None] * bk.permute_dims(y, (1, 0))
    return bk.permute_dims(bk.segment_sum(bk.reshape(parts, (count, y.shape[0])), flat, m), (1, 0))


class EllStructure(Structure):
    """`cols` `(k, n)` and `lengths` `(n,)`: row i has entries in the places below lengths[i], padding above."""

    format: ClassVar[str] = "ell"

    def __init__(self, cols: np.ndarray, lengths: np.ndarray, shape: tuple[int, int]) -> None:
        super().__init__(shape)
        self.cols, self.lengths = cols, lengths

    @property
    def form(self) -> EllForm:
        return EllForm(*self.shape)

    @property
    def value_shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.cols.shape,)

    @cached_property
    def nnz(self) -> int:
        return int(self.lengths.sum(dtype=np.int64))

    @property
    def indices(self) -> tuple[np.ndarray, ...]:
        return (self.cols,)

    @property
    def masks(self) -> tuple[np.ndarray, ...]:
        return () if self.nnz == self.cols.size else (self.lengths,)

    def padding(self) -> tuple[np.ndarray | None, ...]:
        return (filled(self.cols, self.lengths),) if self.masks else (None,)

    def _find_entries(self) -> Slots:
        return Slots(*packed_entries(self.cols, self.lengths))

    def _static(self) -> tuple[Any, ...]:
        return self.cols, self.lengths

    @classmethod
    def from_entries(cls, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> tuple[EllStructure, Sources]:
        starts = starts_of(rows, shape[0])
        lengths = np.diff(starts)
        width = int(lengths.max()) if len(lengths) else 0
        packed, source = pack(cols, starts[:-1], lengths, width, shape[1])
        return cls(packed, lengths, shape), (source,)

    def summary(self) -> str:
        return lengths_text(self.lengths)


def pack(
    cols: np.ndarray, starts: np.ndarray, lengths: np.ndarray, width: int, m: int
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """Padded columns and entry numbers `(width, n)` of the segments `[starts[i], starts[i] + lengths[i])`.

    Padding has the number -1 and a column of its row, so that a product takes in nothing that its row does not hold;
    a row without entries has the column of its number.
    """
    n = len(lengths)
    check_size(width * n, "stored values, as rows of equal length. Choose another format:")
    place = np.arange(width, dtype=np.int32)[:, None]
    last = np.maximum(lengths - 1, 0)
    entry = starts + np.minimum(place, last)
    if not len(cols):
        return np.zeros((width, n), np.int32), np.full((width, n), -1, np.int32)
    nearby = np.minimum(np.arange(n, dtype=np.int32), np.int32(m - 1))
    chosen = cols[np.minimum(entry, len(cols) - 1)]
    return (
        np.where(lengths > 0, chosen, nearby),
        np.where(place < lengths, entry, np.int32(-1)).astype(np.int32, copy=False),
    )


def filled(cols: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """`(k, n)` bool: which places are no padding."""
    return np.arange(cols.shape[0], dtype=np.int32)[:, None] < lengths


def packed_entries(cols: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows, columns and slots of `(k, n)` places, row by row."""
    n = cols.shape[1]
    starts = starts_from(lengths)
    rows = repeat_rows(starts)
    slots = places_in_rows(starts) * np.int32(n) + rows
    return rows, cols.reshape(-1)[slots], slots


class ELL(SparseMatrix):
    """Rows of equal length: `values` and `columns` `(k, n)`; the column -1 says that there is no entry.

    Values `(systems, k, n)` make a batch of matrices.

    The backend is that of the values. Entries in any order and duplicates, which add up, are put in order. Padding
    holds 0 and a column of its row: where a vector is infinite there, the image is NaN, as it is in a row without
    entries where the vector is infinite or NaN at its number.

    Raises:
        ValueError: shapes or columns do not fit.
        TypeError: the columns are no integers.

    Examples:
        >>> import numpy as np
        >>> from krylix.sparse import ELL
        >>> ELL(np.array([[1.0, 2.0], [0.0, 3.0]]), columns=np.array([[0, 0], [-1, 1]]), shape=(2, 2)).toarray()
        array([[1., 0.],
               [2., 3.]])
    """

    structure_class = EllStructure

    def __init__(self, values: Any, columns: Any, shape: Any) -> None:
        n, m = check_shape(shape)
        bk, values = as_values(values, 2)
        cols = known_array(columns, "The columns")
        if tuple(values.shape[-2:]) != cols.shape or cols.shape[1] != n:
            got = f"{tuple(values.shape)} and {cols.shape}"
            raise ValueError(f"Values and columns of the shapes {got} were given; expected (k, {n}) for {n} rows.")
        if cols.dtype.kind not in "iu" and cols.size:
            raise TypeError(f"The columns have the dtype {cols.dtype}; expected integers.")
        if cols.size and (cols.min() < -1 or cols.max() >= m):
            bad = cols.min() if cols.min() < -1 else cols.max()
            raise ValueError(f"The columns contain {bad}; expected 0 to {m - 1}, or -1 for no entry.")
        places = np.flatnonzero(cols.ravel() >= 0)
        host = get_backend("numpy") if isinstance(values, np.ndarray) else bk
        flat = host.reshape(values, (*values.shape[:-2], cols.size))
        rows = (places % max(n, 1)).astype(np.int32)
        chosen = host.take_in_bounds(flat, places.astype(np.int32), len(flat.shape) - 1)
        self._set_entries(bk, rows, cols.ravel()[places].astype(np.int32), chosen, (n, m))
        every = np.tile(np.arange(n, dtype=np.int32), cols.shape[0])
        self.value_order = ValueOrder.of(self.structure, every, cols.ravel(), cols.shape)


# --- HYB ---

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
