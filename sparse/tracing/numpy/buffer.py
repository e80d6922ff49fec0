"""Memory that views look at: what it holds now, and how views read and write it.

Which elements a view has is left to NumPy: a *ghost*, an array of bytes that nobody writes, is sliced, transposed and
reshaped in place of the numbers, and its strides tell.

>>> buffer = Buffer(np.arange(6.0).reshape(2, 3))
>>> column = buffer.ghost[:, 1]
>>> buffer.read(column)
array([1., 4.])
>>> buffer.write(column, np.zeros(2))
>>> buffer.value
array([[0., 0., 2.],
       [3., 0., 5.]])
"""

from __future__ import annotations

import math

import numpy as np

from ...formats.entries.integers import affine
from ..engine.linear import Linear
from ..engine.positions import assemble, scatter_add, select
from ..engine.strided import Slices, embed, slice_rows, slices_at
from .values import Value, as_linear, broadcast, embed_known, plus, reshape, take

_SHAPES = 6  # in which the buffer is looked at that are remembered


class Buffer:
    """Attributes:
    value: what it holds: a `Linear` or an array, which is never written to.
    ghost: a view of all of it.
    """

    def __init__(self, value: Value) -> None:
        self.value: Value = value if isinstance(value, Linear) else np.asarray(value)
        self.dtype = self.value.dtype
        self.shape: tuple[int, ...] = tuple(self.value.shape)
        self.size = math.prod(self.shape)
        self.exposed = False  # does somebody have its numbers?
        self.ghost = np.empty(self.shape, np.int8)
        self._first = self.ghost.__array_interface__["data"][0]
        self._shapes = [self.shape]

    def note(self, ghost: np.ndarray) -> None:
        """Views are parts of a grid that was made by a reshape."""
        if self._is_all(ghost) and ghost.shape not in self._shapes and len(self._shapes) < _SHAPES:
            self._shapes.append(ghost.shape)

    def positions(self, ghost: np.ndarray) -> np.ndarray:
        """The flat position of each element of a view."""
        if 0 in ghost.shape:
            return np.zeros(ghost.shape, np.int64)
        return affine(self._start(ghost), ghost.strides, ghost.shape)

    def take(self, positions: np.ndarray) -> Value:
        """A copy of elements."""
        return take(self.value, positions)

    def read(self, ghost: np.ndarray) -> Value:
        """The elements of a view."""
        if self._is_all(ghost):
            return reshape(self.value, ghost.shape)
        if not isinstance(self.value, Linear) or 0 in ghost.shape:
            flat = np.zeros(0, self.dtype) if 0 in ghost.shape else self.value.reshape(-1)
            return flat[self.positions(ghost)] if flat.size else np.zeros(ghost.shape, self.dtype)
        found = self._slices(ghost)
        if found is None:
            return take(self.value, self.positions(ghost))
        return slice_rows(reshape(self.value, found[0]), found[1], ghost.shape)

    def write(self, ghost: np.ndarray, value: Value) -> None:
        """Replace the elements of a view by an array of its shape and of the buffer's dtype."""
        if 0 in ghost.shape:
            return
        if self._is_all(ghost):
            whole = reshape(value, self.shape)
            self._set(whole if isinstance(whole, Linear) else np.array(whole))  # the array may be written to later
            return
        if isinstance(self.value, Linear) or isinstance(value, Linear):
            embedded = self._embedded(ghost, value)
            if embedded is not None:
                self._set(plus(self._without(ghost), embedded))
                return
        self.assign(self.positions(ghost), value)

    def assign(self, positions: np.ndarray, value: Value) -> None:
        """Replace elements; of those that are given twice the last one holds."""
        flat = positions.reshape(-1)
        if not (isinstance(self.value, Linear) or isinstance(value, Linear)):
            new = np.array(self.value, order="C")
            new.reshape(-1)[flat] = np.broadcast_to(value, positions.shape).reshape(-1)
            self._set(new)
        elif len(flat):
            sources = np.arange(self.size)
            sources[flat] = self.size + np.arange(len(flat))
            value = reshape(broadcast(value, positions.shape), (len(flat),))
            self._set(assemble([self.value, value], sources.reshape(self.shape)))

    def accumulate(self, ghost: np.ndarray, value: Value) -> None:
        """Add an array to the elements of a view."""
        if 0 in ghost.shape:
            return
        if self._is_all(ghost):
            self._set(plus(self.value, reshape(value, self.shape)))
            return
        embedded = self._embedded(ghost, value)
        if embedded is None:
            self.accumulate_at(self.positions(ghost), value)
        else:
            self._set(plus(self.value, embedded))

    def accumulate_at(self, positions: np.ndarray, value: Value) -> None:
        """As `np.add.at`, with flat positions, of which some may be the same."""
        if isinstance(self.value, Linear) or isinstance(value, Linear):
            self._set(scatter_add(as_linear(self.value), positions, value))
        else:
            new = np.array(self.value, order="C")
            np.add.at(new.reshape(-1), positions.reshape(-1), np.broadcast_to(value, positions.shape).reshape(-1))
            self._set(new)

    def _set(self, value: Value) -> None:
        self.value = value if isinstance(value, Linear) else np.asarray(value)

    def _start(self, ghost: np.ndarray) -> int:
        return int(ghost.__array_interface__["data"][0] - self._first)

    def _is_all(self, ghost: np.ndarray) -> bool:
        return ghost.size == self.size and ghost.flags.c_contiguous

    def _slices(self, ghost: np.ndarray) -> tuple[tuple[int, ...], Slices] | None:
        """The view as slices of the buffer in some shape."""
        distances = [stride if n > 1 else 0 for stride, n in zip(ghost.strides, ghost.shape)]
        for shape in (*self._shapes, (self.size,)):
            found = slices_at(self._start(ghost), distances, ghost.shape, shape)
            if found is not None:
                return shape, found
        return None

    def _embedded(self, ghost: np.ndarray, value: Value) -> Value | None:
        """Zeros with the value at the elements of a view; None where only single positions tell these."""
        if not isinstance(value, Linear):
            if not np.any(value):
                return np.broadcast_to(np.zeros((), self.dtype), self.shape)
            return embed_known(value, self.positions(ghost), self.shape)
        found = self._slices(ghost)
        part = None if found is None else embed(value, found[1], found[0])
        return None if part is None else reshape(part, self.shape)

    def _without(self, ghost: np.ndarray) -> Value:
        """What the buffer holds, with zeros in place of the view."""
        if not isinstance(self.value, Linear) and not np.any(self.value):
            return self.value
        inside = np.zeros(self.size, bool)
        inside[self.positions(ghost).reshape(-1)] = True
        inside = inside.reshape(self.shape)
        zero = np.zeros((), self.dtype)
        if not isinstance(self.value, Linear):
            return np.where(inside, zero, self.value)
        return select(inside, [self.value, np.broadcast_to(zero, self.shape)])
