"""Vectors and states updated in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..interface.backend import Array, Backend
from ..interface.containers import tree_leaves
from .transformed import transforming


class TorchUpdates(Backend):
    """The part of the backend about them."""

    def axpy(self, a: Array, x: Array, y: Array) -> Array:
        recorded = torch.is_grad_enabled() and (x.requires_grad or y.requires_grad)  # which may need y as it is
        if recorded or transforming():
            return torch.addcmul(y, x, _scalar(a))
        return y.addcmul_(x, _scalar(a))

    def xpay(self, x: Array, a: Array, y: Array) -> Array:
        return torch.addcmul(x, y, _scalar(a), out=y)

    def step_active(self, step: Callable[[Any], Any], state: Any, active: Array) -> Any:
        if active.shape[0] == 1 or bool(active.all()):
            return step(state)
        # Steps overwrite the state, so the finished systems are saved and restored.
        finished = (~active[:, 0]).nonzero()[:, 0]
        kept = [leaf.index_select(0, finished) for leaf in tree_leaves(state)]
        new = step(state)
        for leaf, old in zip(tree_leaves(new), kept, strict=True):
            leaf.index_copy_(0, finished, old)
        return new

    def put(self, buffer: Array, row: Array, values: Array, active: Array) -> Array:
        systems = active[:, 0].nonzero()[:, 0]
        buffer[row[systems, 0], systems] = values[systems, 0]
        return buffer

    def put_row(self, stack: Array, row: Array, values: Array) -> Array:
        systems = (row[:, 0] < stack.shape[1]).nonzero()[:, 0]
        stack[systems, row[systems, 0]] = values[systems]
        return stack

    def put_block(self, rows: Array, start: Array, values: Array) -> Array:
        first = int(start[0])
        rows[:, first : first + values.shape[1]] = values
        return rows

    def axpy_block(self, c: Array, x: Array, y: Array) -> Array:
        return y.addmm_(c, x)


def _scalar(a: Array) -> Array:
    """One system's `(1, 1)` as a 0-d tensor: torch then updates vectors without broadcasting."""
    return a.reshape(()) if a.shape[0] == 1 else a
