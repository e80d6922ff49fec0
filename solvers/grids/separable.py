"""Is a matrix on a grid a sum of matrices that work along one axis each?

    A = A_0 (x) I (x) I + I (x) A_1 (x) I + I (x) I (x) A_2 + shift * I

So are Laplacians with constant coefficients, with spacings and coefficients that depend on their own axis only, and
with any boundary conditions that are the same along a side. The parts are read off a line along each axis; then one
product with a random vector shows whether they are all that there is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from ...sparse import DIA, Matrix, Operator, SparseMatrix, Stencil
from ...sparse.formats.entries.grid import points

_ROUNDING = 100  # times the rounding unit, of the sum of |a_ij v_j| over a row
Line = tuple[np.ndarray, np.ndarray, np.ndarray]  # where entries are along an axis, row and column, and their values


class Separable(NamedTuple):
    """A sum of matrices along the axes of a grid.

    Attributes:
        grid: lengths of the axes.
        along: one matrix `(n_k, n_k)` for each axis.
        shift: what is added to the whole diagonal.
    """

    grid: tuple[int, ...]
    along: tuple[sp.csr_array, ...]
    shift: Any

    def apply(self, v: np.ndarray) -> np.ndarray:
        """Times an array of the grid's shape."""
        image = self.shift * v
        for axis, A in enumerate(self.along):
            lines = np.moveaxis(v, axis, 0)
            image = image + np.moveaxis((A @ lines.reshape(len(lines), -1)).reshape(lines.shape), 0, axis)
        return image


def separable(matrix: Matrix, host: Operator) -> Separable | str:
    """The parts of a square matrix whose values are known, or why it is no such sum, in words.

    Args:
        matrix: the matrix, of any library.
        host: the same for NumPy arrays.

    Cost: two products with A, two with the sum, and the entries of a line along each axis.
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
    found = Separable(grid, tuple(along), shift)
    return found if _is(host, found) else "a random vector shows that it is no sum of matrices along the axes"


def _is(host: Operator, parts: Separable) -> bool:
    """Is the product with a random vector that of the sum, in each element and up to rounding?"""
    v = np.random.default_rng(7).standard_normal((1, host.shape[1])).astype(host.dtype)
    grid = v.reshape(parts.grid)
    sizes = Separable(parts.grid, tuple(abs(A) for A in parts.along), abs(parts.shift)).apply(np.abs(grid))
    with np.errstate(all="ignore"):
        difference = np.abs(host.apply(v).reshape(parts.grid) - parts.apply(grid))
        return bool(np.all(difference <= _ROUNDING * np.finfo(host.dtype).eps * sizes))


def _line(matrix: Matrix, axis: int) -> Line:
    """The entries among the points whose other indices are 0."""
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
    """The entries among these rows and columns, which rise in equal steps."""
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
