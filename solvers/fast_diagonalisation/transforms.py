"""Operators along the axes of a grid around one core: dense, trigonometric and Fourier transforms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...backends import Array
from ...sparse import Composed, Dense, Operator, storable
from ..diagonal import DiagonalOperator
from .trigonometric import KINDS, trigonometric_transform


@storable("along an axis")
@dataclass(eq=False, repr=False)
class AlongAxis(Composed):
    """`vectors @ inner @ inverse` with dense matrices along one axis of the grid.

    Attributes:
        inner: of all unknowns.
        vectors, inverse: `(n_k, n_k)`.
        grid: lengths of the axes.
        axis: which of them.
    """

    parts = ("inner", "vectors", "inverse")

    inner: Operator
    vectors: Dense
    inverse: Dense
    grid: tuple[int, ...]
    axis: int

    def apply(self, x: Array) -> Array:
        return self._along(self.vectors, self.inner.apply(self._along(self.inverse, x)))

    def _along(self, matrix: Dense, x: Array) -> Array:
        """Multiply each line along the axis, for rows `(batch, n)`."""
        bk, n = self.bk, self.grid[self.axis]
        before = int(x.shape[0]) * math.prod(self.grid[: self.axis])
        after = math.prod(self.grid[self.axis + 1 :])
        if after == 1:
            image = bk.product(matrix.matrix, bk.reshape(x, (before, n)))
        elif before == 1:  # the transpose is a view for libraries that hand it to BLAS
            image = bk.product(bk.matrix_transpose(bk.reshape(x, (n, after))), matrix.matrix)
        else:
            lines = bk.permute_dims(bk.reshape(x, (before, n, after)), (0, 2, 1))
            image = bk.product(matrix.matrix, bk.reshape(lines, (before * after, n)))
            image = bk.permute_dims(bk.reshape(image, (before, after, n)), (0, 2, 1))
        return bk.reshape(image, tuple(x.shape))

    def transpose(self) -> AlongAxis:
        inner = self.inner.transpose()
        return AlongAxis(inner, self.inverse.transpose(), self.vectors.transpose(), self.grid, self.axis)


@storable("waves along axes")
@dataclass(eq=False, repr=False)
class AlongTrigonometric(Composed):
    """Trigonometric transforms of one kind along some axes around `inner`.

    Attributes:
        inner: of all unknowns; where `swapped`, of the grid whose last axis has changed places with the only one here.
        kind: of the transform, see `trigonometric.KINDS`.
        grid: lengths of the axes.
        axes: which of them.
        swapped: for libraries that transform the last axis only: the other axes are moved there once, not twice.
    """

    inner: Operator
    kind: str
    grid: tuple[int, ...]
    axes: tuple[int, ...]
    swapped: bool

    def apply(self, x: Array) -> Array:
        bk, batch, rank = self.bk, int(x.shape[0]), len(self.grid)
        order, axes = list(range(rank + 1)), tuple(axis + 1 for axis in self.axes)
        if self.swapped:
            order[axes[0]], order[rank] = rank, axes[0]  # its own inverse
            axes = (rank,)
        lines = bk.reshape(x, (batch, *self.grid))
        lines = bk.permute_dims(lines, order) if self.swapped else lines
        shape = tuple(lines.shape)
        found = trigonometric_transform(bk, self.kind, lines, axes)
        found = bk.reshape(self.inner.apply(bk.reshape(found, (batch, -1))), shape)
        found = trigonometric_transform(bk, KINDS[self.kind].inverse, found, axes)
        return bk.reshape(bk.permute_dims(found, order) if self.swapped else found, (batch, -1))

    def transpose(self) -> AlongTrigonometric:  # the transform is orthonormal
        return replace(self, inner=self.inner.transpose())


@storable("periodic axes")
@dataclass(eq=False, repr=False)
class Periodic(Composed):
    """A diagonal between Fourier transforms along periodic axes, symmetric in the frequencies of each.

    Attributes:
        inner: the diagonal, for all frequencies; real vectors need half of them.
        grid: lengths of the axes.
        axes: the periodic ones.
    """

    inner: DiagonalOperator
    grid: tuple[int, ...]
    axes: tuple[int, ...]

    def apply(self, x: Array) -> Array:
        bk, batch, last = self.bk, int(x.shape[0]), self.axes[-1]
        values = bk.reshape(self.inner.array("values"), (-1, *self.grid))
        if bk.dtype(values).kind == "c":
            x = bk.astype(x, bk.dtype(values))
        length = None if bk.dtype(x).kind == "c" else self.grid[last]
        if length is not None:
            half = [slice(None)] * (last + 1) + [slice(0, length // 2 + 1)]
            values = values[tuple(half)]
        groups = _groups(tuple(axis + 1 for axis in self.axes))
        waves = bk.reshape(x, (batch, *self.grid))
        for axes in groups:
            waves = bk.fourier.forward(waves, axes)
        waves = bk.astype(values, bk.dtype(waves)) * waves
        for axes in reversed(groups[1:]):
            waves = bk.fourier.backward(waves, axes, None)
        return bk.reshape(bk.fourier.backward(waves, groups[0], length), (batch, -1))

    def transpose(self) -> Periodic:
        return self


def _groups(axes: tuple[int, ...]) -> Sequence[tuple[int, ...]]:
    """Groups of as many axes as libraries transform at once, last ones first: these see real arrays."""
    return [axes[max(0, end - 3) : end] for end in range(len(axes), 0, -3)]
