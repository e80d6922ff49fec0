"""Stencil coefficients as a matrix: DIA for SciPy, a Stencil for other libraries."""

from __future__ import annotations

import itertools
from typing import Any

from ....backends import Array
from ....sparse import Operator, SparseMatrix
from ....sparse.formats.entries.box_diagonals import Shifted
from ....sparse.formats.stencil import StencilStructure
from ....sparse.operators.couplings import Couplings, Stacked
from .on_grid import MatrixOnGrid, as_diagonals


def couplings_matrix(A: Couplings, as_grid: bool = False) -> Operator:
    """Matrix in the format with the fastest products in its library, or for `as_grid` as in other libraries."""
    if as_grid or not A.bk.on_host:
        return MatrixOnGrid.of(A)
    if A.systems is None and not any(A.periodic):
        return _of_diagonals(A)
    return couplings_stencil(A).to("csr")


def _of_diagonals(A: Couplings) -> SparseMatrix:
    array = A.values.array if isinstance(A.values, Stacked) else A.bk.stack([*A.values.values()])
    return as_diagonals(A.bk, [*A.values], array)


def couplings_stencil(A: Couplings) -> SparseMatrix:
    """As a Stencil: a box of points per offset, and one more for each wrap-around of a periodic axis."""
    boxes, values = [], []
    for shift, a in A.values.items():
        for box in itertools.product(*(_ranges(n, s, ring) for n, s, ring in zip(A.grid, shift, A.periodic))):
            lo, shape = tuple(r[0] for r in box), tuple(r[1] for r in box)
            if min(shape) > 0:
                boxes.append(Shifted(lo, shape, tuple(r[2] for r in box)))
                part = a[(slice(None), *boxes[-1].rows)]
                values.append(_of_systems(A, part))
    n = A.diagonal.shape[1:]
    structure = StencilStructure(tuple(map(int, n)), tuple(map(int, n)), boxes, [False] * len(boxes))
    size: Any = structure.shape[0]
    return SparseMatrix.build(A.bk, structure, tuple(values), in_shape=(size,), out_shape=(size,))


def _ranges(n: int, step: int, ring: bool) -> list[tuple[int, int, int]]:
    """First row, count and first column of the rows whose neighbour along an axis stays on the grid."""
    inside = (max(0, -step), n - abs(step), max(0, step))
    if not ring or not step:
        return [inside]
    return [inside, (n - 1, 1, 0) if step > 0 else (0, 1, n - 1)]


def _of_systems(A: Couplings, part: Array) -> Array:
    """`(systems, *box)`, of a single matrix `(*box)`."""
    if A.systems is None:
        return part[0]
    return A.bk.broadcast_to(part, (A.systems, *map(int, part.shape[1:])))
