"""Matrices on grids, put together entry by entry: what solvers of grids are compared with."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp


def entries(grid: Sequence[int], couplings: dict[tuple[int, ...], np.ndarray], rings: Sequence[bool]) -> sp.csr_array:
    """Row x has `couplings[s][x]` in column x + s, around the axes that are rings; elsewhere what leaves is dropped."""
    numbers = np.arange(int(np.prod(grid))).reshape(grid)
    found = []
    for shift, values in couplings.items():
        for x in itertools.product(*map(range, grid)):
            y = [i + s for i, s in zip(x, shift)]
            if all(ring or 0 <= i < n for i, n, ring in zip(y, grid, rings)):
                column = numbers[tuple(i % n for i, n in zip(y, grid))]
                found.append((numbers[x], column, np.broadcast_to(values, grid)[x]))
    rows, cols, data = zip(*found)
    return sp.csr_array(sp.coo_array((data, (rows, cols)), shape=(numbers.size, numbers.size)))


def diffusion(k: np.ndarray, sides: str = "D", ratios: Sequence[float] | None = None) -> sp.csr_array:
    """`-div(k grad u)` of cells, with harmonic means at faces; each axis D (Dirichlet), N (Neumann) or P (periodic).

    Cells with k = 0 are obstacles: their rows are zero.
    """
    axes, total = k.ndim, np.zeros(k.shape)
    numbers, parts = np.arange(k.size).reshape(k.shape), []
    for axis, (side, ratio) in enumerate(zip(sides * axes if len(sides) == 1 else sides, ratios or [1.0] * axes)):
        for step in (-1, 1):
            other = np.roll(k, -step, axis)
            with np.errstate(invalid="ignore", divide="ignore"):
                face = ratio * np.where(k * other > 0, 2 * k * other / (k + other), 0)
            edge: list[slice | int] = [slice(None)] * axes
            edge[axis] = -1 if step > 0 else 0
            inside, across = face.copy(), np.roll(numbers, -step, axis)
            if side != "P":
                inside[tuple(edge)] = 0
                face[tuple(edge)] = 2 * ratio * k[tuple(edge)] if side == "D" else 0
            total += face
            kept = inside != 0
            parts.append((numbers[kept], across[kept], -inside[kept]))
    rows, cols, data = (np.concatenate(each) for each in zip(*parts))
    A = sp.coo_array((data, (rows, cols)), shape=(k.size, k.size))
    return sp.csr_array(A + sp.diags_array(total.ravel()))


def blocks(n: int, count: int, axes: int = 2, contrast: float = 1e4) -> np.ndarray:
    """Random blocks of two materials."""
    coarse = np.random.default_rng(0).choice([1.0, contrast], size=(count,) * axes)
    index = np.minimum(np.arange(n) * count // n, count - 1)
    return coarse[np.ix_(*[index] * axes)]


def obstacles(n: int) -> np.ndarray:
    """Two discs and a thin wall, where there is nothing."""
    x, y = np.meshgrid(*[(np.arange(n) + 0.5) / n] * 2, indexing="ij")
    solid = ((x - 0.3) ** 2 + (y - 0.3) ** 2 < 0.01) | ((x - 0.7) ** 2 + (y - 0.6) ** 2 < 0.02)
    wall = (np.abs(x - 0.5) < 0.6 / n) & (y < 0.8)
    return np.where(solid | wall, 0.0, 1.0)
