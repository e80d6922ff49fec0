"""Value conversion between formats: one gather with static positions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from ....backends import Array, Backend
from ....backends.interface.arrays import Integers


class Regather:
    """Gather of new value arrays: each place holds one old value, or 0 where its position is -1.

    `slots`: for each new array the positions in the concatenation of the raveled old ones. Of a batch, in which all
    arrays have one more axis in front, each system is laid out in the same way.
    """

    def __init__(self, slots: tuple[np.ndarray, ...]) -> None:
        self.slots = slots
        self.is_unchanged = False

    @classmethod
    def composed(cls, slots: np.ndarray, sources: Sequence[np.ndarray]) -> Regather:
        """Entry -> old slot, followed by new slot -> entry (-1: none)."""
        if not len(slots):
            return cls(tuple(np.full(s.shape, -1, np.int32) for s in sources))
        return cls(tuple(np.where(s < 0, np.int32(-1), slots[s]) for s in sources))

    @classmethod
    def unchanged(cls) -> Regather:
        """Leaves all values as they are."""
        found = cls(())
        found.is_unchanged = True
        return found

    @cached_property
    def _padded(self) -> tuple[bool, ...]:
        return tuple(bool(s.size) and bool(s.min() < 0) for s in self.slots)

    def __call__(self, bk: Backend, values: Sequence[Array], systems: int | None = None) -> tuple[Array, ...]:
        """The values laid out anew; differentiable, and pure NumPy for NumPy arrays.

        `systems`: how many there are along the first axis of all arrays; None: they have no such axis.
        """
        if self.is_unchanged:
            return tuple(values)
        flat = concatenated_values(bk, values, systems)
        return tuple(
            take_or_zero(bk, flat, s) if padded else bk.take_in_bounds(flat, s, len(flat.shape) - 1)
            for s, padded in zip(self.slots, self._padded, strict=True)
        )


def take_or_zero(bk: Backend, flat: Array, positions: np.ndarray) -> Array:
    """Elements of a flat array `(size,)` or `(systems, size)`; 0 where the position is negative."""
    last = len(flat.shape) - 1
    if not int(flat.shape[last]):  # so every position is negative
        return bk.zeros((*flat.shape[:last], *positions.shape), bk.dtype(flat), flat)
    negative = positions < 0
    found = bk.take_in_bounds(flat, np.where(negative, np.int32(0), positions), last)
    return bk.where(bk.asarray(~negative, like=found), found, 0)


def concatenated_values(bk: Backend, values: Sequence[Array], systems: int | None = None) -> Array:
    """Concatenate all raveled values, of a batch for each system along the first axis."""
    lead = () if systems is None else (systems,)
    shapes = [tuple(int(n) for n in v.shape[len(lead) :]) for v in values]
    rows = [v if len(s) == 1 else bk.reshape(v, (*lead, math.prod(s))) for v, s in zip(values, shapes, strict=True)]
    return rows[0] if len(rows) == 1 else bk.concat(rows, len(lead))


# --- Sampled outer products: the derivative of a sparse product with respect to the stored values ---------------------


def entries_sample(bk: Backend, rows: Integers, cols: Integers, y: Array, x: Array, each: bool = False) -> Array:
    """The sum over the batch of y[b, rows] x[b, cols], in the shape to which both index arrays broadcast.

    With `each` the terms of the sum, one more axis in front.
    """
    if each:
        return bk.take_in_bounds(y, rows, 1) * bk.take_in_bounds(x, cols, 1)
    if x.shape[0] == 1:
        return bk.take_in_bounds(y[0], rows) * bk.take_in_bounds(x[0], cols)
    both = bk.take_in_bounds(bk.permute_dims(y, (1, 0)), rows) * bk.take_in_bounds(bk.permute_dims(x, (1, 0)), cols)
    return bk.sum(both, -1)


def ell_sample(bk: Backend, cols: Integers, y: Array, x: Array, each: bool = False) -> Array:
    """`(k, n)`: the sum over the batch of y[b, i] x[b, cols[d, i]]; with `each` its terms, `(batch, k, n)`."""
    if each:
        return y[:, None] * bk.take_in_bounds(x, cols, 1)
    if x.shape[0] == 1:
        return y[0] * bk.take_in_bounds(x[0], cols)
    return bk.sum(bk.permute_dims(y, (1, 0)) * bk.take_in_bounds(bk.permute_dims(x, (1, 0)), cols), 2)
