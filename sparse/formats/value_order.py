"""Orders in which users give the values of a sparse matrix, where these are not the order in which it stores them."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from ...backends import Array, Backend, without_compilers
from .entries.integers import is_canonical
from .entries.order import Order, rows_first
from .entries.regather import Regather, concatenated_values
from .structure import Structure

Shapes = tuple[tuple[int, ...], ...]


class ValueOrder:
    """The arrays in which a user gives the values of a structure, and the place of each number in the matrix.

    Compared by content, as compilers keep programs for a matrix with its order.

    Attributes:
        structure: of the matrix.
        shapes: of the given arrays.
        places: row and column of each given value; outside of the matrix it is ignored. None: the values are those of
            the entries in row order.
    """

    def __init__(
        self, structure: Structure, shapes: Shapes, places: tuple[np.ndarray, ...] | None = None
    ) -> None:  # fmt: skip
        self.structure, self.shapes, self.places = structure, shapes, places

    @classmethod
    def of(cls, structure: Structure, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, ...]) -> ValueOrder | None:
        """The order of values of a shape; None where the structure stores them in this very way."""
        inside = all(not len(i) or (i.min() >= 0 and i.max() < k) for i, k in zip((rows, cols), structure.shape))
        in_rows = inside and len(rows) == structure.nnz and is_canonical(rows, cols)
        order = cls(structure, (shape,), None if in_rows else (rows, cols))
        if structure.value_shapes != (shape,):
            return order
        if structure.values_by_rows:
            return None if in_rows else order
        slots = order.slots
        return None if np.all((slots == np.arange(len(slots))) | (slots < 0)) else order

    def __getstate__(self) -> dict[str, Any]:
        return {"structure": self.structure, "shapes": self.shapes, "places": self.places}

    @cached_property
    def digest(self) -> bytes:
        """Content hash."""
        state = hashlib.blake2b(repr(self.shapes).encode(), digest_size=16)
        for array in self.places or ():
            state.update(np.ascontiguousarray(array, np.int64).data)
        return state.digest()

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, ValueOrder) and self.digest == other.digest)

    @cached_property
    def slots(self) -> np.ndarray:
        """Where each given value is stored, in the concatenation of the raveled arrays; -1: it is ignored."""
        every, (n, m) = self.structure.entries(), self.structure.shape
        if self.places is None:
            return every.slots
        rows, cols = (np.asarray(place, np.int64) for place in self.places)
        if not len(every.slots):
            return np.full(len(rows), -1, np.int32)
        keys, wanted = every.rows * np.int64(m) + every.cols, rows * m + cols
        at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        stored = (rows >= 0) & (rows < n) & (cols >= 0) & (cols < m) & (keys[at] == wanted)
        return np.where(stored, every.slots[at], np.int32(-1))

    @cached_property
    def _to_storage(self) -> tuple[Order | None, Regather]:
        """Summation of the values of one place, where there are several, and the layout of the sums."""
        size = self.structure.size
        given = np.flatnonzero(self.slots >= 0).astype(np.int32)
        given = given[rows_first(self.slots[given], size)]
        stored = self.slots[given]
        first = np.ones(len(stored), bool)
        first[1:] = stored[1:] != stored[:-1]
        source, order = np.full(size, -1, np.int32), None
        source[stored[first]] = given if first.all() else np.arange(np.count_nonzero(first))
        if not first.all():
            order = Order(stored[first], stored[first], given, np.cumsum(first, dtype=np.int32) - np.int32(1))
        return order, Regather(_split(source, self.structure.value_shapes))

    @cached_property
    def _to_given(self) -> Regather:
        slots = self.slots.copy()
        given = np.flatnonzero(slots >= 0)
        repeated = np.ones(len(given), bool)
        repeated[np.unique(slots[given], return_index=True)[1]] = False
        slots[given[repeated]] = -1
        return Regather(_split(slots, self.shapes))

    def stored(self, bk: Backend, given: Sequence[Array]) -> tuple[Array, ...]:
        """The arrays that the structure stores; with one more axis in front they are those of a batch.

        Raises:
            ValueError: the given arrays have other shapes.
        """
        found = tuple(tuple(int(n) for n in v.shape) for v in given)
        systems = None if found == self.shapes else next((shape[0] for shape in found if shape), None)
        if found != self.shapes and found != tuple((systems, *shape) for shape in self.shapes):
            raise ValueError(
                f"Values of the shapes {found} were given; expected {self.shapes}, in the order in which the values of "
                "the pattern were given, or for a batch of matrices of this pattern the same with one more axis in "
                "front."
            )
        return without_compilers(_stored)(self, bk, given, systems)

    def given(self, bk: Backend, stored: Sequence[Array], systems: int | None) -> tuple[Array, ...]:
        """The values as a user gives them: of those of one place the first is their sum, and the others are 0."""
        return without_compilers(_given)(self, bk, stored, systems)

    # torch.compile: a graph break, as the layouts are NumPy's
    stored._torchdynamo_disable = given._torchdynamo_disable = True  # type: ignore[attr-defined]


def _stored(order: ValueOrder, bk: Backend, given: Sequence[Array], systems: int | None) -> tuple[Array, ...]:
    sums, layout = order._to_storage
    flat = concatenated_values(bk, given, systems)
    return layout(bk, (flat if sums is None else sums.values(bk, flat),), systems)


def _given(order: ValueOrder, bk: Backend, stored: Sequence[Array], systems: int | None) -> tuple[Array, ...]:
    return order._to_given(bk, stored, systems)


def _split(flat: np.ndarray, shapes: Shapes) -> tuple[np.ndarray, ...]:
    ends = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
    return tuple(part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes, strict=True))
