"""Inverses of sparse triangles: by level scheduling in the library's own operations, or on the host by SuperLU.

Rows of one level depend only on earlier levels and are solved at the same time. Long rows and columns are split first,
so that padding takes about as much memory as the entries.

Source: Anderson and Saad, Solving sparse triangular linear systems on parallel computers (1989), level scheduling.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ...sparse import Composed, Operator, SparseMatrix, storable
from ...sparse.formats.ell import EllStructure
from ...sparse.formats.entries.integers import places_in_rows, sorted_entries, starts_of
from ...sparse.formats.entries.values import Regather, concatenated_values
from ...sparse.formats.structure import Layout, Structure
from ..factors.superlu import splu_of_triangle

_STEP = 4096  # overhead of a step of a loop, in rows that could be solved meanwhile (JAX on a CPU: 5-17 us)
_MOST_PLACES = 4  # positions for each row, padding included
_SHORT = 8  # rows of at most so many entries are never cut
_TIMES_MEAN = 4  # rows that are so many times longer than the mean row, with its diagonal, are cut


@storable("triangle by levels")
@dataclass(eq=False, repr=False)
class LevelSolve(Composed):
    """Inverse of D + S, S strictly triangular, by level scheduling: each step solves independent rows.

    Rows are divided by the diagonal D after their products. No intermediate value then overflows unless b or x does,
    for any scaling of rows and columns.

    Stores S as rows of equal length in the order of the steps, and two permutations. Long rows and columns are cut
    (`in_pieces`). Costs one product with S, in as many parts as there are steps.

    Attributes:
        rows: S in the order of the steps, padded with empty rows.
        order: int32 `(steps * width,)`, the row at each position; n for padding and partial sums.
        places: int32 `(n,)`, the position of each row.
        pivots: D in the order of the steps, `(1 or systems, steps * width)`; empty if `is_unit`.
        width: rows of a step, with padding.
        levels: number of levels.
        is_unit: whether D = I.
        backward: whether the last step comes first, as for the transpose.
    """

    parts = ("rows", "order", "places", "pivots")

    rows: SparseMatrix
    order: Array
    places: Array
    pivots: Array
    width: int
    levels: int
    is_unit: bool = True
    backward: bool = False

    @classmethod
    def of(cls, S: SparseMatrix, diagonal: Array | None = None) -> LevelSolve:
        """Inverse of D + S for a diagonal `(n,)` or `(systems, n)`, in NumPy if known; by default D = I.

        Cost: a gather of the values, and once per structure a few calls of NumPy for each level.
        """
        plan = _plan(S.structure)
        rows = S.regathered(plan.structure, plan.layout)
        schedule, pivots = plan.schedule, np.zeros((1, 0), S.dtype)
        if diagonal is not None:
            host = get_backend("numpy") if isinstance(diagonal, np.ndarray) else S.bk
            rows_of = host.reshape(diagonal, (-1, S.shape[0]))
            padding = host.full((int(rows_of.shape[0]), 1), 1, host.dtype(rows_of), rows_of)
            pivots = host.take_in_bounds(host.concat([rows_of, padding], 1), plan.order, 1)
        order, places, pivots = (
            array if S.bk.compiled() or S.bk.is_array(array) else S.placed(array)
            for array in (plan.order, schedule.places[: S.shape[0]], pivots)
        )
        return cls(rows, order, places, pivots, schedule.width, schedule.levels, diagonal is None)

    def _settle(self) -> None:
        super()._settle()
        n = int(self.places.shape[-1])
        self.shape = (n, n)

    @property
    def in_shape(self) -> tuple[int, ...]:
        return (self.shape[1],)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return (self.shape[0],)

    def transpose(self) -> LevelSolve:
        return replace(self, rows=self.rows.transpose(), backward=not self.backward)

    def apply(self, x: Array) -> Array:
        bk = self.bk
        if self.is_unit and not self.rows.structure.nnz:
            return x
        r = bk.take_in_bounds(bk.pad(x, ((0, 0), (0, 1))), self.order, 1)
        at_once = self.levels == 1 or (bk.is_eager and bk.compiled(x))
        solved = self._by_sweeps(r) if at_once else self._by_steps(r)
        return bk.take_in_bounds(solved, self.places, 1)

    def _by_sweeps(self, r: Array) -> Array:
        """Make one more level final in each sweep, for transformations without loops that write to arrays."""
        pivots = 1 if self.is_unit else self._pivots(r)
        y = r / pivots
        for _ in range(self.levels - 1):
            y = (r - self.rows.apply(y)) / pivots
        return y

    def _pivots(self, like: Array) -> Array:
        return self.bk.astype(self.array("pivots"), self.bk.dtype(like))

    def _by_steps(self, r: Array) -> Array:
        bk, width, (batch, size) = self.bk, self.width, (int(k) for k in r.shape)
        steps, (values,), (cols,) = size // width, self.rows.arrays(), self.rows.index_arrays()
        longest = int(cols.shape[0])
        values = bk.astype(bk.reshape(values, (*values.shape[:-1], steps, width)), bk.dtype(r))
        cols, r = bk.reshape(cols, (longest, steps, width)), bk.reshape(r, (batch, steps, width))
        pivots: Any = None if self.is_unit else bk.reshape(self._pivots(r), (-1, steps, width))

        def solve_step(state: tuple[Array, Array]) -> tuple[Array, Array]:
            done, y = state
            now = steps - 1 - done if self.backward else done
            places = bk.reshape(bk.take_in_bounds(cols, now, 1), (longest * width,))
            known = bk.reshape(bk.take_in_bounds(y, places, 1), (batch, longest, width))
            factors = bk.reshape(bk.take_in_bounds(values, now, -2), (-1, longest, width))
            new = bk.reshape(bk.take_in_bounds(r, now, 1), (batch, width)) - bk.sum(factors * known, 1)
            if pivots is not None:
                new = new / bk.reshape(bk.take_in_bounds(pivots, now, 1), (-1, width))
            return done + 1, bk.put_block(y, now * width, new)

        first = bk.asarray(np.zeros(1, np.int32), like=r), bk.zeros((batch, size), bk.dtype(r), r)
        return bk.for_loop(steps, solve_step, first)[1]


class _Plan(NamedTuple):
    """Data of the inverse of I + S that depend only on the structure of S."""

    schedule: Schedule
    order: np.ndarray
    structure: Structure
    layout: Layout


@lru_cache(maxsize=8)
def _plan(structure: Structure) -> _Plan:
    n = structure.shape[0]
    rows, cols, slots, count = in_pieces(*structure.entries(), n)
    by_row = sorted_entries(rows, cols, (count, count), sum_duplicates=False)
    schedule = make_schedule(find_levels(starts_of(by_row.rows, count), by_row.cols, count))
    places, size = schedule.places, len(schedule.order)
    order = sorted_entries(places[rows], places[cols], (size, size), sum_duplicates=False)
    stacked, sources = EllStructure.from_entries(order.rows, order.cols, (size, size))
    slots = slots if order.order is None else slots[order.order]
    unknowns = np.where((schedule.order < 0) | (schedule.order >= n), np.int32(n), schedule.order)
    if count == n:
        return _Plan(schedule, unknowns, stacked, Regather.composed(slots, sources))
    slots = np.where(slots < 0, np.int32(structure.size), slots)
    return _Plan(schedule, unknowns, stacked, WithOnes(Regather.composed(slots, sources)))


# --- levels, and steps of equal width


class Schedule(NamedTuple):
    """Rows grouped by level, in steps of equal width, so that a loop reads and writes whole blocks.

    Attributes:
        levels: number of levels.
        width: rows of a step, with padding.
        order: int32 `(steps * width,)`, the row at each position, -1 for padding.
        places: int32 `(n,)`, the position of each row.
    """

    levels: int
    width: int
    order: np.ndarray
    places: np.ndarray

    @property
    def steps(self) -> int:
        return len(self.order) // self.width


def find_levels(starts: np.ndarray, cols: np.ndarray, n: int) -> np.ndarray:
    """int32 `(n,)`: level of each row, one above the highest level of the rows that it depends on, else 0.

    Args:
        starts, cols: off-diagonal entries of a triangular matrix in CSR format.

    Cost: a few calls of NumPy for each level, and one pass over the entries.
    """
    levels = np.zeros(n, np.int32)
    missing = np.diff(starts).astype(np.int32)  # rows that each row still waits for
    ready = np.flatnonzero(missing == 0)
    by_column = sp.csr_array((np.ones(len(cols), np.int8), cols, starts), (n, n)).tocsc()
    first, dependents = (a.astype(np.intp) for a in (by_column.indptr, by_column.indices))  # the index type of NumPy
    mark, level, one = np.empty(n, np.int32), 0, np.int32(1)  # one dtype, because `at` is ten times slower with two
    while len(ready):
        levels[ready] = level
        level += 1
        count = first[ready + 1] - first[ready]
        ends = np.cumsum(count)
        at = np.arange(ends[-1]) + np.repeat(first[ready] - ends + count, count)
        rows = dependents[at]
        np.subtract.at(missing, rows, one)
        rows = rows[missing[rows] == 0]
        number = np.arange(len(rows), dtype=np.int32)
        mark[rows] = number  # a row that occurs several times is kept once
        ready = rows[mark[rows] == number]
    return levels


def make_schedule(levels: np.ndarray) -> Schedule:
    """Schedule for rows with these levels."""
    n = len(levels)
    sizes = np.bincount(levels, minlength=1)
    width = _best_width(sizes)
    steps = -(-sizes // width)  # of each level
    first = (np.cumsum(steps) - steps) * width
    by_level = np.argsort(levels, kind="stable")
    within = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = np.empty(n, np.int32)
    places[by_level] = np.repeat(first, sizes) + within
    order = np.full(int(steps.sum()) * width, -1, np.int32)
    order[places] = np.arange(n, dtype=np.int32)
    return Schedule(len(sizes), width, order, places)


def _best_width(sizes: np.ndarray) -> int:
    """Width of the steps. Wide steps are few, narrow ones have little padding, at most 3 positions per row.

    There are then at most half as many steps more than levels.
    """
    widest, most = int(sizes.max(initial=1)), _MOST_PLACES * max(int(sizes.sum()), 1)
    widths = {max(widest >> k, 1) for k in range(widest.bit_length() + 1)}
    steps = {width: int((-(-sizes // width)).sum()) for width in widths}
    allowed = [width for width in widths if steps[width] * width <= most]
    return min(allowed, key=lambda width: steps[width] * (_STEP + width))


# --- long rows and columns in pieces


class Pieces(NamedTuple):
    """Entries of S in an extended system with more unknowns, without long rows and columns.

    Attributes:
        rows, cols: int32, below `size`; those below n are rows and columns of S.
        slots: index of each value in S; -1 for an entry of -1.
        size: number of unknowns.
    """

    rows: np.ndarray
    cols: np.ndarray
    slots: np.ndarray
    size: int


def in_pieces(rows: np.ndarray, cols: np.ndarray, slots: np.ndarray, n: int) -> Pieces:
    """Extend I + S, S strictly triangular, by partial sums of long rows and copies of unknowns with long columns.

    With zero right-hand sides for the new unknowns, the old ones are unchanged, also for the transpose. No row and no
    column has more than 8 entries, or 4 times the mean of I + S.
    """
    limit = max(_SHORT, _TIMES_MEAN * (len(rows) + n) // max(n, 1))
    short = _cut_rows(Pieces(rows, cols, slots, n), limit)
    across = _cut_rows(Pieces(short.cols, short.rows, short.slots, short.size), limit)
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


# --- on the host, by SuperLU ---


@storable("triangle on the host")
@dataclass(eq=False, repr=False)
class HostSolve(Composed):
    """Inverse of I + S, S strictly triangular, in NumPy; a `LevelSolve` in other libraries.

    Stores S, and SuperLU's copy of it from the first application on. Costs as much as two to four products with S.
    """

    parts = ("strict",)

    strict: SparseMatrix
    transposed: bool = False

    def _settle(self) -> None:
        super()._settle()
        self._factors: list[Any] = []  # one for each system

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_factors": []}

    def transpose(self) -> HostSolve:
        other = replace(self, transposed=not self.transposed)
        other._factors = self._factors  # shared; filled by the first application of either
        return other

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        moved = self.strict.on_backend(bk, like)
        if moved is None:
            return None
        inverse = LevelSolve.of(moved)
        return inverse.transpose() if self.transposed else inverse

    def apply(self, x: Array) -> Array:
        if not self.strict.structure.nnz:
            return x
        if not self._factors:
            matrices = self.strict.known()
            for S in matrices if isinstance(matrices, tuple) else (matrices,):
                self._factors.append(splu_of_triangle(sp.csc_array(S + sp.eye_array(S.shape[0], dtype=S.dtype))))
        if self.systems is None:
            return self._solved(self._factors[0], x)
        return np.concatenate([self._solved(LU, row[None]) for LU, row in zip(self._factors, x, strict=True)])

    def _solved(self, factors: Any, x: Array) -> Array:
        if x.dtype.kind == "c" and self.dtype.kind != "c":
            return self._solved(factors, x.real) + 1j * self._solved(factors, x.imag)
        columns = np.ascontiguousarray(x.T, self.dtype)
        return np.ascontiguousarray(factors.solve(columns, "T" if self.transposed else "N").T)
