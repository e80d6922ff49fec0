"""Checkpoints: states after given numbers of iterations, stored in buffers that the loop carries.

The state at a checkpoint is what a solve with that limit would have returned. It is made when the loop passes the
checkpoint, so neither the time to compile nor the number of steps grows with how many there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...backends import Array, Backend
from .outcome import Outcome
from .stopping import Limits


class Checkpoints:
    """Checkpoints of one solve's limits; their buffers are `Outcome`s of arrays `(batch, k, ...)`."""

    def __init__(self, bk: Backend, limits: Limits, like: Array) -> None:
        self.bk, self.count = bk, len(limits)
        self.table = bk.asarray(limits.table(), like=like)  # (1 or batch, k)
        self.from_start = min(limits.rows[0], default=1) == 0

    def empty(self, now: Outcome) -> Outcome:
        """Empty buffers for outcomes like this one."""
        bk = self.bk

        def room(a: Array) -> Array:
            return bk.zeros((int(a.shape[0]), self.count, int(a.shape[1])), bk.dtype(a), a)

        return Outcome._make((*(room(a) for a in now[:-1]), ()))

    def due(self, steps: Array, active: Array) -> Array:
        """`(batch, 1)`: has an active system reached a checkpoint?"""
        bk = self.bk
        return active & bk.any(self.table == steps, 1, keepdims=True)

    def keep(self, kept: Outcome, now: Outcome, due: Array) -> Outcome:
        """Write the current state to the buffers at the checkpoints that are due."""
        bk, one = self.bk, 0 * self.table + 1
        row = bk.sum(bk.where(self.table < now.steps, one, 0 * one), 1, keepdims=True, dtype=bk.dtype(one))
        row = bk.where(due, row, 0 * row + self.count)  # beyond the end: dropped
        return Outcome._make((*(bk.put_row(a, row, b) for a, b in zip(kept[:-1], now[:-1], strict=True)), ()))

    def all(self, kept: Outcome, end: Outcome) -> Outcome:
        """`(k, batch, ...)`: stored states, and the final one at checkpoints after a system's end."""
        bk = self.bk
        axes = bk.matrix_transpose(self.table)[..., None]  # (k, 1 or batch, 1)
        ended = axes >= end.steps

        def merged(a: Array, b: Array) -> Array:
            return bk.where(ended, b[None, ...], bk.permute_dims(a, (1, 0, 2)))

        found = Outcome._make((*(merged(a, b) for a, b in zip(kept[:-1], end[:-1], strict=True)), ()))
        if isinstance(end.history, tuple):
            return found
        return found._replace(history=self._histories(end.history, found.steps))

    def each(self, solved: Callable[[Array | None], Outcome]) -> Outcome:
        """`(k, batch, ...)`: outcomes of separate solves for each limit, in one loop that compiles `solved` once.

        Args:
            solved: the solve for limits `(1 or batch, 1)`; None gives the state before the first step.
        """
        bk, start = self.bk, solved(None)
        recorded = not isinstance(start.history, tuple)
        batch, longest = int(start.norm.shape[0]), int(start.history.shape[0]) if recorded else 0
        lines: Any = bk.zeros((batch, self.count, longest), bk.dtype(start.norm), start.norm)
        numbers = bk.asarray(np.arange(self.count, dtype=np.int32)[None], like=start.norm)

        def one(state: Any) -> Any:
            i, kept, lines = state
            limits = bk.where(numbers == i, self.table, 0 * self.table)
            limit = bk.sum(limits, 1, keepdims=True, dtype=bk.dtype(limits))
            found, row = solved(limit), 0 * start.steps + i
            kept = Outcome._make((*(bk.put_row(a, row, b) for a, b in zip(kept[:-1], found[:-1], strict=True)), ()))
            return i + 1, kept, bk.put_row(lines, row, bk.matrix_transpose(found.history)) if recorded else lines

        state = bk.asarray(np.zeros((1, 1), np.int32), like=start.norm), self.empty(start), lines
        _, kept, lines = bk.while_loop(lambda state: bk.any(state[0] < self.count), one, state)
        found = Outcome._make((*(bk.permute_dims(a, (1, 0, 2)) for a in kept[:-1]), ()))
        return found._replace(history=bk.permute_dims(lines, (1, 2, 0))) if recorded else found

    def _histories(self, history: Array, steps: Array) -> Any:
        """`(k, most steps + 1, batch)`: history up to each checkpoint, NaN after it."""
        bk = self.bk
        lines = bk.asarray(np.arange(int(history.shape[0]), dtype=np.int32)[None, :, None], like=history)
        seen = lines <= bk.permute_dims(steps, (0, 2, 1))
        return bk.where(seen, history[None, ...], bk.full_like(history, np.nan)[None, ...])
