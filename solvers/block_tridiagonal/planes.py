"""Partition of a grid into planes, each of which is coupled to the one before and the one after it only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ...sparse.formats.entries.grid import row_strides
from ...sparse.operators.couplings import Shift

Grid = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Index arrays of a partition into `count` blocks of `size` places; -1 is padding.

    Attributes:
        order: the unknown at each place, `(count * size,)`.
        position: the place of each unknown, `(n,)`.
        within: where the couplings within blocks are, `(count, size * size)`; sources count through the couplings of
            all points, shift after shift, and -1 stands for zero.
        lower, upper: for each row of a block the columns in the one before, and after, `(count, width, size)`.
        lower_source, upper_source: where these couplings are; -1 where there is none.
        lower_mirror, upper_mirror: for each of them the place, in the arrays of the other side, of the coupling back.
    """

    count: int
    size: int
    order: np.ndarray
    position: np.ndarray
    within: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    lower_source: np.ndarray
    upper_source: np.ndarray
    lower_mirror: np.ndarray
    upper_mirror: np.ndarray

    @cached_property
    def entries_within(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each block the positions of its entries in the m x m matrix, and their sources."""
        found = [np.flatnonzero(one >= 0) for one in self.within]
        return [(places, one[places]) for places, one in zip(found, self.within)]


def numbers_of_blocks(grid: Grid, periodic: tuple[bool, ...]) -> int:
    """Number of entries of the inverses of all blocks."""
    return min(_layout(grid, periodic, axis)[2] for axis in range(len(grid)))


def _layout(grid: Grid, periodic: tuple[bool, ...], axis: int) -> tuple[int, int, int]:
    """Blocks of planes across an axis: their number, size, and numbers. A ring is folded: two planes in each."""
    n, rest = grid[axis], math.prod(grid) // max(grid[axis], 1)
    count, size = ((n + 1) // 2, 2 * rest) if periodic[axis] and n > 2 else (n, rest)
    return count, size, count * size**2


@lru_cache(maxsize=16)
def block_layout(grid: Grid, periodic: tuple[bool, ...], shifts: tuple[Shift, ...]) -> Blocks:
    """Partition across the axis that takes the least memory."""
    axis = min(range(len(grid)), key=lambda k: _layout(grid, periodic, k)[2])
    count, size, _ = _layout(grid, periodic, axis)
    n, strides = math.prod(grid), row_strides(grid)
    unknowns = np.arange(n, dtype=np.int64)
    index = [unknowns // stride % length for stride, length in zip(strides, grid)]
    plane = index[axis]
    rest = unknowns // (strides[axis] * grid[axis]) * strides[axis] + unknowns % strides[axis]
    block = np.minimum(plane, grid[axis] - 1 - plane) if size * grid[axis] > n and count < grid[axis] else plane
    slot = rest + np.where(plane > block, size // 2, 0)
    position = block * size + slot
    order = np.full(count * size, -1, np.int64)
    order[position] = unknowns
    within, sides = np.full(count * size * size, -1, np.int32), {-1: [], 1: []}  # type: ignore[var-annotated]
    for k, shift in enumerate(shifts):
        there, valid = np.zeros(n, np.int64), np.ones(n, bool)
        for s, i, length, stride, ring in zip(shift, index, grid, strides, periodic):
            valid &= ring | ((i + s >= 0) & (i + s < length))
            there += (i + s) % length * stride
        here, there = unknowns[valid], there[valid]
        step = block[there] - block[here]
        same = step == 0
        within[position[here[same]] * size + slot[there[same]]] = k * n + here[same]
        for side, found in sides.items():
            at = step == side
            found.append((position[here[at]], slot[there[at]], k * n + here[at]))
    lower, lower_source = _packed(sides[-1], count, size)
    upper, upper_source = _packed(sides[1], count, size)
    mirrors = _mirrors(lower, lower_source >= 0, upper, upper_source >= 0)
    return Blocks(
        count, size, order, position, within.reshape(count, size * size),
        lower, upper, lower_source, upper_source, *mirrors,
    )  # fmt: skip


def _packed(found: list[tuple[np.ndarray, ...]], count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and sources `(count, width, size)` of couplings that are listed by offset."""
    filled = np.zeros(count * size, np.int64)
    chosen = []
    for places, columns, sources in found:
        if len(places):
            chosen.append((filled[places].copy(), places, columns, sources))
            filled[places] += 1
    width = max(int(filled.max(initial=0)), 1)
    both = np.zeros((count, width, size), np.int32), np.full((count, width, size), -1, np.int32)
    for layer, places, columns, sources in chosen:
        both[0][places // size, layer, places % size] = columns
        both[1][places // size, layer, places % size] = sources
    return both


def _mirrors(
    lower: np.ndarray, in_lower: np.ndarray, upper: np.ndarray, in_upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Where the coupling from j to i is among the upper ones, for each lower one from i to j; and the other way."""
    size = lower.shape[2]

    def keys(columns: np.ndarray, present: np.ndarray, from_later: bool) -> tuple[np.ndarray, np.ndarray]:
        block, layer, row = np.nonzero(present)
        column = columns[block, layer, row].astype(np.int64)
        first, second = (column, row) if from_later else (row, column)  # in the earlier block, and in the later one
        earlier = block - 1 if from_later else block
        return (earlier * size + first) * size + second, np.flatnonzero(present)

    (key, place), (other, there) = keys(lower, in_lower, True), keys(upper, in_upper, False)
    by, by_other = np.argsort(key), np.argsort(other)
    mirrors = np.full(lower.size, -1, np.int32), np.full(upper.size, -1, np.int32)
    mirrors[0][place[by]] = there[by_other]
    mirrors[1][there[by_other]] = place[by]
    return mirrors[0].reshape(lower.shape), mirrors[1].reshape(upper.shape)
