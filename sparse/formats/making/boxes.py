"""Matrices of the boxes that a traced function consists of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ....backends import Array, Backend
from ..sparse_matrix import SparseMatrix
from ..stencil import Grid, Shifted, StencilStructure, flat
from .build import from_entries

_MOST_BOXES = 64  # each is a pass over the grid, though compilers join some


class Box(Protocol):
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


def from_boxes(
    bk: Backend,
    boxes: Sequence[Box],
    in_shape: Grid,
    out_shape: Grid,
    *,
    dtype: np.dtype,
    format: str | None = None,
    prune: bool = True,
    like: Array | None = None,
) -> SparseMatrix:
    """The matrix of boxes: a stencil where all coefficients are numbers, else what suits their entries.

    Args:
        bk: the library that will multiply.
        boxes: they may overlap, and then add up.
        in_shape, out_shape: grids of the input and of the output.
        dtype: of the values.
        format: of the result; None: the stencil on libraries that compile it, if there is one, else what suits.
        prune: drop known coefficients that are 0.
        like: an array on whose device known values go.
    """
    if format in (None, "stencil"):
        found = stencil_of(bk, boxes, in_shape, out_shape, dtype=dtype, like=like)
        if found is not None:
            return found
        format = None
    parts = [_entries(bk, box, in_shape, out_shape, dtype) for box in boxes]
    none = np.zeros(0, np.int32)
    rows, cols = (np.concatenate([none, *(part[k] for part in parts)]) for k in range(2))
    known = all(isinstance(part[2], np.ndarray) for part in parts)
    if known:
        values: Any = np.concatenate([np.zeros(0, dtype), *(part[2] for part in parts)])
    else:
        values = bk.concat([bk.asarray(p[2]) if isinstance(p[2], np.ndarray) else p[2] for p in parts], 0)
    shape = (math.prod(out_shape), math.prod(in_shape))
    options: dict[str, Any] = {"format": format, "prune": prune, "like": like}
    return from_entries(bk, rows, cols, values, shape, in_shape=in_shape, out_shape=out_shape, **options)


def stencil_of(
    bk: Backend, boxes: Sequence[Box], in_shape: Grid, out_shape: Grid, *, dtype: np.dtype, like: Array | None = None
) -> SparseMatrix | None:
    """The stencil of boxes whose coefficients are numbers; None where it is none, or another format multiplies faster.

    Each box must be a box on the grid of the input, too, and no two may share a place. NumPy and PyTorch run through
    memory once per box, so that there DIA is faster.
    """
    if not bk.compiles_solves and bk.name != "tensorflow":
        return None
    if len(in_shape) != len(out_shape) or len(boxes) > _MOST_BOXES:
        return None
    kept = [box for box in boxes if not (_known(box.coefficient) and not np.any(box.coefficient))]
    if not kept or any(_axes(box.coefficient) or box.mask is not None for box in kept):
        return None
    shifted = [_shifted(box, in_shape) for box in kept]
    if any(s is None for s in shifted) or _overlap(shifted):
        return None
    values = [box.coefficient for box in kept]
    if all(_known(v) for v in values):
        cast: list[Any] = [np.asarray(v, dtype) for v in values]
    else:
        cast = [bk.asarray(np.asarray(v, dtype), like=like) if _known(v) else bk.astype(v, dtype) for v in values]
    structure = StencilStructure(out_shape, in_shape, shifted, [True] * len(kept))  # type: ignore[arg-type]
    matrix = SparseMatrix.build(bk, structure, cast, like=like, in_shape=in_shape, out_shape=out_shape)
    matrix.reason = f"{len(kept)} boxes with a number each"
    return matrix


def _known(c: Any) -> bool:
    return isinstance(c, (np.ndarray, np.generic, int, float, complex))


def _axes(c: Any) -> int:
    return np.ndim(c) if _known(c) else len(c.shape)


def _shifted(box: Box, grid: Grid) -> Shifted | None:
    """The box on both grids; None where its columns are no box of consecutive points there."""
    start = []
    offset, distance = box.offset, math.prod(grid)
    for k, n, stride in zip(box.shape, grid, box.strides, strict=True):
        distance //= max(n, 1)
        if not n or (k > 1 and stride != distance):
            return None
        at, offset = divmod(offset, distance)
        if at < 0 or at + k > n:
            return None
        start.append(at)
    return Shifted(tuple(box.lo), tuple(box.shape), tuple(start))


def _overlap(boxes: Sequence[Any]) -> bool:
    """Do two boxes with the same shift share a row? (With another shift they have other columns there.)"""
    by_shift: dict[Grid, list[Shifted]] = {}
    for box in boxes:
        others = by_shift.setdefault(tuple(s - a for s, a in zip(box.start, box.lo)), [])
        if any(_meet(box, other) for other in others):
            return True
        others.append(box)
    return False


def _meet(a: Shifted, b: Shifted) -> bool:
    return all(max(x, y) < min(x + k, y + n) for x, k, y, n in zip(a.lo, a.shape, b.lo, b.shape))


def _entries(bk: Backend, box: Box, in_shape: Grid, out_shape: Grid, dtype: np.dtype) -> tuple[np.ndarray, Any, Any]:
    rows = flat(box.lo, box.shape, out_shape)
    cols: np.ndarray = np.full((), box.offset, np.int32)
    for k, stride in zip(box.shape, box.strides):
        cols = cols[..., None] + np.arange(k, dtype=np.int32) * np.int32(stride)
    cols = cols.reshape(-1)
    c = box.coefficient
    if _known(c):
        values: Any = np.broadcast_to(np.asarray(c, dtype), box.shape).reshape(-1)
    else:
        values = bk.reshape(bk.broadcast_to(bk.astype(c, dtype), box.shape), (len(rows),))
    if box.mask is None:
        return rows, cols, values
    chosen = np.flatnonzero(np.broadcast_to(box.mask, box.shape)).astype(np.int32)
    values = values[chosen] if isinstance(values, np.ndarray) else bk.take(values, chosen)
    return rows[chosen], cols[chosen], values
