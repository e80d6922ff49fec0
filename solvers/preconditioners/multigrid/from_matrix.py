"""Stencil coefficients of a matrix whose grid is known."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....sparse import CSR, DIA, Matrix, SparseMatrix, Stencil, UnsupportedOperation
from ....sparse.analysis.analysis import analysis_of
from ....sparse.analysis.neighbours import are_neighbours, differences, shift_of, step_of
from ....sparse.formats.entries.grid import row_strides
from ....sparse.formats.entries.regather import take_or_zero
from ....sparse.operators.concrete import concrete, nonzero_entries
from ....sparse.operators.couplings import Couplings, Shift, opposite, sum_of_terms
from .diagonals import neighbours_diagonals

Parts = dict[Shift, list[Array]]


def couplings_of(matrix: Matrix, grid: tuple[int, ...]) -> Couplings:
    """Stencil coefficients of a square matrix on a grid, last axis fastest; in NumPy where values are known.

    Raises:
        UnsupportedOperation: it couples points that are no neighbours.

    Cost: one pass over the values; for other formats than stencils and diagonals also over positions.
    """
    own: Any = concrete(matrix)
    if isinstance(own, Stencil) and own.structure.in_grid == own.structure.out_grid == grid:  # type: ignore[attr-defined]
        parts, rings = _of_boxes(own, grid)
    else:
        found = _of_diagonals(own, grid)
        parts, rings = found or _of_entries(own, grid)
    bk, systems = own.bk, own.systems
    values = {shift: sum_of_terms(arrays) for shift, arrays in parts.items()}
    like = next(iter(values.values()), None)
    zero = bk.zeros((systems or 1, *grid), own.dtype, like)
    for shift in [(0,) * len(grid), *map(opposite, values)]:
        values.setdefault(shift, zero)
    couplings = Couplings(bk, grid, rings, values, systems)
    if analysis_of(matrix).is_exactly_hermitian:
        couplings.__dict__["is_exactly_hermitian"] = True  # of this object: those made of it may have other numbers
    return couplings


def couples_neighbours(matrix: Matrix) -> bool:
    """Is it a matrix with a known grid of two axes or more that couples neighbours only, by its structure?"""
    own: Any = matrix
    grid = own.in_shape
    if len(grid) < 2 or own.out_shape != grid or not isinstance(own, SparseMatrix):
        return False
    if isinstance(own, Stencil):
        structure: Any = own.structure
        if structure.in_grid != grid or structure.out_grid != grid:
            return False
        steps = [step_of(np.asarray(box.start) - np.asarray(box.lo), np.asarray(grid))[0] for box in structure.boxes]
        return all(bool(np.all(np.abs(step) <= 1)) for step in steps)
    if isinstance(own, DIA) and _of_diagonals(own, grid) is not None:
        return True
    rows, cols, _ = own.structure.entries()
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
    """From DIA, or CSR read as diagonals, where offsets are neighbours and stay on the grid; else None."""
    if matrix.systems is not None or min(grid) < 3 or not isinstance(matrix, (CSR, DIA)) or matrix.constant is None:
        return None
    if isinstance(matrix, DIA):
        structure: Any = matrix.structure
        offsets, diagonals = structure.offsets, matrix.constant[0]
    else:
        found = neighbours_diagonals(matrix.known(), grid)
        if found is None:
            return None
        offsets, diagonals = found
    parts: Parts = {}
    for offset, diagonal in zip(offsets, diagonals):
        shift = shift_of(int(offset), grid)
        if shift is None:
            return None
        values = diagonal.reshape(1, *grid)
        for axis, step in enumerate(shift, 1):
            edge = [slice(None)] * values.ndim
            edge[axis] = slice(-1, None) if step > 0 else slice(0, 1)
            if step and values[tuple(edge)].any():  # which goes on in the next line, or is stored outside of the matrix
                return None
        parts[shift] = [values]
    return parts, (False,) * len(grid)


def _of_entries(matrix: Any, grid: tuple[int, ...]) -> tuple[Parts, tuple[bool, ...]]:
    bk, rows, cols, values = nonzero_entries(matrix)
    codes, rings = _codes(rows, cols, grid)
    parts: Parts = {}
    for code in np.flatnonzero(np.bincount(codes)):
        here = np.flatnonzero(codes == code)
        source = np.full(matrix.shape[0], -1, np.int32)
        source[rows[here]] = here
        parts[_shift_of_code(int(code), grid)] = [bk.reshape(take_or_zero(bk, values, source), (-1, *grid))]
    return parts, rings


def _codes(rows: np.ndarray, cols: np.ndarray, grid: tuple[int, ...]) -> tuple[np.ndarray, tuple[bool, ...]]:
    """A number for the offset of each entry, and which axes are rings."""
    codes = np.zeros(len(rows), np.int64)
    rings = []
    for n, stride in zip(grid, row_strides(grid)):
        step, ring = step_of(cols // stride % n - rows // stride % n, n)
        rings.append(bool(np.any(ring)))
        if np.any(np.abs(step) > 1):
            at = int(np.argmax(np.abs(step) > 1))
            raise _far(tuple(int(v[at]) for v in differences(rows, cols, grid)), grid)
        codes = 3 * codes + step + 1
    return codes, tuple(rings)


def _shift_of_code(code: int, grid: tuple[int, ...]) -> Shift:
    return tuple(code // 3**k % 3 - 1 for k in reversed(range(len(grid))))


def _far(shift: Shift, grid: tuple[int, ...]) -> UnsupportedOperation:
    return UnsupportedOperation(
        f"A preconditioner for grids was asked for a matrix that couples points of the grid {grid} at a distance of "
        f"{shift}; expected neighbours, across corners at most. Give the shape of the grid (grid=) if it is another "
        "one, or use 'amg'."
    )
