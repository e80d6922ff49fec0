"""Stencil coefficients of a function whose values are not known: its program measures them, spread as vectors are.

What a trace finds are flat diagonals, which no compiler spreads over several axes of a mesh.
"""

from __future__ import annotations

import numpy as np

from .....backends import Array, Cut
from .....sparse import Operator, UnsupportedOperation
from .....sparse.operators.couplings import Couplings, Shift, opposite
from .....sparse.operators.cut_stencil import CutStencil
from .....sparse.operators.cut_values import cut_stencil


def couplings_by_products(A: Operator, grid: tuple[int, ...], cut: Cut) -> Couplings:
    """Stencil coefficients of A on a cut grid.

    Raises:
        UnsupportedOperation: it is no stencil of neighbours, or cannot be traced.

    Cost: as of `cut_stencil`.
    """
    bk, alone = A.bk, Cut(cut.mesh, cut.names)
    zeros = bk.spread_over(bk.zeros((1, *grid), A.dtype, getattr(A, "like", None)), alone, 1)
    found = cut_stencil(A, alone, bk.on_grid(zeros, grid, alone))
    if not isinstance(found, CutStencil):
        raise UnsupportedOperation(
            f"multigrid was asked for a function of arrays {grid} that {found}; expected couplings of neighbours. Give "
            "a matrix, or preconditioner='jacobi'."
        )
    far = next((shift for shift in found.shifts if max(map(abs, shift)) > 1), None)
    if far is not None:
        raise UnsupportedOperation(
            f"multigrid was asked for a function that couples points of the grid {grid} at a distance of {far}; "
            "expected neighbours, across corners at most. Give preconditioner='jacobi'."
        )
    values = {s: _on_grid(found, s, bk.constant(value)) for s, value in zip(found.shifts, found.values, strict=True)}
    for shift in [(0,) * len(grid), *map(opposite, found.shifts)]:
        values.setdefault(shift, zeros)
    return Couplings(bk, grid, found.periodic, values, None)


def _on_grid(A: CutStencil, shift: Shift, value: Array) -> Array:
    """`(1, *grid)`: a number in all points that have this neighbour."""
    bk, axes = A.bk, len(A.grid)
    if len(value.shape):
        return value[None]
    found = bk.reshape(value, (1,) * (1 + axes))
    for axis, (n, step, ring) in enumerate(zip(A.grid, shift, A.periodic, strict=True)):
        there = np.arange(n) + step
        inside = ring | ((there >= 0) & (there < n))
        along = bk.asarray(
            inside.reshape([-1 if k == axis else 1 for k in range(-1, axes)]).astype(A.dtype), like=value
        )
        found = found * bk.materialize(along)  # or the compiler would make one constant of all axes
    return bk.spread_over(found, A.spread, -1)
