"""Batch of operators of one kind, as a vectorising transformation makes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...backends import Array, Backend
from ..operator import Operator
from .bridge import products_for_host
from .products import Products


class MappedOperator(Products):
    """`size` operators for `systems` rows each: the first rows belong to the first operator.

    `make(arrays)` is one operator; an array whose entry in `axes` is 0 has one more axis in front, over which the
    operators differ, and one whose entry is None is shared.
    """

    def __init__(
        self,
        bk: Backend,
        make: Callable[[Sequence[Array]], Operator],
        arrays: Sequence[Array],
        axes: Sequence[int | None],
        size: int,
        systems: int,
    ) -> None:
        self.bk, self.make, self.arrays, self.axes, self.size = bk, make, tuple(arrays), tuple(axes), size
        self.each, self.rows = systems, size * systems
        self.one = make([a if axis is None else a[0] for a, axis in zip(self.arrays, self.axes, strict=True)])
        self.shape, self.dtype = self.one.shape, self.one.dtype
        shared = self.one.systems is None and all(axis is None for axis in self.axes)
        self.systems = None if shared else self.rows

    def apply(self, x: Array) -> Array:
        bk, (n, m), count = self.bk, self.shape, int(x.shape[0])
        each = 1 if self.systems is None else self.each  # one operator for all takes any number of rows
        image = bk.vmap(lambda rows, *arrays: self.make(arrays).apply(rows), (0, *self.axes))(
            bk.reshape(x, (count // each, each, m)), *self.arrays
        )
        return bk.reshape(image, (count, n))

    def transpose(self) -> Operator:
        return self._map(lambda operator: operator.transpose())

    def conj(self) -> Operator:
        return self._map(lambda operator: operator.conj())

    def astype(self, dtype: np.dtype) -> Operator:
        return self._map(lambda operator: operator.astype(dtype))

    def dense(self) -> Array:
        if self.systems is None:
            return self.one.dense()
        bk, (n, m) = self.bk, self.shape
        return bk.reshape(self._of_each(lambda operator: operator.dense(), (n, m)), (self.rows, n, m))

    def diagonals(self) -> Array:
        if self.systems is None:
            return self.one.diagonals()
        n = min(self.shape)
        return self.bk.reshape(self._of_each(lambda operator: operator.diagonals(), (n,)), (self.rows, n))

    def for_host(self) -> tuple[Sequence[Array], Callable[[Sequence[np.ndarray]], Operator]]:
        return products_for_host(self, self.bk.compiled(*self.arrays))

    def _map(self, change: Callable[[Operator], Operator]) -> MappedOperator:
        def make(arrays: Sequence[Array]) -> Operator:
            return change(self.make(arrays))

        return MappedOperator(self.bk, make, self.arrays, self.axes, self.size, self.each)

    def _of_each(self, part: Callable[[Operator], Array], shape: tuple[int, ...]) -> Array:
        """`part` of every operator, once for each of its systems, `(size, systems of each, *shape)`."""
        bk, each = self.bk, self.each

        def full(_: Array, *arrays: Array) -> Array:
            found = bk.reshape(part(self.make(arrays)), (-1, *shape))
            return bk.broadcast_to(found, (each, *shape))

        index = bk.zeros((self.size,), self.dtype, self.arrays[0] if self.arrays else None)
        return bk.vmap(full, (0, *self.axes))(index, *self.arrays)
