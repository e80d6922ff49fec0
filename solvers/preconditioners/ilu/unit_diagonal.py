"""Input of an incomplete factorisation: a matrix scaled to a unit diagonal, on a symmetric pattern.

`Pattern` is the symbolic part: static integers of NumPy, also where the values are traced.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from ....backends import Array, Backend
from ....sparse import Matrix, SparseMatrix, UnsupportedOperation
from ....sparse.analysis.symmetry import REFUSED
from ....sparse.formats import from_entries
from ....sparse.formats.entries.integers import rows_first, starts_of
from ....sparse.formats.entries.values import take_or_zero
from ....sparse.operators.concrete import nonzero_entries
from ...triangular.inverse import find_levels
from ..pipeline import Target

_MOST_PAIRS = 30_000_000  # full rows then take up to half a minute and 3 GB
_MOST_OFFSETS = 64  # diagonals of a stencil whose pairwise sums are compared
_SHIFT = 1 << 40  # larger than any number of entries
_ROUNDING = 100  # rounding units by which a Hermitian matrix may differ from its adjoint, as in `analysis.symmetry`


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
    """A symmetric pattern of entries in row order, with the whole diagonal.

    Attributes:
        rows, cols: int32 `(nnz,)`.
        mirror: index of the entry (j, i) for each entry (i, j).
        n: number of rows.
        lower, diagonal, upper: indices of the entries of each part.
        starts: first entry of each row, and the number of entries.
    """

    def __init__(self, rows: np.ndarray, cols: np.ndarray, mirror: np.ndarray, n: int) -> None:
        self.rows, self.cols, self.mirror, self.n = rows, cols, mirror, n
        self.lower, self.diagonal = np.flatnonzero(rows > cols), np.flatnonzero(rows == cols)
        self.upper = np.flatnonzero(rows < cols)
        self.starts = starts_of(rows, n)

    @classmethod
    def of(cls, rows: np.ndarray, cols: np.ndarray, n: int) -> tuple[Pattern, np.ndarray | None]:
        """Smallest symmetric pattern that contains these entries (in row order), and the source of each of its entries.

        Sources are indices of given entries, -1 for none; None if the pattern is unchanged.
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
        """int32 `(n,)`: level of each row in solves with the lower triangle."""
        rows, cols = self.rows[self.lower], self.cols[self.lower]
        return find_levels(starts_of(rows, self.n), cols, self.n)

    @cached_property
    def is_triangle_free(self) -> bool:
        """Do the offsets show that the graph has no triangles, as on grids? Then only pivots change."""
        offsets = (self.rows - self.cols)[self.lower]
        offsets = np.flatnonzero(np.bincount(offsets, minlength=1)) if len(offsets) else offsets
        return len(offsets) <= _MOST_OFFSETS and not np.isin(offsets[:, None] + offsets, offsets).any()

    @cached_property
    def pairs(self) -> Pairs:
        """All products of the factorisation. Cost: a few passes over them."""
        first = self.lower
        pivot = self.cols[first]
        if self.is_triangle_free:  # only f_ik f_ki
            return Pairs(first, self.mirror[first], self.diagonal[self.rows[first]], pivot)
        after = self.diagonal[pivot] + 1  # the entries of the pivot's row behind its diagonal
        count = self.starts[pivot + 1] - after
        ends = np.cumsum(count, dtype=np.int64)
        if len(ends) and ends[-1] > _MOST_PAIRS:
            raise UnsupportedOperation(
                f"A factorisation in the pattern of this matrix needs {ends[-1]:.2g} products, of {len(self.rows)} "
                f"entries; expected up to {_MOST_PAIRS:.0g}. Its rows are too full: use method 'scipy-direct', or drop "
                "small entries with drop_tolerance=1e-3."
            )
        second = np.arange(ends[-1] if len(ends) else 0) + np.repeat(after - ends + count, count)
        first, pivot = np.repeat(first, count), np.repeat(pivot, count)
        keys = self.rows * np.int64(self.n) + self.cols
        wanted = self.rows[first] * np.int64(self.n) + self.cols[second]
        target = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        kept = np.flatnonzero(keys[target] == wanted)
        order = kept[rows_first(target[kept].astype(np.int32), len(keys))]
        return Pairs(first[order], second[order], target[order], pivot[order])


@dataclass(frozen=True)
class UnitDiagonalMatrix:
    """`A = U V` with a diagonal matrix U and a matrix V with a unit diagonal.

    Attributes:
        target: where the factors are applied.
        host: the library that computes: NumPy where the values are known now.
        pattern: positions of the entries.
        values: V, `(nnz,)` or `(systems, nnz)`: 1 on the diagonal, but 0 if that of A is 0 in a row with other entries.
        units: U, `(n,)` or `(systems, n)`: the diagonal of A; where it is 0 the sum of |a_ij| in the row, or 1.
        hermitian: is A Hermitian? None: not known.
        symmetric: bool `(systems,)`: is each system Hermitian up to rounding? None: values are not known.
    """

    target: Target
    host: Backend
    pattern: Pattern
    values: Array
    units: Array
    hermitian: bool | None
    symmetric: np.ndarray | None = None

    @classmethod
    def of(cls, own: Matrix, target: Target, lower_only: bool = False) -> UnitDiagonalMatrix:
        """Scale a square matrix; with `lower_only` a Hermitian one, of which the lower triangle is read."""
        host, rows, cols, values = nonzero_entries(own)
        values = values if own.systems is not None else values[0]
        pattern, source = Pattern.of(rows, cols, own.shape[0])
        if source is not None:
            values = take_or_zero(host, values, source)
        last = len(values.shape) - 1
        hermitian, symmetric = None, None
        if isinstance(values, np.ndarray):
            check_finite_rows(values, pattern.rows)
            symmetric, far = _symmetry(values, pattern)
            hermitian = True if symmetric.all() else False if far.any() else None
        if lower_only and hermitian is not False:
            hermitian = True
            symmetric = None if symmetric is None else np.ones_like(symmetric)
            mirrored = host.conj(host.take_in_bounds(values, pattern.mirror, last))
            lower = host.asarray(pattern.rows > pattern.cols, like=values)
            values = host.where(lower, values, mirrored)
        diagonal = host.take_in_bounds(values, pattern.diagonal, last)
        if hermitian:
            diagonal = host.astype(host.real(diagonal), host.dtype(values))
        sums = host.sum_entries(host.abs(values), pattern.rows, pattern.n, sorted=True)
        empty = host.astype(sums == 0, host.dtype(values))
        sums = host.astype(sums, host.dtype(values)) + empty
        units = host.where(diagonal == 0, sums, diagonal)
        on_diagonal = host.asarray((pattern.rows == pattern.cols).astype(host.dtype(values)), like=values)
        values = values / host.take_in_bounds(units, pattern.rows, last) + on_diagonal * host.take_in_bounds(
            empty, pattern.rows, last
        )
        return cls(target, host, pattern, values, units, hermitian, symmetric)

    @property
    def known(self) -> bool:
        return isinstance(self.values, np.ndarray)

    @property
    def last(self) -> int:
        """Axis of the entries."""
        return len(self.values.shape) - 1

    @property
    def systems(self) -> int:
        return 1 if self.last == 0 else int(self.values.shape[0])

    def take(self, numbers: Array, indices: np.ndarray) -> Array:
        """Numbers of these entries or rows, from `(k,)` or `(systems, k)`."""
        return self.host.take_in_bounds(numbers, indices, self.last)

    def diagonal(self, values: Array | None = None) -> Array:
        return self.take(self.values if values is None else values, self.pattern.diagonal)

    def part(self, bk: Backend, entries: np.ndarray | slice, values: Array) -> SparseMatrix:
        pattern = self.pattern
        return from_entries(
            bk, pattern.rows[entries], pattern.cols[entries], values, (pattern.n, pattern.n), prune=False,
            like=self.target.like if bk is self.target.bk else None, sum_duplicates=False,
        )  # fmt: skip

    def capped(self, levels: int) -> UnitDiagonalMatrix:
        """Drop entries between bands of `levels` levels of rows, which bounds the depth of triangular solves."""
        pattern = self.pattern
        band = pattern.levels // levels
        kept = np.flatnonzero(band[pattern.rows] == band[pattern.cols])
        number = np.full(len(pattern.rows), -1, np.int32)
        number[kept] = np.arange(len(kept), dtype=np.int32)
        within = Pattern(pattern.rows[kept], pattern.cols[kept], number[pattern.mirror[kept]], pattern.n)
        return replace(self, pattern=within, values=self.take(self.values, kept.astype(np.int32)))

    def shifted(self, shift: float) -> UnitDiagonalMatrix:
        if not shift:
            return self
        on = self.host.asarray((self.pattern.rows == self.pattern.cols) * shift, self.host.dtype(self.values))
        return replace(self, values=self.values + on)


def check_finite_rows(values: np.ndarray, rows: np.ndarray) -> None:
    """Refuse NaN and infinity among known values, `(nnz,)` or `(systems, nnz)`."""
    if not np.isfinite(values).all():
        row = int(rows[np.argwhere(~np.isfinite(values))[0, -1]])
        raise ValueError(f"Row {row} of A has an entry that is not finite; this kind needs finite ones.")


def _symmetry(values: np.ndarray, pattern: Pattern) -> tuple[np.ndarray, np.ndarray]:
    """bool `(systems,)` each: is it Hermitian entry by entry up to rounding; is it so asymmetric that CG refuses it?"""
    both = np.atleast_2d(values)
    with np.errstate(all="ignore"):
        difference = np.abs(both - both[:, pattern.mirror].conj())
        if not difference.any():
            return np.ones(len(both), bool), np.zeros(len(both), bool)
        size = np.abs(both)
        scale = size.max(axis=1, keepdims=True)
        far = np.linalg.norm(difference / scale, axis=1) > REFUSED * np.linalg.norm(size / scale, axis=1)
        if far.all():
            return ~far, far
        largest = np.maximum.reduceat(size, pattern.starts[:-1], axis=1)
        limit = np.minimum(largest[:, pattern.rows], largest[:, pattern.cols])
        return (difference <= _ROUNDING * np.finfo(values.dtype).eps * limit).all(axis=1), far
