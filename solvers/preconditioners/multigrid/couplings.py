"""Stencil coefficients of a matrix whose grid is known, and matrices of stencil coefficients."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....backends.host_math import cores
from ....sparse import CSR, DIA, Composed, Matrix, Operator, SparseMatrix, Stencil, UnsupportedOperation, storable
from ....sparse.analysis.analysis import analysis_of
from ....sparse.analysis.canonical import row_range
from ....sparse.analysis.grid import are_neighbours, differences, shift_of, step_of
from ....sparse.formats.boxes import Shifted
from ....sparse.formats.entries.integers import entries_in, evenly_spread, row_strides
from ....sparse.formats.entries.values import take_or_zero
from ....sparse.formats.making.build import from_diagonals
from ....sparse.formats.stencil import StencilStructure
from ....sparse.operators.concrete import concrete, nonzero_entries
from ....sparse.operators.couplings import (
    Couplings,
    Shift,
    Stacked,
    distance,
    neighbours,
    opposite,
    settled,
    shifted_array,
    shifted_arrays,
    sum_of_terms,
)
from ....sparse.operators.halo import Axes

Parts = dict[Shift, list[Array]]
_ROWS = 16384  # that stay in the cache while their diagonals are read in turn
_SAMPLE = 500  # rows


def couplings_of(matrix: Matrix, grid: tuple[int, ...]) -> Couplings:
    """Stencil coefficients of a square matrix on a grid, last axis fastest; in NumPy where values are known.

    Raises:
        UnsupportedOperation: it couples points that are no neighbours.

    Cost: one pass over the values, and over positions except for stencils and diagonals.
    """
    A: Any = concrete(matrix)
    if isinstance(A, Stencil) and A.structure.in_grid == A.structure.out_grid == grid:  # type: ignore[attr-defined]
        parts, rings = _of_boxes(A, grid)
    else:
        parts, rings = _of_diagonals(A, grid) or _of_entries(A, grid)
    bk, systems = A.bk, A.systems
    values = {shift: sum_of_terms(arrays) for shift, arrays in parts.items()}
    like = next(iter(values.values()), None)
    zero = bk.zeros((systems or 1, *grid), A.dtype, like)
    for shift in [(0,) * len(grid), *map(opposite, values)]:
        values.setdefault(shift, zero)
    couplings = Couplings(bk, grid, rings, values, systems)
    if analysis_of(matrix).is_exactly_hermitian:
        # Of this object only, because those derived from it may have other values.
        couplings.__dict__["is_exactly_hermitian"] = True
    return couplings


def couples_neighbours(matrix: Matrix) -> bool:
    """Does the structure of a matrix with a known grid of two or more axes couple neighbours only?"""
    A: Any = matrix
    grid = A.in_shape
    if len(grid) < 2 or A.out_shape != grid or not isinstance(A, SparseMatrix):
        return False
    if isinstance(A, Stencil):
        structure: Any = A.structure
        if structure.in_grid != grid or structure.out_grid != grid:
            return False
        steps = [step_of(np.asarray(box.start) - np.asarray(box.lo), np.asarray(grid))[0] for box in structure.boxes]
        return all(bool(np.all(np.abs(step) <= 1)) for step in steps)
    if isinstance(A, DIA) and _of_diagonals(A, grid) is not None:
        return True
    rows, cols, _ = A.structure.entries()
    return are_neighbours(rows, cols, grid)


def _of_boxes(matrix: Any, grid: tuple[int, ...]) -> tuple[Parts, tuple[bool, ...]]:
    bk: Backend = matrix.bk
    parts: Parts = {}
    rings = [False] * len(grid)
    for box, number, value in zip(matrix.structure.boxes, matrix.structure.numbers, matrix.known_or_arrays()):
        shift = []
        for axis, (start, lo, n) in enumerate(zip(box.start, box.lo, grid)):
            step, ring = step_of(np.asarray(start - lo), n)
            shift.append(int(step))
            rings[axis] |= bool(ring)
        if any(abs(s) > 1 for s in shift):
            raise _far(tuple(shift), grid)
        if matrix.systems is None:
            value = value[None]
        if number:
            value = bk.reshape(value, (-1, *(1,) * len(grid)))
        rows = bk.broadcast_to(value, (int(value.shape[0]), *box.shape))
        widths = [(lo, n - lo - k) for lo, k, n in zip(box.lo, box.shape, grid)]
        parts.setdefault(tuple(shift), []).append(bk.pad(rows, [(0, 0), *widths]))
    return parts, tuple(rings)


def _of_diagonals(matrix: Any, grid: tuple[int, ...]) -> tuple[Parts, tuple[bool, ...]] | None:
    """From DIA, or CSR read as diagonals, if all offsets are those of neighbours on the grid; else None."""
    if matrix.systems is not None or min(grid) < 3 or not isinstance(matrix, (CSR, DIA)) or matrix.constant is None:
        return None
    if isinstance(matrix, DIA):
        structure: Any = matrix.structure
        offsets, diagonals = structure.offsets, matrix.constant[0]
    else:
        pair = neighbours_diagonals(matrix.known(), grid)
        if pair is None:
            return None
        offsets, diagonals = pair
    parts: Parts = {}
    for offset, diagonal in zip(offsets, diagonals):
        shift = shift_of(int(offset), grid)
        if shift is None:
            return None
        values = diagonal.reshape(1, *grid)
        for axis, step in enumerate(shift, 1):
            edge = [slice(None)] * values.ndim
            edge[axis] = slice(-1, None) if step > 0 else slice(0, 1)
            if step and values[tuple(edge)].any():  # It wraps to the next line, or is stored outside the matrix.
                return None
        parts[shift] = [values]
    return parts, (False,) * len(grid)


def _of_entries(matrix: Any, grid: tuple[int, ...]) -> tuple[Parts, tuple[bool, ...]]:
    bk, rows, cols, values = nonzero_entries(matrix)
    codes, rings = np.zeros(len(rows), np.int64), []  # positions in `neighbours`
    for n, stride in zip(grid, row_strides(grid)):
        step, ring = step_of(cols // stride % n - rows // stride % n, n)
        rings.append(bool(np.any(ring)))
        if np.any(np.abs(step) > 1):
            at = int(np.argmax(np.abs(step) > 1))
            raise _far(tuple(int(v[at]) for v in differences(rows, cols, grid)), grid)
        codes = 3 * codes + step + 1
    parts: Parts = {}
    for code in np.flatnonzero(np.bincount(codes)):
        entries = np.flatnonzero(codes == code)
        source = np.full(matrix.shape[0], -1, np.int32)
        source[rows[entries]] = entries
        parts[neighbours(len(grid))[code]] = [bk.reshape(take_or_zero(bk, values, source), (-1, *grid))]
    return parts, tuple(rings)


def _far(shift: Shift, grid: tuple[int, ...]) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"A preconditioner for grids was asked for a matrix that couples points of the grid {grid} at a distance of "
        f"{shift}; expected neighbours, across corners at most. Give the shape of the grid (grid=) if it is another "
        "one, or use 'amg'."
    )


def neighbours_diagonals(A: Any, grid: tuple[int, ...]) -> tuple[tuple[int, ...], np.ndarray] | None:
    """Ascending offsets and diagonals `(k, n)`, indexed by row; None if other points than neighbours are coupled.

    Args:
        A: `csr_array` without duplicates; stored zeros are ignored.
        grid: lengths of the axes, last one fastest.

    Cost: a pass over the entries for each diagonal, in the cache.
    """
    sample = evenly_spread(A.shape[0], _SAMPLE)
    rows, cols = entries_in(A.indptr[sample], A.indptr[sample + 1], A.indices, sample)
    possible, sampled = {distance(s, grid) for s in neighbours(len(grid))}, set((cols - rows).tolist())
    if not sampled <= possible:
        return None
    count = np.count_nonzero(A.data)
    for offsets in (sorted(sampled), sorted(possible)):
        values = _diagonals(A, offsets)
        if np.count_nonzero(values) == count:
            return tuple(offsets), values
    return None


def _diagonals(A: Any, offsets: list[int]) -> np.ndarray:
    n = A.shape[0]
    values = np.zeros((len(offsets), n), A.dtype)

    def read(first: int, last: int) -> None:
        part = row_range(A, first, last)
        for row, offset in zip(values, offsets):
            k = offset + first
            if -(last - first) < k < n:
                diagonal = part.diagonal(k)
                start = first + max(0, -k)
                row[start : start + len(diagonal)] = diagonal

    cores.in_blocks(read, n, _ROWS)
    return values


def couplings_matrix(A: Couplings, as_grid: bool = False) -> Operator:
    """Matrix in the format with the fastest products in its library; with `as_grid` that of libraries but NumPy."""
    if as_grid or not A.bk.on_host:
        return MatrixOnGrid.of(A)
    if A.systems is None and not any(A.periodic):
        return as_diagonals(A.bk, [*A.values], _stacked(A.bk, A.values))
    return couplings_stencil(A).to("csr")


def _stacked(bk: Backend, values: Mapping[Shift, Array]) -> Array:
    """`(shifts, systems or 1, *grid)`, in the order of the values."""
    return values.array if isinstance(values, Stacked) else bk.stack([*values.values()])


def couplings_stencil(A: Couplings) -> SparseMatrix:
    """The Stencil with a box of points per offset, and one more for each wrap-around of a periodic axis."""
    boxes, values = [], []
    for shift, a in A.values.items():
        for ranges in itertools.product(*(_ranges(n, s, ring) for n, s, ring in zip(A.grid, shift, A.periodic))):
            box = Shifted(*zip(*ranges))
            if min(box.shape) > 0:
                boxes.append(box)
                part = a[(slice(None), *box.rows)]
                batch = None if A.systems is None else (A.systems, *map(int, part.shape[1:]))
                values.append(part[0] if batch is None else A.bk.broadcast_to(part, batch))
    grid = tuple(map(int, A.diagonal.shape[1:]))
    structure = StencilStructure(grid, grid, boxes, [False] * len(boxes))
    size: Any = structure.shape[0]
    return SparseMatrix.build(A.bk, structure, tuple(values), in_shape=(size,), out_shape=(size,))


def _ranges(n: int, step: int, ring: bool) -> list[tuple[int, int, int]]:
    """First row, count and first column of the rows whose neighbour along an axis stays on the grid."""
    inside = (max(0, -step), n - abs(step), max(0, step))
    if not ring or not step:
        return [inside]
    return [inside, (n - 1, 1, 0) if step > 0 else (0, 1, n - 1)]


@storable("matrix on a grid")
@dataclass(eq=False, repr=False)
class MatrixOnGrid(Composed):
    """`image[x] = sum over k of values[k][x] * u[x + shifts[k]]`.

    All values are one array, because in compiled loops each array costs compile time.

    Attributes:
        values: `(shifts, systems or 1, *grid)`; zero for neighbours off the grid.
        shifts: -1, 0 or 1 along each axis; with s they contain -s.
        grid, periodic: lengths of the axes, and which of them are rings; as in `Couplings` they may be cut.
        batch: is there one matrix for each system?
    """

    parts = cut = ("values",)
    is_container = True

    bk: Backend
    values: Array
    shifts: tuple[Shift, ...]
    grid: tuple[int, ...]
    periodic: Axes
    batch: bool = False

    @classmethod
    def of(cls, A: Couplings) -> MatrixOnGrid:
        values = settled(A.bk, {s: A.values[s] for s in A.shifts} if [*A.values] != [*A.shifts] else A.values)
        return cls(A.bk, _stacked(A.bk, values), A.shifts, A.grid, A.periodic, A.systems is not None)

    def __post_init__(self) -> None:
        shape, _ = self._form("values")
        opposites = {opposite(s) for s in self.shifts}
        axes = {len(self.grid), len(self.periodic), *map(len, self.shifts)}
        if len(axes) > 1 or opposites != set(self.shifts) or max(max(map(abs, s)) for s in self.shifts) > 1:
            raise ValueError(f"There is no matrix on the grid {self.grid} with the couplings {self.shifts}.")
        if (*shape[:1], *shape[2:]) != (len(self.shifts), *self.grid) or (shape[1] != 1 and not self.batch):
            raise ValueError(f"{shape} values were given for {len(self.shifts)} couplings on the grid {self.grid}.")
        super().__post_init__()

    def _settle(self) -> None:
        n = math.prod(self.grid)
        (_, systems, *_), self.dtype = self._form("values")
        self.shape, self.systems = (n, n), systems if self.batch else None

    def transpose(self) -> MatrixOnGrid:
        bk = self._library_of(self.values[0])
        back = [self.shifts.index(opposite(s)) for s in self.shifts]
        mirrored = [shifted_array(bk, self.values[k], s, self.periodic) for k, s in zip(back, self.shifts)]
        return replace(self, values=bk.stack(mirrored))

    def apply(self, x: Array) -> Array:
        bk, values = self.bk, self.array("values")
        u = bk.reshape(x, (int(x.shape[0]), *self.grid))
        near = shifted_arrays(bk, u, self.shifts, self.periodic)
        image = sum_of_terms([values[k] * near[s] for k, s in enumerate(self.shifts)])
        return bk.reshape(image, (int(x.shape[0]), self.shape[0]))

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        """As a DIA matrix if possible, because its products are faster on the host."""
        arrays, make = super().for_host()
        if self.batch or any(self.periodic):
            return arrays, make

        def make_diagonals(values: Sequence[np.ndarray]) -> Operator:
            A: Any = make(values)
            return as_diagonals(A.bk, A.shifts, np.asarray(A.values))

        return arrays, make_diagonals


def as_diagonals(bk: Backend, shifts: Sequence[Shift], values: Array) -> SparseMatrix:
    """DIA matrix of coefficients `(shifts, 1, *grid)` on a grid without periodic axes."""
    offsets = [distance(shift, tuple(map(int, values.shape[2:]))) for shift in shifts]
    diagonals = bk.reshape(values, (len(offsets), -1))
    return from_diagonals(bk, offsets, diagonals, (int(diagonals.shape[1]),) * 2, format="dia")
