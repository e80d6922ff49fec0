"""Rows of a sparse matrix by parts: entries in own columns as HYB, those in ghost values apart.

Rows without ghost values so depend on no message, and a compiler may overlap these with their product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..formats.ell import PIECE, best_width, pack
from ..formats.entries.integers import places_in_rows, starts_from
from .exchange import Exchange, exchange_of

_GHOSTS = 4  # entries of a piece in ghost values: few rows have more


class RowPieces(NamedTuple):
    """Segments of rows, `(parts, k, c)`, padded to equal length and number.

    Attributes:
        cols: int32, columns; of padding any in range.
        rows: `(parts, c)` int32, rising.
        sources: number of each entry, -1 for padding.
    """

    cols: np.ndarray
    rows: np.ndarray
    sources: np.ndarray


@dataclass(frozen=True, eq=False)
class LocalRows:
    """Layout of the rows of each part.

    Attributes:
        labels: `(n,)` part of each unknown.
        size: unknowns of a part, padded.
        places: `(n,)` place of each unknown in the concatenation of the padded parts.
        own: `(parts, w, size)` columns and sources of the ELL part, in own unknowns.
        rest: what is longer, in own unknowns.
        away: entries in ghost values.
        exchange: of ghost values.
        diagonal: `(parts, size)` number of the entry on the diagonal, -1 for none.
        ghosts: number of ghost values of each part.
        ghost_places: `(parts, received)` place of each received value among the padded parts, -1 for padding.
    """

    labels: np.ndarray
    size: int
    places: np.ndarray
    own: RowPieces
    rest: RowPieces
    away: RowPieces
    exchange: Exchange
    diagonal: np.ndarray
    ghosts: np.ndarray
    ghost_places: np.ndarray

    @property
    def parts(self) -> int:
        """Number of parts."""
        return self.exchange.parts

    @property
    def unknowns(self) -> np.ndarray:
        """`(parts, size)`: the unknown at each place, -1 for padding."""
        found = np.full(self.parts * self.size, -1, np.int64)
        found[self.places] = np.arange(len(self.places))
        return found.reshape(self.parts, self.size)

    def coordinates(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows and columns, in the order of all parts, of the stored values that are no padding, and their slots.

        Slots count the values of `own`, `rest` and `away`, one after the other.
        """
        p = np.arange(self.parts)[:, None, None] * self.size
        unknown = self.ghost_places
        pieces = [(self.own, p + self.own.cols), (self.rest, p + self.rest.cols)]
        part = np.arange(self.parts)[:, None, None]
        pieces.append((self.away, unknown[part, self.away.cols] if self.exchange.count else self.away.cols))
        rows = [np.broadcast_to(p + piece.rows[:, None, :], piece.sources.shape).reshape(-1) for piece, _ in pieces]
        cols = [found.reshape(-1) for _, found in pieces]
        filled = np.flatnonzero(np.concatenate([piece.sources.reshape(-1) for piece, _ in pieces]) >= 0)
        return np.concatenate(rows)[filled], np.concatenate(cols)[filled], filled


def local_rows(rows: np.ndarray, cols: np.ndarray, labels: np.ndarray, parts: int) -> LocalRows:
    """Lay out the entries of a square matrix, in row order, by the parts of their rows.

    Rows of padding get the diagonal entry of some row: so A is as regular and as definite as it was.

    Cost: a sort of the entries of each part.
    """
    counts = np.bincount(labels, minlength=parts)
    size = max(int(counts.max(initial=0)), 1)
    order = np.argsort(labels, kind="stable")
    places = np.empty(len(labels), np.int64)
    places[order] = labels[order] * size + np.arange(len(order)) - np.repeat(np.cumsum(counts) - counts, counts)
    at_row, at_col = places[rows], places[cols]
    by_part = np.argsort(at_row, kind="stable")
    at_row, at_col, number = at_row[by_part], at_col[by_part], by_part.astype(np.int32)
    part = at_row // size
    inside = part == at_col // size
    needs = [np.unique(at_col[(part == p) & ~inside]) for p in range(parts)]
    exchange, where = exchange_of(needs, size)
    ghost_places, column = np.full((parts, exchange.count), -1, np.int64), (at_col % size).astype(np.int32)
    for p, (need, place) in enumerate(zip(needs, where, strict=True)):
        ghost_places[p, place] = need
        away = (part == p) & ~inside
        column[away] = place[np.searchsorted(need, at_col[away])]
    diagonal = np.full((parts, size), -1, np.int32)
    on = at_row == at_col
    diagonal.reshape(-1)[at_row[on]] = number[on]

    starts = starts_from(np.bincount(at_row[inside], minlength=parts * size))
    lengths, own_row, own_column, own_number = np.diff(starts), at_row[inside], column[inside], number[inside]
    width = max(best_width(lengths), 1)
    packed, source = pack(own_column, starts[:-1], np.minimum(lengths, width), width, parts * size)
    own = RowPieces(
        (packed % size).reshape(width, parts, size).swapaxes(0, 1).astype(np.int32),  # of empty rows: their own number
        np.tile(np.arange(size, dtype=np.int32), (parts, 1)),
        _numbered(own_number, source).reshape(width, parts, size).swapaxes(0, 1).copy(),
    )
    padding = np.arange(size) >= counts[:, None]
    own.sources[:, 0][padding] = diagonal[padding] = diagonal.max(initial=-1)
    own.cols[:, 0][padding] = own.rows[padding]
    later = places_in_rows(starts) >= width
    return LocalRows(
        labels, size, places, own,
        _in_pieces(own_row[later], own_column[later], own_number[later], PIECE, parts, size),
        _in_pieces(at_row[~inside], column[~inside], number[~inside], _GHOSTS, parts, size),
        exchange, diagonal, np.array([len(need) for need in needs]), ghost_places,
    )  # fmt: skip


def _in_pieces(
    rows: np.ndarray, cols: np.ndarray, numbers: np.ndarray, length: int, parts: int, size: int
) -> RowPieces:
    """Entries in the order of rows, `size` rows to each part, as pieces of `length` entries, as many in each part."""
    starts = starts_from(np.bincount(rows, minlength=parts * size))
    first = np.flatnonzero(places_in_rows(starts) % length == 0).astype(np.int32)
    part, row = np.divmod(rows[first], size)
    packed, source = pack(cols, first, np.minimum(starts[rows[first] + 1] - first, length), length, max(len(rows), 1))
    counts = np.bincount(part, minlength=parts)
    place, count = places_in_rows(starts_from(counts)), int(counts.max())
    found = RowPieces(
        np.zeros((parts, length, count), np.int32),
        np.full((parts, count), size - 1, np.int32),
        np.full((parts, length, count), -1, np.int32),
    )
    found.cols[part, :, place] = packed.T
    found.rows[part, place] = row
    found.sources[part, :, place] = _numbered(numbers, source).T
    return found


def _numbered(numbers: np.ndarray, source: np.ndarray) -> np.ndarray:
    return np.where(source < 0, -1, np.append(numbers, np.int32(-1))[np.maximum(source, 0)]).astype(np.int32)
