"""Symbolic incomplete factorisation: its pattern, and the index pairs of its products; static NumPy integers."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ....sparse import UnsupportedOperation
from ....sparse.formats.entries.integers import starts_of
from ....sparse.formats.entries.order import rows_first
from ...triangular.schedule import find_levels

_MOST_PAIRS = 30_000_000  # which take up to half a minute and 3 GB where all of them are kept, as in full rows
_MOST_OFFSETS = 64
_SHIFT = 1 << 40  # more than there can be entries


class Pairs(NamedTuple):
    """Products f_ik f_kj / d_k, k < min(i, j), where (i, j) is an entry: int32 arrays, sorted by `target`.

    Attributes:
        first, second, target: indices of the entries (i, k), (k, j) and (i, j).
        pivot: k.
    """

    first: np.ndarray
    second: np.ndarray
    target: np.ndarray
    pivot: np.ndarray


class Pattern:
    """A symmetric pattern of entries in row order, with all of the diagonal.

    Attributes:
        rows, cols: int32 `(nnz,)`.
        mirror: index of the entry (j, i) for each entry (i, j).
        n: rows.
    """

    def __init__(self, rows: np.ndarray, cols: np.ndarray, mirror: np.ndarray, n: int) -> None:
        self.rows, self.cols, self.mirror, self.n = rows, cols, mirror, n
        self.lower, self.diagonal = np.flatnonzero(rows > cols), np.flatnonzero(rows == cols)
        self.upper = np.flatnonzero(rows < cols)
        self.starts = starts_of(rows, n)

    @classmethod
    def of(cls, rows: np.ndarray, cols: np.ndarray, n: int) -> tuple[Pattern, np.ndarray | None]:
        """The smallest symmetric pattern of these entries (in row order), and the source of each.

        Sources are indices of given entries, -1 for none; None where the pattern is unchanged.
        """
        starts = starts_of(rows, n)
        given = sp.csr_array((np.arange(1, len(rows) + 1), cols, starts), (n, n))
        other = given.T.tocsr()
        same = np.array_equal(other.indices, cols) and np.array_equal(other.indptr, starts)
        if same and np.count_nonzero(rows == cols) == n:
            return cls(rows, cols, (other.data - 1).astype(np.int32), n), None
        other.data[:] = _SHIFT
        whole = sp.csr_array(given + other + _SHIFT * sp.eye_array(n, dtype=np.int64, format="csr"))
        whole.sort_indices()
        source = whole.data % _SHIFT - 1
        whole.data = np.arange(whole.nnz)
        rows = np.repeat(np.arange(n, dtype=np.int32), np.diff(whole.indptr))
        return cls(rows, whole.indices, whole.T.tocsr().data.astype(np.int32), n), source.astype(np.int32)

    @cached_property
    def levels(self) -> np.ndarray:
        """int32 `(n,)`: level of each row in the schedule of the lower triangle."""
        rows, cols = self.rows[self.lower], self.cols[self.lower]
        return find_levels(starts_of(rows, self.n), cols, self.n)

    @cached_property
    def is_triangle_free(self) -> bool:
        """Is the graph free of triangles, as on grids? Then only pivots change. Decided by offsets."""
        offsets = (self.rows - self.cols)[self.lower]
        found = np.flatnonzero(np.bincount(offsets, minlength=1)) if len(offsets) else offsets
        if len(found) > _MOST_OFFSETS:
            return False
        return not np.isin(found[:, None] + found, found).any()

    @cached_property
    def pairs(self) -> Pairs:
        """All products that occur. Cost: a few passes over them.

        Raises:
            UnsupportedOperation: there are too many.
        """
        if self.is_triangle_free:  # only f_ik f_ki
            return Pairs(
                self.lower, self.mirror[self.lower], self.diagonal[self.rows[self.lower]], self.cols[self.lower]
            )
        first = self.lower
        pivot = self.cols[first]
        after = self.diagonal[pivot] + 1  # the entries of the pivot's row behind its diagonal
        count = self.starts[pivot + 1] - after
        ends = np.cumsum(count, dtype=np.int64)
        if len(ends) and ends[-1] > _MOST_PAIRS:
            raise UnsupportedOperation(
                f"A factorisation in the pattern of this matrix takes {ends[-1]:.2g} products, of {len(self.rows)} "
                f"entries; expected up to {_MOST_PAIRS:.0g}. Its rows are too full: use method 'scipy-direct', or drop "
                "small entries by drop_tolerance=1e-3."
            )
        second = np.arange(ends[-1] if len(ends) else 0) + np.repeat(after - ends + count, count)
        first, pivot = np.repeat(first, count), np.repeat(pivot, count)
        keys = self.rows * np.int64(self.n) + self.cols
        wanted = self.rows[first] * np.int64(self.n) + self.cols[second]
        target = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        kept = np.flatnonzero(keys[target] == wanted)
        order = kept[rows_first(target[kept].astype(np.int32), len(keys))]
        return Pairs(first[order], second[order], target[order], pivot[order])

    def capped(self, levels: int) -> tuple[Pattern, np.ndarray]:
        """Entries within bands of so many levels, which bounds the depth of a solve; and their indices."""
        band = self.levels // levels
        kept = np.flatnonzero(band[self.rows] == band[self.cols])
        number = np.full(len(self.rows), -1, np.int32)
        number[kept] = np.arange(len(kept), dtype=np.int32)
        return Pattern(self.rows[kept], self.cols[kept], number[self.mirror[kept]], self.n), kept.astype(np.int32)
