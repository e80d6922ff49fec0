"""Gather, scatter, pad, permute and flip in JAX."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from ..interface.arrays import Array, Integers
from ..interface.kernels import Kernels
from .sharding.grid_rows import GridStack


class JaxIndexing(Kernels):
    """Kernels by gather, scatter and the like, without bounds checks."""

    def take_in_bounds(self, x: Array, index: Integers, axis: int = 0) -> Array:
        where = (slice(None),) * (axis % jnp.ndim(x))
        return x.at[(*where, jnp.asarray(index))].get(mode="promise_in_bounds")

    def segment_sum(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        return jax.ops.segment_sum(values, jnp.asarray(ids), count, indices_are_sorted=sorted)

    def _pad_with_zeros(self, x: Array, widths: Sequence[tuple[int, int]]) -> Array:
        return lax.pad(x, jnp.zeros((), x.dtype), [(lo, hi, 0) for lo, hi in widths])

    def window(self, x: Array, start: Sequence[int], shape: Sequence[int]) -> Array:
        box = [(-s, s + n - m, 0) for s, n, m in zip(start, shape, x.shape[x.ndim - len(shape) :], strict=True)]
        return lax.pad(x, jnp.zeros((), x.dtype), [(0, 0, 0)] * (x.ndim - len(shape)) + box)

    def add_box(self, x: Array, lo: Sequence[int], part: Array) -> Array:
        # in place inside of a compiled program, where a sum with padding would be a pass over all of x
        there = lax.slice(x, lo, [first + n for first, n in zip(lo, part.shape, strict=True)])
        return lax.dynamic_update_slice(x, there + part, lo)

    def permute_dims(self, x: Array, axes: Sequence[int]) -> Array:
        return jnp.transpose(x, axes)

    def flip(self, x: Array, axis: int | Sequence[int] | None = None) -> Array:
        return jnp.flip(x, tuple(axis) if isinstance(axis, Sequence) else axis)

    def put(self, buffer: Array, row: Array, values: Array, active: Array) -> Array:
        systems = jnp.arange(buffer.shape[1])
        row = jnp.where(active[:, 0], row[:, 0], buffer.shape[0])  # beyond the end: dropped
        return buffer.at[row, systems].set(values[:, 0].astype(buffer.dtype), mode="drop")

    def put_row(self, stack: Array, row: Array, values: Array) -> Any:
        if isinstance(stack, GridStack):
            return stack.with_row(row, values)
        return stack.at[jnp.arange(stack.shape[0]), row[:, 0]].set(values, mode="drop")

    def put_block(self, rows: Array, start: Array, values: Array) -> Array:
        return lax.dynamic_update_slice(rows, values, (jnp.zeros((), start.dtype), start[0]))
