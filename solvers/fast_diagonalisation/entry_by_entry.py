"""Test whether the diagonals of a matrix are, entry by entry, those of a Kronecker sum along the axes of a grid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...sparse.formats.entries.grid import row_strides

Diagonal = tuple[int, int, Any]  # axis, offset, and a number, or an array that lies along the axis

_ROWS = 65536  # numbers that are compared at a time


def equals_sum(
    diagonals: np.ndarray,
    offsets: Sequence[int],
    grid: tuple[int, ...],
    shift: Any,
    along: Iterable[Diagonal],
    far: float,
) -> bool | None:
    """True if bitwise equal; False if an entry differs by more than `far`; else None.

    Args:
        diagonals: `(k, n)`, whose entry i is that of row i.
        shift: of the sum, on its main diagonal besides those of `along`.

    Cost: a pass over the entries, or over some of them where they differ.
    """
    expected: dict[int, list[Diagonal]] = {0: [(0, 0, shift)]}
    for axis, offset, values in along:
        expected.setdefault(offset * row_strides(grid)[axis], []).append((axis, offset, values))
    if not set(expected) <= set(offsets):
        return None
    same = True
    for offset, own in zip(offsets, diagonals):
        terms = expected.get(offset)
        if terms is None:  # there is nothing inside of the matrix; what lies outside is no entry
            found = _compare(own[max(0, -offset) : own.size - max(0, offset)], [], far)
        else:
            found = _compare(own.reshape(grid), terms, far)
        if found is False:
            return False
        same = same and found is True
    return same or None


def _compare(own: np.ndarray, terms: list[Diagonal], far: float) -> bool | None:
    """Compare one diagonal with the sum of these, which is zero where an offset leaves the grid."""
    inside = [slice(None)] * own.ndim
    for axis, offset, _ in terms:
        n = own.shape[axis]
        inside[axis] = slice(max(0, -offset), n - max(0, offset))
        ends = own[(slice(None),) * axis + (np.r_[: max(0, -offset), n - max(0, offset) : n],)]
        if np.any(ends):
            return None
    part = own[tuple(inside)]
    total = sum((_within(values, axis, inside) for axis, _, values in terms), own.dtype.type(0))
    total = np.broadcast_to(total, part.shape)
    rows, same = max(1, _ROWS * len(part) // max(part.size, 1)), True
    for start in range(0, len(part), rows):
        a, b = part[start : start + rows], total[start : start + rows]
        if not np.array_equal(a, b):
            if np.max(np.abs(a - b)) > far:
                return False
            same = False
    return same or None


def _within(values: Any, axis: int, inside: list[slice]) -> Any:
    """The values at those positions along an axis."""
    return values if np.ndim(values) == 0 else values[(slice(None),) * axis + (inside[axis],)]
