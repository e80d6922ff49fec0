"""Gather, segment sums, pad, permute and flip by functions of the array API standard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..interface.arrays import Array, Integers, have_one_dtype
from ..interface.kernels import Kernels
from .host import OfIndices, on_host
from .scatter import scatter_rows
from .sums import Halving, halving


class ArrayApiIndexing(Kernels):
    """`take` of the standard. Index arrays of NumPy are moved to the device of the data once."""

    name: str
    namespace: Any
    xp: Any
    of_indices: OfIndices
    is_array: Callable[[Any], bool]

    def take_in_bounds(self, x: Array, index: Integers, axis: int = 0) -> Array:
        shape, axis = tuple(x.shape), axis % len(x.shape)
        taken = self.namespace.take(x, self._positions(index, x), axis=axis)
        if len(index.shape) == 1:
            return taken
        return self.namespace.reshape(taken, (*shape[:axis], *index.shape, *shape[axis + 1 :]))

    def segment_sum(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        xp, shape = self.namespace, tuple(values.shape)
        zero = xp.zeros((1, *shape[1:]), dtype=values.dtype, device=values.device)
        if not count or not shape[0]:
            return xp.zeros((count, *shape[1:]), dtype=values.dtype, device=values.device)
        host = ids if isinstance(ids, np.ndarray) else on_host(ids, self.name)
        plan: Halving = self.of_indices.get(host, ("halving", count), lambda index: halving(index, count))
        found = values if plan.order is None else self.take_in_bounds(values, plan.order)
        for first, second in plan.steps:
            found = self.take_in_bounds(found, first) + self.take_in_bounds(xp.concat([found, zero], axis=0), second)
        return self.take_in_bounds(xp.concat([found, zero], axis=0), plan.places)

    def _pad_with_zeros(self, x: Array, widths: Sequence[tuple[int, int]]) -> Array:
        for axis, (before, after) in enumerate(widths):
            shape = tuple(x.shape)
            edges = [
                self.namespace.zeros((*shape[:axis], width, *shape[axis + 1 :]), dtype=x.dtype, device=x.device)
                for width in (before, after)
            ]
            if before or after:
                x = self.namespace.concat([edges[0], x, edges[1]], axis=axis)
        return x

    def concat(self, arrays: Sequence[Array], axis: int | None = 0) -> Array:
        if all(map(self.is_array, arrays)) and have_one_dtype(arrays):
            return self.namespace.concat(list(arrays), axis=axis)
        return self.xp.concat(arrays, axis=axis)

    def permute_dims(self, x: Array, axes: Sequence[int]) -> Array:
        return self.namespace.permute_dims(x, tuple(axes))

    def flip(self, x: Array, axis: int | Sequence[int] | None = None) -> Array:
        return self.namespace.flip(x, axis=tuple(axis) if isinstance(axis, Sequence) else axis)

    def _scatter_rows(self, rows: Array, places: Integers, values: Array, mode: str) -> Array:
        """A copy of rows `(n, channels)` with others put in at places `(count,)`: "update", "add", "max" or "min"."""
        host = places if isinstance(places, np.ndarray) else on_host(places, self.name)
        return scatter_rows(self.namespace, self.take_in_bounds, rows, host, values, mode)

    def _positions(self, index: Integers, like: Array) -> Array:
        """Positions `(count,)` on the device of `like`."""
        if not isinstance(index, np.ndarray):
            return self.namespace.reshape(index, (-1,))
        device = like.device
        return self.of_indices.get(index, ("positions", str(device)), lambda i: self._moved(i, device))

    def _moved(self, index: np.ndarray, device: Any) -> Array:
        flat = np.ascontiguousarray(index.reshape(-1), np.int64)
        return self.namespace.asarray(flat, dtype=self.namespace.int64, device=device)
