"""Bandwidth of a matrix, and its partition into a block tridiagonal matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ...backends import Array, Backend
from ...sparse import DIA, SparseMatrix
from ...sparse.formats.dia import DiaStructure
from ...sparse.formats.entries.regather import take_or_zero
from ...sparse.operators.concrete import concrete_entries

WIDEST = 8  # half bandwidth: blocks store 5 times as many numbers per unknown


class Band(NamedTuple):
    """Half bandwidth, and the permutation that gives it, None for the given order."""

    width: int
    order: np.ndarray | None = None


def may_be_narrow(matrix: SparseMatrix) -> bool:
    """Cheap test: has the matrix few entries, and is its grid (nearly) one-dimensional?"""
    grid, n = matrix.in_shape, matrix.shape[0]
    sides = [k for k in grid if isinstance(k, int)]
    on_line = len(sides) < len(grid) or n <= WIDEST * max(sides, default=0)
    return on_line and matrix.nnz <= (2 * WIDEST + 1) * n


def narrow(matrix: SparseMatrix) -> Band:
    """The narrowest band found. Cost: a pass over the entries, and a search for an order where it is wide."""
    structure: Any = matrix.structure
    if isinstance(matrix, DIA) and max(map(abs, structure.offsets), default=0) <= WIDEST:
        return Band(max(map(abs, structure.offsets), default=0))
    rows, cols, _ = structure.entries()
    width = _width(rows, cols)
    if width <= WIDEST:
        return Band(width)
    n = matrix.shape[0]
    pattern = sp.csr_array((np.ones(len(rows), np.int8), (rows, cols)), (n, n))
    order = np.asarray(reverse_cuthill_mckee(pattern + pattern.T, symmetric_mode=True))
    places = _places(order)
    found = _width(places[rows], places[cols])
    return Band(found, order.astype(np.int32)) if found < width else Band(width)


def tridiagonal_blocks(matrix: SparseMatrix, width: int, order: np.ndarray | None) -> tuple[Array, Array, Array]:
    """Sub-diagonal, diagonal and super-diagonal blocks `(systems or 1, width, width, count)`; the last is padded.

    Args:
        width: of a band that all entries lie in.
        order: of the unknowns in that band.
    """
    n = matrix.shape[0]
    count = -(-n // width)
    bk, offsets, diagonals = _diagonals(matrix, order)
    lines: dict[int, Array] = {o: _line(bk, diagonals[:, k], o, count, width) for k, o in enumerate(offsets)}
    nothing = bk.zeros((int(diagonals.shape[0]), count), bk.dtype(diagonals), diagonals)
    ones = np.arange(count * width).reshape(1, count, width) >= n
    filled = bk.asarray(ones.astype(bk.dtype(diagonals)), like=diagonals)
    lines[0] = lines[0] + filled if 0 in lines else bk.broadcast_to(filled, (int(diagonals.shape[0]), count, width))

    def block(side: int) -> Array:
        offsets = [(a, side * width + b - a) for a in range(width) for b in range(width)]
        rows = [lines[offset][:, :, a] if offset in lines else nothing for a, offset in offsets]
        return bk.permute_dims(bk.reshape(bk.stack(rows), (width, width, -1, count)), (2, 0, 1, 3))

    return block(-1), block(0), block(1)


def _line(bk: Backend, diagonal: Any, offset: int, count: int, width: int) -> Array:
    """A diagonal `(systems or 1, n)` as `(systems or 1, count, width)`, zero outside the matrix."""
    n = int(diagonal.shape[1])
    first, last = max(0, -offset), min(n, n - offset)
    padded = bk.pad(diagonal[:, first:last], [(0, 0), (first, count * width - last)])
    return bk.reshape(padded, (-1, count, width))


def _diagonals(matrix: SparseMatrix, order: np.ndarray | None) -> tuple[Backend, tuple[int, ...], Array]:
    """Offsets and diagonals `(systems or 1, k, n)` of the permuted matrix."""
    if order is None:
        own: Any = matrix.to("dia")
        values: Any = own.known_or_arrays()[0]
        return own.bk, own.structure.offsets, values if matrix.systems is not None else values[None]
    bk, rows, cols, values = concrete_entries(matrix)
    places = _places(order)
    structure, (source,) = DiaStructure.from_entries(places[rows], places[cols], matrix.shape)
    return bk, structure.offsets, take_or_zero(bk, values, source)


def _places(order: np.ndarray) -> np.ndarray:
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return places


def _width(rows: np.ndarray, cols: np.ndarray) -> int:
    return int(np.max(np.abs(rows - cols), initial=0))
