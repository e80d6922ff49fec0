"""Matrix of a level while its numbers are made in a library: scaled, in row order."""

from __future__ import annotations

from typing import NamedTuple

from ....backends import Array, Backend
from ....sparse.formats.compressed import CsrStructure


class ScaledValues(NamedTuple):
    """Matrix of a level in CSR order, scaled from both sides.

    Attributes:
        values: `(nnz,)` or `(systems, nnz)`.
        scale: `(n,)` or `(systems, n)`: the matrix is what it was before, times this from both sides.
        before: the values before scaling.
    """

    values: Array
    scale: Array
    before: Array


def scaled_values(bk: Backend, A: CsrStructure, values: Array, by_rows: bool = False) -> ScaledValues:
    """Values scaled to a unit diagonal (zero where A has none).

    Args:
        by_rows: to unit sums of the absolute values in rows instead, see `scales_of`.
    """
    last = len(values.shape) - 1
    if by_rows:
        size = bk.sum_entries(bk.abs(values), A.rows, A.shape[0], sorted=True)
    else:
        size = bk.abs(A.diagonal(bk, (values,), None if last == 0 else int(values.shape[0])))
    scale = bk.where(size > 0, 1 / bk.sqrt(bk.where(size > 0, size, 1)), 1)
    scale = bk.astype(scale, bk.dtype(values))
    left, right = bk.take_in_bounds(scale, A.rows, last), bk.take_in_bounds(scale, A.cols, last)
    return ScaledValues(values * left * right, scale, values)
