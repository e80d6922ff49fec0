"""Prolongation and restriction by interpolation weights."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....backends import Array, Backend
from ....backends.host_math import cores
from ....sparse import Composed, storable
from ....sparse.operators.couplings import Shift, are_flat, opposite, shifted_array, shifted_arrays, sum_of_terms
from ....sparse.operators.halo import Axes, added_halo, are_cut
from .weights import Weights, coarse_grid, every

_PART, _LEAST = 32768, 4  # points of the coarser grid in a block of NumPy, and its fewest rows
_SHARED = 4  # times as many points, with several threads


def interpolation_places(factors: tuple[int, ...]) -> list[tuple[Shift, Shift]]:
    """All (p, c) for which a fine point `factor X + p` interpolates from the coarse point X + c."""
    return [(p, c) for p in _box(factors) for c in _box(tuple(k + 1 for k in p))]


def _box(lengths: tuple[int, ...]) -> list[Shift]:
    return [*itertools.product(*map(range, lengths))]


def stacked_weights(bk: Backend, W: Weights, factors: tuple[int, ...]) -> Array:
    """Weights by p and c as one array `(places, systems or 1, *coarse grid)`, zero where there is none."""
    here = (0,) * len(factors)
    zero = bk.zeros_like(W[here][here])
    return bk.stack_materialized([W[p].get(c, zero) for p, c in interpolation_places(factors)])


@storable("interpolation on a grid")
@dataclass(eq=False, repr=False)
class Interpolation(Composed):
    """Interpolation from a coarser grid, or its transpose, the restriction.

    Attributes:
        weights: `(places, systems or 1, *coarse grid)`, in the order of `interpolation_places`; zero where one of
            the two points is off the grid.
        grid: the finer grid.
        factors: coarsening factor of each axis.
        periodic: which axes are rings, or how they are cut: then the grids are blocks, inside of `map_parts`.
        batch: is there one matrix for each system?
        transposed: from the finer to the coarser grid?
    """

    parts = cut = ("weights",)
    is_container = materializes_input = True

    bk: Backend
    weights: Array
    grid: tuple[int, ...]
    factors: tuple[int, ...]
    periodic: Axes
    batch: bool = False
    transposed: bool = False

    def __post_init__(self) -> None:
        shape, _ = self._form("weights")
        axes = {len(self.grid), len(self.factors), len(self.periodic), len(shape) - 2}
        if len(axes) > 1 or min(self.grid, default=1) < 1 or set(self.factors) - {1, 2}:
            raise ValueError(f"An interpolation on the grid {self.grid} by the factors {self.factors} does not fit.")
        expected = (len(interpolation_places(self.factors)), *self.coarse)
        found = shape[:1] + shape[2:]
        if found != expected or (shape[1] != 1 and not self.batch):
            raise ValueError(f"The weights of an interpolation have the shape {found}; expected {expected}.")
        super().__post_init__()

    @property
    def coarse(self) -> tuple[int, ...]:
        return coarse_grid(self.grid, self.factors)

    @property
    def by_place(self) -> Weights:
        """Weights by p and c."""
        found: dict[Shift, dict[Shift, Array]] = {}
        for k, (p, c) in enumerate(interpolation_places(self.factors)):
            found.setdefault(p, {})[c] = self.weights[k]
        return found

    def scaled(self, scale: Array) -> Interpolation:
        """Interpolation of the coarser unknowns divided by `scale`, `(systems or 1, *coarse grid)`."""
        bk, weights, near = self.bk, self.weights, _box(self.factors)
        scale = bk.astype(scale, bk.dtype(weights))
        scales = bk.stack([shifted_array(bk, scale, c, self.periodic) for c in near])
        at = np.array([near.index(c) for _, c in interpolation_places(self.factors)], np.int32)
        return replace(self, weights=bk.materialize(weights * bk.take_in_bounds(scales, at, 0)))

    def _settle(self) -> None:
        sizes = math.prod(self.grid), math.prod(self.coarse)
        self.shape = (sizes[1], sizes[0]) if self.transposed else sizes
        (_, systems, *_), self.dtype = self._form("weights")
        self.systems = systems if self.batch else None

    def transpose(self) -> Interpolation:
        return replace(self, transposed=not self.transposed)

    def apply(self, x: Array) -> Array:
        rows = int(x.shape[0])
        weights = self.array("weights")
        own = {place: weights[k] for k, place in enumerate(interpolation_places(self.factors))}
        if self.transposed:
            return self.bk.reshape(self._down(own, self.bk.reshape(x, (rows, *self.grid))), (rows, self.shape[0]))
        return self.bk.reshape(self._up(own, self.bk.reshape(x, (rows, *self.coarse))), (rows, self.shape[0]))

    def _up(self, own: dict[tuple[Shift, Shift], Array], u: Array) -> Array:
        bk, axes = self.bk, len(self.grid)
        if bk.on_host:
            return self._up_on_host(own, u)
        near = self._near(u)
        parts = [_from_near(own, near, p) for p in _box(self.factors)]
        split = bk.reshape(bk.stack(parts), (*self.factors, *map(int, u.shape)))
        order = [axes, *(k for axis in range(axes) for k in (axes + 1 + axis, axis))]
        whole = bk.reshape(
            bk.permute_dims(split, order), (int(u.shape[0]), *(n * f for n, f in zip(self.coarse, self.factors)))
        )
        return whole[(slice(None), *(slice(0, n) for n in self.grid))]

    def _near(self, u: Array) -> dict[Shift, Array]:
        """`u[X + c]` by c."""
        return shifted_arrays(self.bk, u, _box(self.factors), self.periodic)

    def _up_on_host(self, own: dict[tuple[Shift, Shift], Array], u: np.ndarray) -> np.ndarray:
        """Interpolate in NumPy by blocks of coarse rows, which stay in the cache."""
        image = np.empty((len(u), *self.grid), np.result_type(u, self.dtype))

        def work(start: int, end: int) -> None:
            near = {c: a[:, : end - start] for c, a in self._near(u[:, start : end + 1]).items()}
            rows = {place: w[:, start:end] for place, w in own.items()}
            fine = image[:, start * self.factors[0] : end * self.factors[0]]
            for p in _box(self.factors):
                to: Any = fine[(slice(None), *(slice(k, None, f) for k, f in zip(p, self.factors)))]
                to[:] = _from_near(rows, near, p)[(slice(None), *map(slice, to.shape[1:]))]

        cores.in_blocks(work, self.coarse[0], self._at_a_time)
        return image

    @property
    def _at_a_time(self) -> int:
        """Coarse rows per block in NumPy: all of a periodic axis; blocks are larger with several threads."""
        size = _PART if cores.count == 1 else _SHARED * _PART
        return self.coarse[0] if self.periodic[0] else max(size // math.prod(self.coarse[1:]), _LEAST)

    def _down(self, own: dict[tuple[Shift, Shift], Array], u: Array) -> Array:
        if not self.bk.on_host:
            return self._from_rows(own, u)
        image, factor = np.empty((len(u), *self.coarse), np.result_type(u, self.dtype)), self.factors[0]

        def work(start: int, end: int) -> None:
            first = max(start - 1, 0)
            rows = {place: w[:, first:end] for place, w in own.items()}
            image[:, start:end] = self._from_rows(rows, u[:, factor * first : factor * end])[:, start - first :]

        cores.in_blocks(work, self.coarse[0], self._at_a_time)
        return image

    def _from_rows(self, own: dict[tuple[Shift, Shift], Array], u: Array) -> Array:
        bk = self.bk
        rows = {p: every(bk, u, p, self.factors) for p in _box(self.factors)}
        if bk.on_host:  # each is read up to four times
            rows = {p: np.ascontiguousarray(a) for p, a in rows.items()}
        sums = {c: sum_of_terms([own[p, c] * rows[p] for p in rows if (p, c) in own]) for c in _box(self.factors)}
        if are_cut(self.periodic):
            return self._added(sums)
        if not are_flat(bk, self.periodic):
            return sum_of_terms([shifted_array(bk, a, opposite(c), self.periodic) for c, a in sums.items()])
        count, each = int(u.shape[0]), bk.concat([*sums.values()], 0)
        found = shifted_arrays(bk, each, map(opposite, sums), self.periodic)
        return sum_of_terms([found[opposite(c)][k * count : (k + 1) * count] for k, c in enumerate(sums)])

    def _added(self, sums: dict[Shift, Array]) -> Array:
        """The sum of `sums[c][X - c]` on a cut grid, by one message for each cut axis."""
        upper = [f - 1 for f in self.factors]
        whole = [
            self.bk.pad(a, [(0, 0), *((k, high - k) for k, high in zip(c, upper))]) if any(upper) else a
            for c, a in sums.items()
        ]
        return added_halo(self.bk, sum_of_terms(whole), upper, self.periodic)


def _from_near(own: dict[tuple[Shift, Shift], Array], near: dict[Shift, Array], p: Shift) -> Array:
    """Interpolated values at the points `factor X + p`."""
    return sum_of_terms([own[p, c] * near[c] for c in _box(tuple(k + 1 for k in p))])
