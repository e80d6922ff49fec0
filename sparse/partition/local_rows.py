"""Rows of a sparse matrix by parts: entries in own columns as HYB, those in ghost values apart.

Rows without ghost values so depend on no message, and a compiler may overlap these with their product.
"""

from __future__ import annotations

import itertools
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
    part, column_part = at_row // size, at_col // size
    inside = part == column_part
    needs = [np.unique(at_col[(part == p) & ~inside]) for p in range(parts)]
    exchange, where = exchange_of(needs, size)
    split = _by_part(part[inside], at_row[inside] % size, at_col[inside] % size, number[inside], parts)
    lengths = [np.bincount(rows, minlength=size) for rows, _, _ in split]
    width = max(best_width(np.concatenate(lengths)), 1)
    own = [_first(*entries, size, width) for entries in split]
    rest = [_longer(*entries, size, width) for entries in split]
    out = []
    for p, (r, c, k) in enumerate(
        _by_part(part[~inside], at_row[~inside] % size, at_col[~inside], number[~inside], parts)
    ):
        out.append((r, where[p][np.searchsorted(needs[p], c)], k))
    diagonal = np.full(parts * size, -1, np.int32)
    on = at_row == at_col
    diagonal[at_row[on]] = number[on]
    main = diagonal.reshape(parts, size)
    _fill_padding(own, main, counts)
    return LocalRows(
        labels, size, places, _stacked(own, size), _in_pieces(rest, size, PIECE, size),
        _in_pieces(out, size, _GHOSTS, exchange.count), exchange, main,
        np.array([len(need) for need in needs]), _ghost_places(needs, where, exchange),
    )  # fmt: skip


Entries = tuple[np.ndarray, np.ndarray, np.ndarray]  # rows, columns and numbers, in row order


def _fill_padding(own: list[RowPieces], diagonal: np.ndarray, counts: np.ndarray) -> None:
    """Give rows of padding the diagonal entry of some row: so A is as regular and as definite as it was."""
    some = int(diagonal.max(initial=-1))
    for p, (piece, count) in enumerate(zip(own, counts.tolist(), strict=True)):
        if len(piece.sources):
            piece.sources[0, count:] = diagonal[p, count:] = some
            piece.cols[0, count:] = np.arange(count, diagonal.shape[1])


def _ghost_places(needs: list[np.ndarray], where: list[np.ndarray], exchange: Exchange) -> np.ndarray:
    found = np.full((len(needs), exchange.count), -1, np.int64)
    for p, (need, place) in enumerate(zip(needs, where, strict=True)):
        found[p, place] = need
    return found


def _by_part(part: np.ndarray, rows: np.ndarray, cols: np.ndarray, numbers: np.ndarray, parts: int) -> list[Entries]:
    ends = np.searchsorted(part, np.arange(parts + 1))
    return [(rows[lo:hi], cols[lo:hi], numbers[lo:hi]) for lo, hi in itertools.pairwise(ends)]


def _ranks(rows: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Place of each entry in its row, and the first entry of each row."""
    starts = starts_from(np.bincount(rows, minlength=size))
    return places_in_rows(starts), starts


def _first(rows: np.ndarray, cols: np.ndarray, numbers: np.ndarray, size: int, width: int) -> RowPieces:
    starts = starts_from(np.bincount(rows, minlength=size))
    packed, source = pack(cols.astype(np.int32), starts[:-1], np.minimum(np.diff(starts), width), width, size)
    return RowPieces(packed, np.arange(size, dtype=np.int32), _numbered(numbers, source))


def _longer(rows: np.ndarray, cols: np.ndarray, numbers: np.ndarray, size: int, width: int) -> Entries:
    later = _ranks(rows, size)[0] >= width
    return rows[later], cols[later], numbers[later]


def _in_pieces(split: list[Entries], size: int, length: int, columns: int) -> RowPieces:
    """Rows as pieces of `length` entries, as many in each part."""
    found = []
    for rows, cols, numbers in split:
        rank, starts = _ranks(rows, size)
        first = np.flatnonzero(rank % length == 0)
        at = rows[first]
        lengths = np.minimum(starts[at + 1] - first, length)
        packed, source = pack(cols.astype(np.int32), first.astype(np.int32), lengths, length, max(columns, 1))
        found.append((packed, at, _numbered(numbers, source)))
    count = max((len(at) for _, at, _ in found), default=0)

    def padded(array: np.ndarray, value: int) -> np.ndarray:
        return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, count - array.shape[-1])], constant_values=value)

    return RowPieces(
        np.stack([padded(packed, 0) for packed, _, _ in found]),
        np.stack([padded(at.astype(np.int32), size - 1) for _, at, _ in found]),
        np.stack([padded(source, -1) for _, _, source in found]),
    )


def _numbered(numbers: np.ndarray, source: np.ndarray) -> np.ndarray:
    if not len(numbers):
        return np.full(source.shape, -1, np.int32)
    return np.where(source < 0, -1, numbers[np.maximum(source, 0)]).astype(np.int32)


def _stacked(own: list[RowPieces], size: int) -> RowPieces:
    return RowPieces(*(np.stack(arrays) for arrays in zip(*own, strict=True)))
