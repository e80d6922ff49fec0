"""Serialisation of sparsity structures; every index that is read is validated, as products do not check them."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np

from ...backends.interface.arrays import check_count, check_range, check_rising
from ..formats.boxes import Shifted
from ..formats.compressed import CscStructure, CsrStructure
from ..formats.coo import CooStructure
from ..formats.dia import DiaStructure
from ..formats.ell import EllStructure, HybStructure
from ..formats.entries.integers import check_shape, check_size, is_canonical
from ..formats.stencil import StencilStructure
from ..formats.structure import Structure

Shape = tuple[int, int]
Fields = dict[str, Any]


def fields_of(structure: Structure) -> Fields:
    """Fields of a structure for `structure_of`, besides its format and shape."""
    return _FORMATS[structure.format].flatten(structure)


def structure_of(format: str, shape: Any, fields: Fields) -> Structure:
    """The structure of a format.

    Raises:
        ValueError, TypeError, KeyError: an index lies outside, the entries are not in order or one occurs twice, or the
            fields are not those of the format.

    Cost: a few passes over the entries; for a stencil one over pairs of boxes.
    """
    return _FORMATS[format].unflatten(check_shape(shape), **fields)


def _in_order(structure: Structure, rows: np.ndarray, cols: np.ndarray) -> Structure:
    if not is_canonical(rows, cols):
        raise ValueError("the entries are not in order, each once")
    return structure


def _csr(shape: Shape, starts: Any, cols: Any) -> Structure:
    cols = _places(cols, shape[1], "The columns")
    structure = CsrStructure(check_rising(starts, shape[0], len(cols), "The starts"), cols, shape)
    return _in_order(structure, structure.rows, cols)


def _csc(shape: Shape, starts: Any, lines: Any) -> Structure:
    lines = _places(lines, shape[0], "The rows")
    structure = CscStructure(check_rising(starts, shape[1], len(lines), "The starts"), lines, shape)
    return _in_order(structure, structure.owners, lines)


def _coo(shape: Shape, rows: Any, cols: Any) -> Structure:
    check_count(len(rows), len(cols), "columns")
    rows, cols = _places(rows, shape[0], "The rows"), _places(cols, shape[1], "The columns")
    return _in_order(CooStructure(rows, cols, shape), rows, cols)


def _dia(shape: Shape, offsets: tuple[int, ...], present: Any) -> Structure:
    rising = all(a < b for a, b in pairwise(offsets))
    if not rising or (offsets and not -max(shape[0], 1) < offsets[0] <= offsets[-1] < max(shape[1], 1)):
        raise ValueError(f"the offsets {offsets[:9]} are given for {shape}; expected rising ones inside of it")
    if present is not None and (present.dtype != bool or present.shape != (len(offsets), shape[0])):
        raise ValueError(f"the mask of diagonals is {present.dtype} {present.shape}; expected one for each of them")
    return DiaStructure(offsets, shape, present)


def _ell(shape: Shape, cols: Any, lengths: Any) -> Structure:
    return EllStructure(*_packed(cols, lengths, shape[0], shape[1]), shape)


def _hyb(shape: Shape, cols: Any, lengths: Any, piece_cols: Any, piece_lengths: Any, piece_rows: Any) -> Structure:
    pieces = _packed(piece_cols, piece_lengths, len(piece_rows), shape[1])
    rows = _places(piece_rows, shape[0], "The rows of pieces")
    if np.any(rows[1:] < rows[:-1]):
        raise ValueError("the pieces are not in the order of rows")
    structure = HybStructure(*_packed(cols, lengths, shape[0], shape[1]), *pieces, rows, shape)
    return _in_order(structure, *structure.entries()[:2])


def _packed(cols: Any, lengths: Any, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns `(k, n)` of which `lengths` `(n,)` are entries."""
    if cols.ndim != 2 or cols.shape[1] != n or lengths.shape != (n,):
        raise ValueError(f"columns and lengths of the shapes {cols.shape}, {lengths.shape} are given for {n} rows")
    check_size(cols.size, "stored values")
    found = check_range(cols, m, "The columns").astype(np.int32, copy=False)
    lengths = _places(lengths, len(cols) + 1, "The lengths of rows")
    if any(np.any((a >= b) & (i + 1 < lengths)) for i, (a, b) in enumerate(pairwise(found))):
        raise ValueError("the entries are not in order, each once")
    return found, lengths


def _places(x: Any, limit: int, what: str) -> np.ndarray:
    if x.ndim != 1:
        raise ValueError(f"{what} have the shape {x.shape}; expected one axis")
    return check_range(x, limit, what).astype(np.int32, copy=False)


def _stencil(shape: Shape, out_grid: Any, in_grid: Any, boxes: Any, numbers: Any) -> Structure:
    found = [Shifted(*map(tuple, box)) for box in boxes]
    if (math.prod(out_grid), math.prod(in_grid)) != shape or len(boxes) != len(numbers):
        raise ValueError(f"the grids {out_grid}, {in_grid} and {len(boxes)} boxes are given for {shape}")
    for box in found:
        for first, grid in ((box.lo, out_grid), (box.start, in_grid)):
            inside = all(min(a, n) >= 0 and a + n <= m for a, n, m in zip(first, box.shape, grid, strict=True))
            if not inside:
                raise ValueError(f"the box at {first} of {box.shape} lies outside of the grid {grid}")
    if any(a.overlaps(b) for a, b in combinations(found, 2)):
        raise ValueError("two boxes of the stencil share a place")
    return StencilStructure(out_grid, in_grid, found, numbers)


class _Format(NamedTuple):
    names: tuple[str, ...]  # of attributes of the structure, which are what it is made of
    unflatten: Callable[..., Structure]

    def flatten(self, structure: Structure) -> Fields:
        found = {name: getattr(structure, name) for name in self.names}
        if "boxes" in found:
            found["boxes"] = tuple(tuple(box) for box in found["boxes"])
        return found


_FORMATS = {
    "csr": _Format(("starts", "cols"), _csr),
    "csc": _Format(("starts", "lines"), _csc),
    "coo": _Format(("rows", "cols"), _coo),
    "dia": _Format(("offsets", "present"), _dia),
    "ell": _Format(("cols", "lengths"), _ell),
    "hyb": _Format(("cols", "lengths", "piece_cols", "piece_lengths", "piece_rows"), _hyb),
    "stencil": _Format(("out_grid", "in_grid", "boxes", "numbers"), _stencil),
}
STORED_FORMATS = tuple(_FORMATS)
