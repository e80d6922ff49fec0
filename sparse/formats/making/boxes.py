"""Stencil matrices from the boxes of a traced function."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from ....backends import Array, Backend
from ..entries.box_diagonals import Grid, Shifted
from ..entries.grid import row_strides
from ..sparse_matrix import SparseMatrix
from ..stencil import StencilStructure

_MOST_BOXES = 64  # each is a pass over the grid, though compilers join some


class StridedBox(Protocol):
    """Rows `lo + i` of the output's grid, i in a box of `shape`, have the column `offset + sum(strides * i)`.

    `coefficient` is a number or an array of the box's shape (or one that broadcasts to it), NumPy if it is known;
    `mask` says where of the box there are entries, None: everywhere.
    """

    @property
    def lo(self) -> tuple[int, ...]: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def offset(self) -> int: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
    @property
    def coefficient(self) -> Any: ...
    @property
    def mask(self) -> np.ndarray | None: ...


def stencil_of(
    bk: Backend,
    boxes: Sequence[StridedBox],
    in_shape: Grid,
    out_shape: Grid,
    *,
    dtype: np.dtype,
    like: Array | None = None,
) -> SparseMatrix | None:
    """The stencil of boxes whose coefficients are numbers; None where it is none, or another format multiplies faster.

    Each box must be a box on the grid of the input, too, and no two may share a place. NumPy and PyTorch run through
    memory once per box, so that there DIA is faster.
    """
    if not bk.fuses_elementwise:
        return None
    if len(in_shape) != len(out_shape) or len(boxes) > _MOST_BOXES:
        return None
    kept = [box for box in boxes if not (_known(box.coefficient) and not np.any(box.coefficient))]
    if not kept or any(_axes(box.coefficient) or box.mask is not None for box in kept):
        return None
    shifted = [found for box in kept if (found := shifted_box(box, in_shape)) is not None]
    if len(shifted) < len(kept) or any(a.overlaps(b) for a, b in combinations(shifted, 2)):
        return None
    values = [box.coefficient for box in kept]
    if all(_known(v) for v in values):
        cast: list[Any] = [np.asarray(v, dtype) for v in values]
    else:
        cast = [bk.asarray(np.asarray(v, dtype), like=like) if _known(v) else bk.astype(v, dtype) for v in values]
    structure = StencilStructure(out_shape, in_shape, shifted, [True] * len(kept))
    matrix = SparseMatrix.build(bk, structure, cast, like=like, in_shape=in_shape, out_shape=out_shape)
    matrix.reason = f"{len(kept)} boxes with a number each"
    return matrix


def _known(c: Any) -> bool:
    return isinstance(c, (np.ndarray, np.generic, int, float, complex))


def _axes(c: Any) -> int:
    return np.ndim(c) if _known(c) else len(c.shape)


def shifted_box(box: StridedBox, grid: Grid) -> Shifted | None:
    """The box on both grids; None where its columns are no box of consecutive points there."""
    start, offset = [], box.offset
    for k, n, stride, distance in zip(box.shape, grid, box.strides, row_strides(grid), strict=True):
        if not n or (k > 1 and stride != distance):
            return None
        at, offset = divmod(offset, distance)
        if at < 0 or at + k > n:
            return None
        start.append(at)
    return Shifted(tuple(box.lo), tuple(box.shape), tuple(start))
