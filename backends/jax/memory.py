"""Materialization in XLA: intermediate results that are computed once and stored, and constants that are split."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from ..interface.arrays import Array
from .sharding.grid_rows import on_cells
from .tracing import is_compiled

_SMALL = 16384  # numbers that are cut in no time
_MOST_ROWS = 5  # of one array that are read at the same time: seven were in each other's way in the cache


class JaxMemory:
    """Barriers against XLA's rematerialization of cheap operations, and its elementwise splitting of constants."""

    asarray: Callable[..., Array]
    compiled: Callable[..., bool]
    spreads_arrays: Callable[[], bool]

    def uncut(self, x: Array) -> Array:
        few = x.ndim > 1 and x.shape[-2] <= _MOST_ROWS
        return lax.optimization_barrier(x) if few and x.size > _SMALL and is_compiled(x) else x

    def apart(self, x: np.ndarray) -> Any:
        return tuple(map(self.asarray, x)) if x.size > _SMALL and self.compiled() else self.asarray(x)

    def materialize(self, x: Array) -> Any:
        if not is_compiled(x):
            return x
        if self.spreads_arrays():  # XLA's partitioner makes wrong numbers of what is written into a part of a grid
            return on_cells(lax.optimization_barrier, x)
        if not x.size:
            return x
        return _written(x, lax.slice(x, (0,) * x.ndim, (1,) * x.ndim), (0,) * x.ndim)

    def pad_materialized(self, x: Array, before: int, after: int) -> Any:
        if not is_compiled(x) or self.spreads_arrays() or not x.size:
            return self.materialize(lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0), (before, after, 0)]))
        return _written(jnp.zeros((x.shape[0], before + x.shape[1] + after), x.dtype), x, (0, before))

    def stack_materialized(self, arrays: Sequence[Array]) -> Array:
        if len(arrays) < 2 or not is_compiled(arrays[0]):
            return self.materialize(jnp.stack(arrays))
        found, first = jnp.zeros((len(arrays), *arrays[0].shape), arrays[0].dtype), (0,) * arrays[0].ndim
        for k, x in enumerate(arrays):  # each is written in place, and none fused into what follows
            found = lax.dynamic_update_slice(found, x[None], (k, *first), allow_negative_indices=False)
        return found


def _written(buffer: Array, part: Array, start: Sequence[int]) -> Array:
    """Write a part into `buffer` from `start` on.

    XLA does it in place, and never fuses it into its users. At a constant index it would, so the index is hidden.
    """
    places = tuple(lax.optimization_barrier(np.int32(k)) for k in start)
    return lax.dynamic_update_slice(buffer, part, places, allow_negative_indices=False)
