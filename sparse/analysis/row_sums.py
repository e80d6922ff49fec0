"""Row sums of a square DIA matrix, and the diagonal dominance that follows from them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from ...backends.host_math import cores
from ...backends.interface.kernels import inside
from ..formats import DIA
from ..operator import Operator

_ROWS = 65_536  # numbers that stay in the cache


class RowSums:
    """Row sums of a matrix `(n, n)`.

    Attributes:
        diagonal: `(n,)`, its real part.
        size: `(n,)`, |a_ii|.
        others: `(n,)`, the sum of the other |a_ij|.
        most: entries in a row at most.
    """

    def __init__(self, diagonal: np.ndarray, size: np.ndarray, others: np.ndarray, most: int) -> None:
        self.diagonal, self.size, self.others, self.most = diagonal, size, others, most

    @cached_property
    def one_sign(self) -> bool:
        """As `facts.has_diagonal_of_one_sign`: but for rows of zeros, and not of zeros alone."""
        d, zero = self.diagonal, self.diagonal == 0
        if zero.any():
            d = d[~zero | (self.others > 0)]
        return len(d) > 0 and bool(np.all(d > 0) or np.all(d < 0))

    @cached_property
    def is_dominant(self) -> bool:
        """As `facts.is_diagonally_dominant`: |a_ii| >= sum of the others in every row, up to rounding."""
        return self.dominates(1 - 8 * (self.most + 1) * float(np.finfo(self.others.dtype).eps))

    def dominates(self, factor: float) -> bool:
        """Is |a_ii| at least that times the sum of the others in every row? False where one is no finite number."""
        for start in range(0, len(self.size), _ROWS):  # which mostly says no in the first one
            part = slice(start, start + _ROWS)
            if not np.all((self.size[part] >= factor * self.others[part]) & np.isfinite(self.size[part])):
                return False
        return True


def row_sums(matrix: Operator) -> RowSums | None:
    """Row sums of one square DIA matrix with known values; None for others. Cost: a pass over the values."""
    if not isinstance(matrix, DIA) or matrix.systems is not None or matrix.shape[0] != matrix.shape[1]:
        return None
    values = matrix.known_values()
    if values is None:
        return None
    structure: Any = matrix.structure
    n, (diagonals,) = matrix.shape[0], values
    real = np.abs(diagonals[:0]).dtype
    diagonal, size, others = np.zeros(n, real), np.zeros(n, real), np.zeros(n, real)
    places = [(d, offset, lo, hi) for d, offset, lo, hi in inside(structure.offsets, n, n)]

    def add(start: int, stop: int) -> None:
        for d, offset, lo, hi in places:
            rows = slice(max(lo, start), min(hi, stop))
            if rows.start < rows.stop and offset:
                others[rows] += np.abs(diagonals[d, rows])
            elif rows.start < rows.stop:
                diagonal[rows], size[rows] = diagonals[d, rows].real, np.abs(diagonals[d, rows])

    with np.errstate(all="ignore"):  # what overflows counts as not dominated
        cores.in_blocks(add, n, _ROWS)
    return RowSums(diagonal, size, others, len(structure.offsets))
