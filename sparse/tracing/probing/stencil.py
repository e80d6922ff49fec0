"""A guess that is tested: every row of the matrix has its entries at the same few offsets on the grid.

Single impulses, far from each other, show the offsets; then columns are coloured by a lattice. The guess is dropped
where a nonzero is found that it does not explain.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from .colouring import lattice
from .evaluate import Probe

_DISTANCE = 12  # of impulses along each axis
_ROUNDS = 4
_MOST_OFFSETS = 200


class Triplets(NamedTuple):
    """Entries of a matrix."""

    rows: np.ndarray
    columns: np.ndarray
    values: np.ndarray


def stencil_entries(probe: Probe, grid: tuple[int, ...], rng: np.random.Generator) -> Triplets | None:
    """The entries of a matrix on a grid; None where it is no stencil."""
    if probe.m != probe.n or not grid or min(grid) < 3:
        return None
    offsets, wraps = _offsets(probe, grid, rng)
    if not offsets or len(offsets) > _MOST_OFFSETS:
        return None
    found = lattice(offsets, len(grid))
    if found is None:
        return None
    modulus, weights = found
    index = np.indices(grid).reshape(len(grid), -1)
    colours = np.asarray(weights) @ index % modulus
    for axis in np.flatnonzero(wraps):  # columns beside the seam of a periodic axis have colours of their own
        reach = max(abs(o[axis]) for o in offsets)
        colours = 2 * colours + (index[axis] < 2 * reach)
    names, colours = np.unique(colours, return_inverse=True)
    if probe.n < len(names) or not _is_proper(colours, offsets, wraps, grid):
        return None
    return _values(probe, grid, offsets, wraps, colours, len(names))


def _offsets(probe: Probe, grid: tuple[int, ...], rng: np.random.Generator) -> tuple[list[tuple[int, ...]], np.ndarray]:
    """Offsets from row to column, and along which axes they go over the edge."""
    counts = [max(1, n // _DISTANCE) for n in grid]
    found: set[tuple[int, ...]] = set()
    wraps = np.zeros(len(grid), bool)
    for turn in range(_ROUNDS):
        places = []
        for n, count in zip(grid, counts):
            gap = n // count
            first = 0 if turn == 0 else n - 1 - (count - 1) * gap if turn == 1 else int(rng.integers(gap))
            places.append(first + np.arange(count) * gap)
        x = np.zeros(grid, probe.dtype)
        x[np.ix_(*places)] = rng.uniform(0.5, 1.5, counts)
        rows = np.unravel_index(np.flatnonzero(probe.image(x.reshape(-1))), grid)
        parts = []
        for axis, (n, row, place) in enumerate(zip(grid, rows, places)):
            distance = (place[None, :] - row[:, None] + n // 2) % n - n // 2
            offset = distance[np.arange(len(row)), np.abs(distance).argmin(axis=1)]
            wraps[axis] |= bool(((row + offset < 0) | (row + offset >= n)).any())
            parts.append(offset)
        found |= {tuple(int(i) for i in o) for o in np.unique(np.stack(parts, axis=1), axis=0)}
        if len(found) > _MOST_OFFSETS:
            break
    return sorted(found), wraps


def _rows(
    columns: np.ndarray, offset: tuple[int, ...], wraps: np.ndarray, grid: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows that have these columns at an offset, and which of the columns there is one for."""
    index = [i - o for i, o in zip(np.unravel_index(columns, grid), offset)]
    inside = np.ones(len(columns), bool)
    for axis, n in enumerate(grid):
        if wraps[axis]:
            index[axis] = index[axis] % n
        else:
            inside &= (index[axis] >= 0) & (index[axis] < n)
    rows = np.ravel_multi_index(tuple(i[inside] for i in index), grid)
    return rows, inside


def _is_proper(colours: np.ndarray, offsets: list[tuple[int, ...]], wraps: np.ndarray, grid: tuple[int, ...]) -> bool:
    """Does no row meet a colour twice? Without periodic axes the lattice says so."""
    if not wraps.any():
        return True
    met = np.full((len(offsets), len(colours)), -1)
    columns = np.arange(len(colours))
    for k, offset in enumerate(offsets):
        rows, inside = _rows(columns, offset, wraps, grid)
        met[k, rows] = colours[inside]
    return not any(((a == b) & (a >= 0)).any() for a, b in itertools.combinations(met, 2))


def _values(
    probe: Probe,
    grid: tuple[int, ...],
    offsets: list[tuple[int, ...]],
    wraps: np.ndarray,
    colours: np.ndarray,
    count: int,
) -> Triplets | None:
    """One evaluation for each colour; None where a row is not zero that should be."""
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for colour in range(count):
        chosen = colours == colour
        image = probe.image(chosen.astype(probe.dtype))
        columns = np.flatnonzero(chosen)
        explained = np.zeros(probe.m, bool)
        for offset in offsets:
            rows, inside = _rows(columns, offset, wraps, grid)
            explained[rows] = True
            own = image[rows]
            kept = np.flatnonzero(own)
            parts.append((rows[kept], columns[inside][kept], own[kept]))
        if image[~explained].any():
            return None
    return Triplets(*(np.concatenate(part) for part in zip(*parts)))
