"""Checkpoints: states after given numbers of iterations, stored in buffers that the loop carries.

The state at a checkpoint is what a solve with that limit would have returned. It is made when the loop passes the
checkpoint, so neither the time to compile nor the number of steps grows with how many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...backends import Array, Backend
from .stopping import Limits


class Checkpoints:
    """Checkpoints of one solve: a list of arrays `(batch, k)` of a state is stored in buffers `(batch, c, k)`."""

    def __init__(self, bk: Backend, limits: Limits, like: Array) -> None:
        self.bk, self.count = bk, len(limits)
        self.table = bk.asarray(limits.table(), like=like)  # (1 or batch, c)
        self.from_start = min(limits.rows[0], default=1) == 0

    def empty(self, now: Sequence[Array]) -> list[Array]:
        bk = self.bk
        return [bk.zeros((int(a.shape[0]), self.count, int(a.shape[1])), bk.dtype(a), a) for a in now]

    def due(self, steps: Array, active: Array) -> Array:
        """`(batch, 1)`: has an active system reached a checkpoint?"""
        return active & self.bk.any(self.table == steps, 1, keepdims=True)

    def keep(self, kept: Sequence[Array], now: Sequence[Array], steps: Array, due: Array) -> list[Array]:
        """Write the current state to the buffers at the checkpoints that are due."""
        bk, one = self.bk, 0 * self.table + 1
        row = bk.sum(bk.where(self.table < steps, one, 0 * one), 1, keepdims=True, dtype=bk.dtype(one))
        row = bk.where(due, row, 0 * row + self.count)  # rows beyond the end are dropped
        return [bk.put_row(a, row, b) for a, b in zip(kept, now, strict=True)]

    def merged(self, kept: Sequence[Array], end: Sequence[Array], steps: Array) -> list[Array]:
        """`(c, batch, k)`: stored states, and the final one at checkpoints after a system's end."""
        bk = self.bk
        ended = bk.matrix_transpose(self.table)[..., None] >= steps
        return [bk.where(ended, b[None, ...], bk.permute_dims(a, (1, 0, 2))) for a, b in zip(kept, end, strict=True)]

    def histories(self, history: Array, steps: Array) -> Array:
        """`(c, most steps + 1, batch)`: the history up to each checkpoint, NaN after it; steps `(c, batch, 1)`."""
        bk = self.bk
        lines = bk.asarray(np.arange(int(history.shape[0]), dtype=np.int32)[None, :, None], like=history)
        seen = lines <= bk.permute_dims(steps, (0, 2, 1))
        return bk.where(seen, history[None, ...], bk.full_like(history, np.nan)[None, ...])

    def each(self, solved: Callable[[Array], Sequence[Array]], start: Sequence[Array], steps: Array) -> list[Array]:
        """`(c, batch, k)`: the results of separate solves for each limit, in one loop that compiles `solved` once.

        Args:
            solved: the solve for limits `(1 or batch, 1)`.
            start: arrays like its results.
        """
        bk = self.bk
        numbers = bk.asarray(np.arange(self.count, dtype=np.int32)[None], like=start[0])

        def one(state: Any) -> Any:
            i, kept = state
            limits = bk.where(numbers == i, self.table, 0 * self.table)
            results = solved(bk.sum(limits, 1, keepdims=True, dtype=bk.dtype(limits)))
            return i + 1, [bk.put_row(a, 0 * steps + i, b) for a, b in zip(kept, results, strict=True)]

        first = bk.asarray(np.zeros((1, 1), np.int32), like=start[0]), self.empty(start)
        _, kept = bk.while_loop(lambda state: bk.any(state[0] < self.count), one, first)
        return [bk.permute_dims(a, (1, 0, 2)) for a in kept]
