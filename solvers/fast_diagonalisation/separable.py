"""Detection of Kronecker sums: is a matrix on a grid a sum of matrices along one axis each?

    A = A_0 (x) I (x) I + I (x) A_1 (x) I + I (x) I (x) A_2 + shift * I

So are Laplacians with constant coefficients, with spacings and coefficients that depend on their own axis only, and
with any boundary conditions that are the same along a side. The parts are read off a line along each axis; then one
product with a random vector shows whether they are all that there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import get_backend
from ...sparse import DIA, Matrix, Operator, SparseMatrix, Stencil
from ...sparse.analysis.rounding import ROWS, half_units, of_region
from ...sparse.formats.entries.grid import points
from .entry_by_entry import Diagonal, equals_sum

_ROUNDING = 100  # times the rounding unit, of the sum of |a_ij| over a row
_FAR = 10  # times that: what no product could miss
_PART = 16384  # numbers that are compared at a time
_FEW = 8  # diagonals that are quicker one by one
Line = tuple[np.ndarray, np.ndarray, np.ndarray]  # where entries are along an axis, row and column, and their values


@dataclass(frozen=True)
class Separable:
    """A sum of matrices along the axes of a grid.

    Attributes:
        grid: lengths of the axes.
        along: one matrix `(n_k, n_k)` for each axis.
        shift: what is added to the whole diagonal.
        dtype: of the stored entries.
    """

    grid: tuple[int, ...]
    along: tuple[sp.csr_array, ...]
    shift: Any
    dtype: np.dtype

    @cached_property
    def allowed(self) -> np.ndarray:
        """Bound of each row sum by rounding of the entries, `(n_0, n_1, ...)`."""
        return self.row_sums(self._half_units)

    @property
    def most_allowed(self) -> float:
        """The largest of them, without an array of all."""
        of_axes = (np.max(_mapped(A, self._half_units).sum(axis=1), initial=0) for A in self.along)
        return float(sum(of_axes, self._half_units(self.shift)))

    def _half_units(self, values: Any) -> np.ndarray:
        return half_units(get_backend("numpy"), np.asarray(values, self.dtype)).astype(np.float64)

    @property
    def maps_constants_to_zero(self) -> bool:
        """Are all row sums zero up to rounding of the entries?"""
        sums = self.row_sums(lambda values: np.asarray(values, np.result_type(self.dtype, np.float64)))
        each = np.all(np.abs(sums) <= ROWS * self.allowed)
        return bool(each and np.abs(np.sum(sums)) <= of_region(self.dtype) * np.sum(self.allowed))

    def row_sums(self, function: Callable[[Any], Any]) -> np.ndarray:
        """Row sums, with the parts of the diagonal added separately: `(n_0, n_1, ...)`."""
        total = np.asarray(function(self.shift))
        for axis, A in enumerate(self.along):
            total = total + on_axis(_mapped(A, function).sum(axis=1), axis, len(self.grid))
        return total


def separable(matrix: Matrix, host: Operator) -> Separable | str:
    """The factors of a known square matrix as a Kronecker sum, or the reason why it is none, in words.

    Args:
        matrix: the matrix, of any library.
        host: the same for NumPy arrays.

    Cost: one product with A, one with the sum, and the entries of a line along each axis.
    """
    grid = matrix.in_shape
    if len(grid) < 2 or matrix.out_shape != grid:
        return f"it maps arrays of the shape {grid} to {matrix.out_shape}; expected one shape of two axes or more"
    if matrix.systems is not None:
        return "it is a batch of matrices"
    along, shift = [], None
    for axis, n in enumerate(grid):
        rows, cols, values = _line(matrix, axis)
        A = sp.csr_array(sp.coo_array((values, (rows, cols)), shape=(n, n)))
        first = A[0, 0]
        shift = first if shift is None else shift  # the same corner of the grid lies on all these lines
        along.append(sp.csr_array(A - first * sp.eye_array(n, dtype=A.dtype)))
    found = Separable(grid, tuple(along), shift, matrix.dtype)
    if isinstance(matrix, Stencil) and _is_sum_of_numbers(matrix):
        return found
    return _differs(host, found) or found


def _is_sum_of_numbers(matrix: Stencil) -> bool:
    """Does each entry depend on the place along one axis only, as stencils of numbers show without a product?"""
    structure: Any = matrix.structure
    grid, numbers = structure.in_grid, matrix.constant
    if numbers is None or not all(structure.numbers) or not grid == structure.out_grid == matrix.in_shape:
        return False
    if not sum(abs(complex(number)) for number in numbers) <= np.finfo(matrix.dtype).max / 4:  # nor is one NaN
        return False
    for box in structure.boxes:
        whole = [(lo, first, n) == (0, 0, size) for lo, first, n, size in zip(box.lo, box.start, box.shape, grid)]
        if sum(whole) < len(grid) - 1:
            return False
    return True


def _differs(host: Operator, parts: Separable) -> str | None:
    """Reason why the matrix differs from the sum by more than rounding; None if it does not.

    Diagonals are compared entrywise; if that is inconclusive, products with a random vector.
    """
    with np.errstate(all="ignore"):
        lines, rest = _diagonals_of(parts)
        sizes = [on_axis(abs(A).sum(axis=1), axis, len(parts.grid)) for axis, A in enumerate(parts.along)]
        bound = _ROUNDING * np.finfo(host.dtype).eps
        values = host.known_values() if isinstance(host, DIA) and not rest else None
        most = abs(parts.shift) + sum(np.max(s) for s in sizes)  # of a row
        if values is not None and most <= np.finfo(host.dtype).max / 2:  # else products may overflow
            structure: Any = host.structure  # type: ignore[attr-defined]
            same = equals_sum(values[0], structure.offsets, parts.grid, parts.shift, lines, _FAR * bound * most)
            if same is not None:
                return None if same else "its entries show that it is no sum of matrices along the axes"
    v = np.random.default_rng(7).random((1, host.shape[1]))
    v += 0.5  # no small numbers, which would hide entries
    v = v.astype(host.dtype, copy=False)
    with np.errstate(all="ignore"):
        image = host.apply(v).reshape(parts.grid)  # our own
        if not np.isfinite(np.sum(image)) and not np.isfinite(image).all():  # the sum is quicker, but may overflow
            return "it has entries that are NaN or infinite, or products that overflow"
        for axis, A in rest:
            image -= _product_along(A, v.reshape(parts.grid), axis)
        least = bound * (abs(parts.shift) + sum(np.min(s) for s in sizes))
        for rows, part in _differences(image, v.reshape(parts.grid), parts.shift, lines):
            if part.dtype.kind == "f" and max(part.max(), -part.min()) <= least:  # in one pass
                continue
            of_rows = sum((s if len(s) == 1 else s[rows] for s in sizes), abs(parts.shift))
            if not np.all(np.abs(part) <= bound * of_rows):
                return "a random vector shows that it is no sum of matrices along the axes"
    return None


def _differences(
    image: np.ndarray, v: np.ndarray, shift: Any, diagonals: list[Diagonal]
) -> Iterator[tuple[slice, Any]]:
    """`image - shift v - sum of diagonals`, in cache-sized blocks of the first axis."""
    n = len(v)
    size = max(1, _PART * n // max(v.size, 1))
    room = np.empty((min(size, n), *v.shape[1:]), image.dtype)  # a new array for each product would be new memory
    for start in range(0, n, size):
        rows = slice(start, min(start + size, n))
        part, own = image[rows], v[rows]
        part -= np.multiply(shift, own, out=room[: len(part)])
        for axis, offset, values in diagonals:
            bounds = (start, rows.stop) if axis == 0 else (0, v.shape[axis])
            lo, hi = max(bounds[0], -offset), min(bounds[1], v.shape[axis] - offset)
            if lo >= hi:
                continue
            lead = (slice(None),) * axis
            here, there = slice(lo - bounds[0], hi - bounds[0]), slice(lo + offset, hi + offset)
            factor = values if np.ndim(values) == 0 else values[(*lead, slice(lo, hi))]
            product, of = room[: len(part)][(*lead, here)], part[(*lead, here)]
            np.multiply(factor, (v if axis == 0 else own)[(*lead, there)], out=product)
            np.subtract(of, product, out=of)
        yield rows, part


def _diagonals_of(parts: Separable) -> tuple[list[Diagonal], list[tuple[int, sp.csr_array]]]:
    """The diagonals of parts with few of them; other parts unchanged."""
    found: list[Diagonal] = []
    others = []
    for axis, A in enumerate(parts.along):
        entries, n = sp.coo_array(A), A.shape[0]
        steps = entries.col.astype(np.int64) - entries.row
        offsets = np.unique(steps)
        if len(offsets) > _FEW:
            others.append((axis, A))
            continue
        for offset in offsets.tolist():
            values = np.zeros(n, A.dtype)
            values[entries.row[steps == offset]] = entries.data[steps == offset]
            inside = values[max(0, -offset) : n - max(0, offset)]
            same = np.all(inside == inside[0])
            found.append((axis, offset, inside[0] if same else on_axis(values, axis, len(parts.grid))))
    return found, others


def _product_along(A: sp.csr_array, v: np.ndarray, axis: int) -> np.ndarray:
    lines = np.moveaxis(v, axis, 0)
    return np.moveaxis((A @ lines.reshape(len(lines), -1)).reshape(lines.shape), 0, axis)


def on_axis(values: Any, axis: int, rank: int) -> np.ndarray:
    """Values along an axis, reshaped for broadcasting on the grid."""
    return np.reshape(values, [-1 if k == axis else 1 for k in range(rank)])


def _mapped(A: sp.csr_array, function: Callable[[Any], Any]) -> sp.csr_array:
    return sp.csr_array((function(A.data), A.indices, A.indptr), A.shape)


def _line(matrix: Matrix, axis: int) -> Line:
    """Entries of the line on which all other indices are 0."""
    found = _of_boxes(matrix, axis) if isinstance(matrix, Stencil) else None
    if found is not None:
        return found
    grid: Any = matrix.in_shape
    shape = tuple(n if k == axis else 1 for k, n in enumerate(grid))
    places = points((0,) * len(grid), shape, grid)
    if isinstance(matrix, DIA):
        return _of_diagonals(matrix, places)
    known: Any = matrix.known()
    part = sp.coo_array(sp.csr_array(known)[places][:, places])
    return part.row, part.col, part.data


def _of_boxes(matrix: SparseMatrix, axis: int) -> Line | None:
    structure: Any = matrix.structure
    if structure.in_grid != matrix.in_shape or structure.out_grid != matrix.out_shape:  # as of flattened arrays
        return None
    rows, cols, values = [], [], []
    for box, value in zip(structure.boxes, matrix.constant or ()):
        others = [k for k in range(len(box.lo)) if k != axis]
        if any(box.lo[k] or box.start[k] for k in others):
            continue
        n = box.shape[axis]
        rows.append(box.lo[axis] + np.arange(n))
        cols.append(box.start[axis] + np.arange(n))
        at = tuple(slice(None) if k == axis else 0 for k in range(len(box.lo)))
        values.append(np.broadcast_to(value[at] if np.ndim(value) else value, (n,)))
    if not rows:
        return None
    return np.concatenate(rows), np.concatenate(cols), np.concatenate(values)


def _of_diagonals(matrix: DIA, places: np.ndarray) -> Line:
    """Entries of a DIA matrix among these equally spaced rows and columns."""
    offsets: Any = matrix.structure.offsets  # type: ignore[attr-defined]
    diagonals = matrix.bk.to_numpy(matrix.arrays()[0]) if matrix.constant is None else matrix.constant[0]
    first, step = int(places[0]), int(places[1] - places[0]) if len(places) > 1 else 1
    rows, cols, values = [], [], []
    for offset, diagonal in zip(offsets, diagonals):
        steps, rest = divmod(int(offset), step)
        lo, hi = max(0, -steps), min(len(places), len(places) - steps)
        if rest or lo >= hi:
            continue
        rows.append(np.arange(lo, hi))
        cols.append(np.arange(lo, hi) + steps)
        values.append(diagonal[first + step * lo : first + step * hi : step])
    none = np.zeros(0, np.int64)
    return np.concatenate([none, *rows]), np.concatenate([none, *cols]), np.concatenate([none, *values])
