"""Stencil coefficients by offset: a matrix on a grid as an array for each neighbour."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from ...backends import Array, Backend, CutAxis
from ..analysis.symmetry import CHOSEN, ENTRIES
from ..formats.entries.integers import row_strides
from .halo import Axes, are_cut, names_of, plane_beside, windows

Shift = tuple[int, ...]


def neighbours(axes: int) -> list[Shift]:
    """All offsets to neighbours, diagonal ones included; the zero offset is in the middle."""
    return [*itertools.product((-1, 0, 1), repeat=axes)]


@dataclass(frozen=True, eq=False)
class Couplings:
    """`image[x] = sum over s of values[s][x] * u[x + s]`, where each s is -1, 0 or 1 along each axis.

    Attributes:
        bk: whose the arrays are.
        grid: lengths of the axes.
        periodic: which of them are closed to rings. Along the others couplings that leave the grid are zero. An axis
            may be cut (`CutAxis`): then the arrays are the block of this device, inside of `map_parts`.
        values: `(systems or 1, *grid)` by shift; there is one for the shift 0, and one for -s where there is one for s.
        systems: how many matrices there are, None for a single one.
    """

    bk: Backend
    grid: tuple[int, ...]
    periodic: Axes
    values: Mapping[Shift, Array]
    systems: int | None

    @property
    def here(self) -> Shift:
        return (0,) * len(self.grid)

    @property
    def diagonal(self) -> Array:
        return self.values[self.here]

    @property
    def shifts(self) -> tuple[Shift, ...]:
        return tuple(sorted(self.values))

    def moved(self, u: Array, shift: Shift) -> Array:
        """`u[x + shift]`, and 0 off the grid, for `(systems or 1, *grid)` of any lengths."""
        return shifted_array(self.bk, u, shift, self.periodic)

    def with_values(self, values: Mapping[Shift, Array]) -> Couplings:
        """With other values, materialized."""
        return replace(self, values=settled(self.bk, values))

    def map(self, function: Callable[[Array], Array]) -> Couplings:
        """Apply a function to each coefficient."""
        values = self.values
        if isinstance(values, Stacked):
            return replace(self, values=Stacked([*values], function(values.array)))
        return replace(self, values={s: function(a) for s, a in values.items()})

    def astype(self, dtype: np.dtype) -> Couplings:
        """Cast; itself where it has that dtype."""
        return self if self.bk.dtype(self.diagonal) == dtype else self.map(lambda a: self.bk.astype(a, dtype))

    def mirrored(self, shift: Shift) -> Array:
        """Coefficient of the transpose for an offset: from x to x + shift."""
        return self.moved(self.values[opposite(shift)], shift)

    def sum_of_sizes(self) -> Array:
        """Sum of |entries| of each row."""
        return sum_of_terms([self.bk.abs(a) for a in self.values.values()])

    def largest(self, u: Array) -> Array:
        """The largest |u| of each system, `(systems or 1, 1)`, for `(systems or 1, *grid)`; over all blocks."""
        bk = self.bk
        found, names = bk.max_abs(bk.reshape(u, (int(u.shape[0]), -1))), names_of(self.periodic)
        return bk.max_over(found, names) if names else found

    def is_finite(self) -> bool:
        """Are all coefficients finite? For known values; mostly their sum shows it."""
        with np.errstate(all="ignore"):
            return all(np.isfinite(np.sum(a)) or np.isfinite(a).all() for a in self.values.values())

    def is_hermitian(self) -> bool:
        """Is it Hermitian up to what matters to an iteration? For known values, scaled to a unit diagonal.

        The dtype is the one that they were given in: its rounding is no reason to say no.
        """
        if self.is_exactly_hermitian:
            return True
        size = np.sqrt(np.abs(self.diagonal))
        scale = 1 / np.where(size > 0, size, 1)
        largest, difference = 0.0, 0.0
        for s in (s for s in self.values if s >= self.here):
            own, other = (scale * a * self.moved(scale, s) for a in (self.values[s], np.conj(self.mirrored(s))))
            largest = max(largest, float(np.max(np.abs(own), initial=0)), float(np.max(np.abs(other), initial=0)))
            difference = max(difference, float(np.max(np.abs(own - other), initial=0)))
        return difference <= max(CHOSEN, ENTRIES * float(np.finfo(self.diagonal.dtype).eps)) * largest

    @cached_property
    def is_exactly_hermitian(self) -> bool:
        """Is it bitwise Hermitian? For known values."""
        upper = (s for s in self.values if s >= self.here)
        return all(np.array_equal(self.values[s], np.conj(self.mirrored(s))) for s in upper)

    def symmetrised(self) -> Couplings:
        """`(A + A^H) / 2`; itself where it is known to be Hermitian."""
        bk = self.bk
        if bk.on_host and self.is_exactly_hermitian:
            return self
        return self.with_values({s: (a + bk.conj(self.mirrored(s))) / 2 for s, a in self.values.items()})


def opposite(shift: Shift) -> Shift:
    """The opposite offset."""
    return tuple(-s for s in shift)


def sum_of_terms(terms: list[Array]) -> Array:
    """The sum of at least one array."""
    found = terms[0] + terms[1] if len(terms) > 1 else terms[0]
    for term in terms[2:]:
        found = sum_in_place(found, term)
    return found


def sum_in_place(own: Array, term: Array) -> Array:
    """`own + term`; may overwrite `own` in NumPy."""
    if isinstance(own, np.ndarray) and own.shape == term.shape and own.dtype == term.dtype:
        return np.add(own, term, out=own)
    return own + term


def accumulate(sums: dict[Any, Array], key: Any, term: Array) -> None:
    """Add a term to `sums[key]`, whose arrays may be overwritten."""
    sums[key] = sum_in_place(sums[key], term) if key in sums else term


class Stacked(Mapping[Shift, Array]):
    """Mapping of arrays `(rows, *grid)` that are slices of one array `(count, rows, *grid)`."""

    def __init__(self, keys: Sequence[Any], array: Array) -> None:
        self.places, self.array = {key: k for k, key in enumerate(keys)}, array

    def __getitem__(self, key: Any) -> Array:
        return self.array[self.places[key]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def settled(bk: Backend, arrays: Mapping[Any, Array]) -> Mapping[Any, Array]:
    """Materialize: in a compiled program as slices of one array, since each array costs compile time."""
    if bk.is_eager or isinstance(arrays, Stacked):
        return arrays
    return Stacked([*arrays], bk.stack_materialized([*arrays.values()]))


def are_flat(bk: Backend, periodic: Axes) -> bool:
    """Are grids read as windows of flat rows `(batch, n)`, each a single operation without a copy?"""
    return bk.has_windows and not bk.spreads_arrays() and not any(periodic)


def distance(shift: Shift, grid: tuple[int, ...]) -> int:
    """Distance of an offset in the flat order of the points, last axis fastest."""
    return sum(s * stride for s, stride in zip(shift, row_strides(grid)))


def shifted_arrays(bk: Backend, u: Array, shifts: Iterable[Shift], periodic: Axes) -> dict[Shift, Array]:
    """`u[x + shift]` by offset, for `(rows, *grid)`.

    Unspecified past the end of a grid line, where `shifted_array` has zeros.

    Cost: a message for each side of a cut axis.
    """
    if are_cut(periodic):
        steps_of_all = [*shifts]
        return dict(zip(steps_of_all, windows(bk, bk.materialize(u), steps_of_all, periodic), strict=True))
    rows, *grid = map(int, u.shape)
    steps = {s: distance(s, tuple(grid)) for s in shifts}
    if not are_flat(bk, periodic):
        u = bk.materialize(u)
        return {s: shifted_array(bk, u, s, periodic) for s in steps}
    n, before, after = math.prod(grid), -min(0, *steps.values()), max(0, *steps.values())
    flat = bk.pad_materialized(bk.reshape(u, (rows, n)), before, after)
    return {s: bk.reshape(flat[:, before + k : before + k + n], u.shape) for s, k in steps.items()}


def shifted_array(bk: Backend, u: Array, shift: Shift, periodic: Axes) -> Array:
    """`u[x + shift]` on `(rows, *grid)`, with zeros outside, and wrap-around along periodic axes.

    Along cut axes the steps are -1, 0 or 1, and cost a message each.
    """
    cut, widths = [slice(None)], [(0, 0)]
    for axis, (step, ring) in enumerate(zip(shift, periodic), 1):
        n = int(u.shape[axis])
        if step and isinstance(ring, CutAxis):
            u = _moved_by_one(bk, u, axis, ring, step)
        elif ring and step % n:
            split = [slice(None)] * len(u.shape)
            first, rest = list(split), list(split)
            first[axis], rest[axis] = slice(step % n, None), slice(None, step % n)
            u = bk.concat([u[tuple(first)], u[tuple(rest)]], axis)
        open_step = 0 if ring else max(-n, min(n, step))
        cut.append(slice(max(0, open_step), n + min(0, open_step)))
        widths.append((max(0, -open_step), max(0, open_step)))
    return bk.pad(u[tuple(cut)], widths) if any(map(any, widths)) else u


def _moved_by_one(bk: Backend, u: Array, axis: int, ring: CutAxis, step: int) -> Array:
    n, rest = int(u.shape[axis]), [slice(None)] * len(u.shape)
    rest[axis] = slice(1, n) if step > 0 else slice(0, n - 1)
    plane, kept = plane_beside(bk, u, axis, ring, step), u[tuple(rest)]
    return bk.concat([kept, plane] if step > 0 else [plane, kept], axis)
