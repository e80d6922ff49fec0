"""Porous media: conductivities of cells, and the matrices of their flow. Needs NumPy and SciPy only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

Grid = tuple[int, ...]


def flow(
    k: np.ndarray, closed: bool = False, periodic: Sequence[int] = (), ratios: Sequence[float] | None = None
) -> sp.csr_array:
    """`-div(k grad u)` of cells, with harmonic means on the faces.

    Args:
        k: conductivities; of cells with 0 the row is one of the identity.
        closed: no flow through the sides, but through the first one; else all are open.
        periodic: axes that are rings.
        ratios: factors of the flow along each axis.
    """
    cells, diagonal = np.arange(k.size).reshape(k.shape), np.zeros(k.shape)
    entries = []
    for axis, ratio in enumerate(ratios or [1.0] * k.ndim):
        other, across = np.roll(k, -1, axis), np.roll(cells, -1, axis)
        face = np.where(k * other > 0, 2 * ratio * k * other / np.where(k + other > 0, k + other, 1), 0)
        if axis not in periodic:
            first, last = ((*[slice(None)] * axis, at) for at in (0, -1))
            face[last] = 0
            diagonal[first] += 2 * ratio * k[first] * (axis == 0 or not closed)
            diagonal[last] += 2 * ratio * k[last] * (not closed)
        diagonal += face + np.roll(face, 1, axis)
        entries += [(-face, cells, across), (-face, across, cells)]
    entries.append((np.where(diagonal > 0, diagonal, 1), cells, cells))
    data, rows, cols = (np.concatenate([a.ravel() for a in parts]) for parts in zip(*entries, strict=True))
    found = sp.csr_array((data, (rows, cols)), (k.size, k.size))
    found.sum_duplicates()
    found.eliminate_zeros()
    return found


def bilinear(k: np.ndarray) -> tuple[sp.csr_array, Grid]:
    """Bilinear (trilinear) elements with a conductivity each, zero on the sides: 9 (27) points a row; and the grid."""
    axes, grid = k.ndim, tuple(n + 1 for n in k.shape)
    steps, masses = np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([[2.0, 1.0], [1.0, 2.0]]) / 6
    local = np.zeros((2**axes, 2**axes))
    for axis in range(axes):
        term = np.ones((1, 1))
        for other in range(axes):
            term = np.kron(term, steps if axis == other else masses)
        local += term
    nodes = np.arange(np.prod(grid)).reshape(grid)
    corners = [
        nodes[tuple(slice(c, c + n) for c, n in zip(corner, k.shape, strict=True))].ravel()
        for corner in np.ndindex(*(2,) * axes)
    ]
    rows, cols = (np.concatenate(a) for a in zip(*((i, j) for i in corners for j in corners), strict=True))
    data = np.concatenate([value * k.ravel() for value in local.ravel()])
    A = sp.csr_array((data, (rows, cols)), (nodes.size, nodes.size))
    inside = nodes[(slice(1, -1),) * axes].ravel()
    return sp.csr_array(A[inside][:, inside]), tuple(n - 2 for n in grid)


def lognormal(grid: Grid, sigma: float, length: float = 0.0, seed: int = 0) -> np.ndarray:
    """exp(sigma N(0, 1)), independent in each cell or of a correlation length in cells."""
    field = np.random.default_rng(seed).standard_normal(grid)
    if length:
        waves = np.meshgrid(*(2 * np.pi * np.fft.fftfreq(n) for n in grid), indexing="ij")
        field = np.fft.ifftn(np.fft.fftn(field) * np.exp(-(length**2) * sum(w * w for w in waves) / 2)).real
    return np.exp(sigma * field / field.std())


def binary(grid: Grid, contrast: float, cells: int = 1, share: float = 0.5, seed: int = 0) -> np.ndarray:
    """1 and `contrast` (in a share) on blocks of so many cells."""
    draw = np.random.default_rng(seed).random([-(-n // cells) for n in grid])
    k = np.where(draw < share, contrast, 1.0)
    for axis in range(len(grid)):
        k = k.repeat(cells, axis)
    return k[tuple(slice(0, n) for n in grid)]


def chequered(grid: Grid, contrast: float, count: int = 14) -> np.ndarray:
    """Large blocks in turn, as many along each axis."""
    numbers = np.ix_(*(np.arange(n) * count // n for n in grid))
    return np.where(sum(numbers) % 2 == 0, 1.0, contrast)


def channels(grid: Grid, contrast: float, count: int = 24, seed: int = 1) -> np.ndarray:
    """Meandering channels along the first axis, one to four cells wide, in a lognormal ground."""
    draw, x = np.random.default_rng(seed), np.arange(grid[0])
    k = np.exp(draw.standard_normal(grid))
    for _ in range(count):
        middles = [_meander(x, n, draw) for n in grid[1:]]
        for width in range(draw.integers(1, 5)):
            first, *others = middles
            k[(x, (first + width) % grid[1], *others)] = contrast
    return k


def lines(grid: tuple[int, int], contrast: float, width: int = 1, count: int = 24, seed: int = 2) -> np.ndarray:
    """Curved lines (a large contrast) or walls (a small one) from side to side, of so many cells, in a ground of 1."""
    draw, x, k = np.random.default_rng(seed), np.arange(grid[0]), np.ones(grid)
    for _ in range(count):
        middle = _meander(x, grid[1], draw)
        for step in range(width):
            k[x, (middle + step) % grid[1]] = contrast
    return k


def fractures(
    grid: tuple[int, int], contrast: float, width: int = 1, count: int = 40, length: float = 80, seed: int = 3
) -> np.ndarray:
    """Straight ones of a length in cells, at all angles."""
    draw, k = np.random.default_rng(seed), np.ones(grid)
    along = np.arange(-length / 2, length / 2, 0.4)
    for _ in range(count):
        angle, middle = draw.uniform(0, np.pi), draw.uniform(0, grid)
        for step in range(width):
            x = np.round(middle[0] + along * np.cos(angle) - step * np.sin(angle)).astype(int)
            y = np.round(middle[1] + along * np.sin(angle) + step * np.cos(angle)).astype(int)
            inside = (x >= 0) & (x < grid[0]) & (y >= 0) & (y < grid[1])
            k[x[inside], y[inside]] = contrast
    return k


def inclusions(grid: Grid, contrast: float, count: int, radii: tuple[float, float], seed: int = 4) -> np.ndarray:
    """Discs or balls."""
    draw, k = np.random.default_rng(seed), np.ones(grid)
    places = np.indices(grid)
    for _ in range(count):
        middle = draw.uniform(0, grid)
        distance = sum((x - m) ** 2 for x, m in zip(places, middle, strict=True))
        k[distance < draw.uniform(*radii) ** 2] = contrast
    return k


def _meander(x: np.ndarray, n: int, draw: np.random.Generator) -> np.ndarray:
    swing = draw.uniform(0.02, 0.15) * n * np.sin(2 * np.pi * (x / draw.uniform(0.3, 1) / n + draw.uniform()))
    found: np.ndarray = (draw.uniform(0, n) + swing + draw.uniform(-0.5, 0.5) * x).astype(int) % n
    return found
