"""Halos of grids: planes next to an array along its axes, which its neighbours own where the axis is cut.

An axis is open (False), a ring (True), or cut into blocks, one of which is here (`CutAxis`). Works on `(rows, *grid)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...backends import Array, Backend, CutAxis

Axes = tuple[Any, ...]  # of bool or CutAxis each


def are_cut(periodic: Axes) -> bool:
    """Is one of the axes cut?"""
    return any(isinstance(axis, CutAxis) for axis in periodic)


def length_and_ring(n: int, axis: CutAxis | bool) -> tuple[int, bool]:
    """Length of the whole axis, of which n points are here, and whether it is a ring."""
    return (n * axis.parts, axis.ring) if isinstance(axis, CutAxis) else (n, bool(axis))


def names_of(periodic: Axes) -> tuple[str, ...]:
    """Mesh axes that cut the grid."""
    return tuple(name for axis in periodic if isinstance(axis, CutAxis) for name in axis.names)


def own_part(bk: Backend, table: Array, axis: int, n: int, cut: CutAxis | bool) -> Array:
    """The n entries along `axis` of a table for the whole grid axis that belong to the block here."""
    if not isinstance(cut, CutAxis):
        return table
    here = bk.part_index(cut.names) * n + bk.asarray(np.arange(n, dtype=np.int32))
    return bk.take_in_bounds(bk.asarray(table), here, axis)


def plane_beside(bk: Backend, u: Array, axis: int, ring: CutAxis | bool, side: int, width: int = 1) -> Array:
    """The plane next to u on the side -1 or 1 of an axis of u: of a ring, of the neighbour (one message), or zeros.

    Args:
        width: number of planes, as many as u has at most.
    """
    n = int(u.shape[axis])
    found = u[_between(u, axis, n - width, n) if side < 0 else _between(u, axis, 0, width)]
    if isinstance(ring, CutAxis):
        return bk.from_neighbour(found, ring, side)
    return found if ring else bk.zeros_like(found)


def with_halo(bk: Backend, u: Array, before: Sequence[int], after: Sequence[int], periodic: Axes) -> Array:
    """u with so many planes more before and after it along each axis, corners included: a message each if it is cut.

    The planes of an axis have the halo of those before it, so that corners come from the neighbours' neighbours.
    """
    for axis, (low, high, ring) in enumerate(zip(before, after, periodic, strict=True), 1):
        planes = [plane_beside(bk, u, axis, ring, -1, low)] if low else []
        planes.append(u)
        if high:
            planes.append(plane_beside(bk, u, axis, ring, 1, high))
        u = bk.concat(planes, axis) if len(planes) > 1 else u
    return u


def reach(shifts: Sequence[Sequence[int]]) -> tuple[list[int], list[int]]:
    """The longest steps back and ahead along each axis."""
    steps = [*zip(*shifts, strict=True)]
    return [max(0, -min(along)) for along in steps], [max(0, *along) for along in steps]


def windows(bk: Backend, u: Array, shifts: Sequence[Sequence[int]], periodic: Axes) -> list[Array]:
    """`u[x + shift]` for each shift, zeros from outside, by one halo exchange: two messages for each cut axis at most.

    Args:
        u: `(rows, *grid)`, of a block where axes are cut.
        shifts: steps along each axis, no longer than the block.
    """
    before, after = reach(shifts)
    around, lengths = with_halo(bk, u, before, after, periodic), [int(n) for n in u.shape[1:]]
    return [
        around[(slice(None), *(slice(b + s, b + s + n) for b, s, n in zip(before, shift, lengths, strict=True)))]
        for shift in shifts
    ]


def added_halo(bk: Backend, u: Array, after: Sequence[int], periodic: Axes) -> Array:
    """Transpose of `with_halo` without planes before: the last plane is added to the first one of the next block."""
    for axis, (high, ring) in reversed([*enumerate(zip(after, periodic, strict=True), 1)]):
        if high:
            n = int(u.shape[axis]) - 1
            last, u = u[_between(u, axis, n, n + 1)], u[_between(u, axis, 0, n)]
            if isinstance(ring, CutAxis):
                last = bk.from_neighbour(last, ring, -1)
            if ring:
                first = u[_between(u, axis, 0, 1)] + last
                u = bk.concat([first, u[_between(u, axis, 1, n)]], axis)
    return u


def _between(u: Array, axis: int, start: int, end: int) -> tuple[slice, ...]:
    cut = [slice(None)] * len(u.shape)
    cut[axis] = slice(start, end)
    return tuple(cut)
