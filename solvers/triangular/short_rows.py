"""Splitting of long rows and columns of triangular systems, so that padding takes about as much memory as entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...backends import Array, Backend
from ...sparse.formats.entries.integers import places_in_rows, starts_of
from ...sparse.formats.entries.order import sorted_entries
from ...sparse.formats.entries.regather import Regather, concatenated_values

_SHORT = 8  # entries of a row that is never cut
_TIMES_MEAN = 4  # longer than the mean row, with its diagonal: is cut


class Pieces(NamedTuple):
    """Entries of S in an extended system with more unknowns, without long rows and columns.

    Attributes:
        rows, cols: int32, below `size`; those below n are rows and columns of S.
        slots: of the values of S; -1 where the entry is -1.
        size: how many unknowns there are.
    """

    rows: np.ndarray
    cols: np.ndarray
    slots: np.ndarray
    size: int


def in_pieces(rows: np.ndarray, cols: np.ndarray, slots: np.ndarray, n: int) -> Pieces:
    """I + S, S strictly triangular, with partial sums of long rows and copies of unknowns with long columns.

    With right-hand sides of zero for the new unknowns, the old ones are as before, and those of the transpose, too.
    No row and no column has more than 8 entries, or 4 times the mean of I + S.
    """
    limit = max(_SHORT, _TIMES_MEAN * (len(rows) + n) // max(n, 1))
    found = _cut_rows(Pieces(rows, cols, slots, n), limit)
    across = _cut_rows(Pieces(found.cols, found.rows, found.slots, found.size), limit)
    return Pieces(across.cols, across.rows, across.slots, across.size)


def _cut_rows(S: Pieces, limit: int) -> Pieces:
    """Replace a long row by partial sums with `limit` entries each, recursively."""
    rows, cols, slots, size = S
    while True:
        lengths = np.bincount(rows, minlength=size)
        is_long = lengths > limit
        if not is_long.any():
            return Pieces(rows, cols, slots, size)
        sums = np.where(is_long, -(-lengths // limit), 0)
        first = size + np.cumsum(sums) - sums  # number of the first sum of each row
        order = sorted_entries(rows, cols, (size, size), sum_duplicates=False).order
        if order is not None:
            rows, cols, slots = rows[order], cols[order], slots[order]
        place = places_in_rows(starts_of(rows, size))
        moved = np.where(is_long[rows], first[rows] + place // limit, rows).astype(np.int32)
        total = int(sums.sum())
        made, owners = np.arange(size, size + total, dtype=np.int32), np.repeat(np.arange(size, dtype=np.int32), sums)
        rows, cols = np.append(moved, owners), np.append(cols, made)
        slots, size = np.append(slots, np.full(total, -1, np.int32)), size + total


@dataclass(frozen=True)
class WithOnes:
    """Append a -1 to the values of S."""

    regather: Regather

    def __call__(self, bk: Backend, values: Sequence[Array], systems: int | None = None) -> tuple[Array, ...]:
        flat = concatenated_values(bk, values, systems)
        last = len(flat.shape) - 1
        one = bk.full((*flat.shape[:last], 1), -1, bk.dtype(flat), flat)
        return self.regather(bk, (bk.concat([flat, one], last),), systems)
