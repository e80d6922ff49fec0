"""Sparsity structure: the static positions of the entries, the layout of the values, and orders of users' values."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend, without_compilers
from ...backends.interface.kernels import Bilinear
from .entries.integers import Order, check_shape, csr_array, entries_in, is_canonical, rows_first, starts_of
from .entries.values import Regather, concatenated_values

S = TypeVar("S", bound="Structure")
Sources = tuple[np.ndarray, ...]
Layout = Callable[[Backend, Sequence[Array], int | None], tuple[Array, ...]]  # (bk, values, systems) -> new values


class Slots(NamedTuple):
    """Entries in row order, rising columns within a row, none twice; int32 `(nnz,)` each."""

    rows: np.ndarray
    cols: np.ndarray
    slots: np.ndarray  # where its value is in the concatenation of the raveled value arrays


class Structure(ABC):
    """Where the entries of a matrix are and how its values are laid out: NumPy int32, immutable, compared by content.

    Places without an entry (padding) may occur among the values: they hold 0 and have no gradient.

    Attributes:
        format: the word that `to(format)` understands.
        shape: `(n, m)`.
    """

    format: ClassVar[str]
    takes_all: ClassVar[bool] = True  # can entries at any places be stored in it?
    gathers: ClassVar[bool] = True  # do its products read `indices`?
    cuts_values: ClassVar[bool] = False  # does a product take parts of the arrays?
    values_by_rows: ClassVar[bool] = False  # are the values those of the entries in row order?
    shape: tuple[int, int]

    def __init__(self, shape: Sequence[int]) -> None:
        self.shape = check_shape(shape)

    # --- what a format defines ----------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def form(self) -> Bilinear:
        """Static description of the products, without arrays, as compilers keep it with their programs."""

    @property
    @abstractmethod
    def value_shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the value arrays."""

    @property
    @abstractmethod
    def nnz(self) -> int:
        """Number of entries, without padding."""

    def is_hermitian(self, values: Sequence[np.ndarray]) -> bool:
        """Cheap bitwise test of A = Aᴴ for finite entries; False leaves it open."""
        return False

    @abstractmethod
    def _find_entries(self) -> Slots: ...

    @abstractmethod
    def _static(self) -> tuple[Any, ...]:
        """Everything that identifies the structure besides format and shape: arrays, numbers, tuples."""

    @classmethod
    @abstractmethod
    def from_entries(cls: type[S], rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> tuple[S, Sources]:
        """The structure of entries in row order without duplicates, and for each value array the entry in each slot.

        -1 stands for padding.
        """

    @property
    def indices(self) -> tuple[np.ndarray, ...]:
        """The integer arrays that the products gather with."""
        return ()

    @property
    def masks(self) -> tuple[np.ndarray, ...]:
        """Integer masks of padding, which only the gradient by the values needs; after `indices`."""
        return ()

    def summary(self) -> str:
        """The structure in a few words, for `repr` and `explain`."""
        return ""

    # --- what follows -------------------------------------------------------------------------------------------------

    def entries(self) -> Slots:
        """All entries in row order. Cost: one pass over the entries, once."""
        return self._entries

    @cached_property
    def _entries(self) -> Slots:
        return self._find_entries()

    def in_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Rows and columns of the entries in some rows, int64."""
        every, cols, _ = self.entries()
        return entries_in(np.searchsorted(every, rows), np.searchsorted(every, rows + 1), cols, rows)

    @property
    def size(self) -> int:
        """Number of stored values, with padding."""
        return sum(math.prod(shape) for shape in self.value_shapes)

    def laid_out(self, cls: type[Structure]) -> tuple[Structure, Layout] | None:
        """Shortcut to another format that does not visit all entries; None if there is none."""
        return None

    def flipped(self) -> Structure | None:
        """The transpose with the very arrays of values and indices; None where the format has no such."""
        return None

    def row_block(self, values: Sequence[np.ndarray], first: int, last: int) -> tuple[np.ndarray, ...] | None:
        """Shortcut to rows, columns and known values of the entries in consecutive rows; None where there is none."""
        return None

    def pruned(
        self, values: Sequence[np.ndarray], systems: int | None
    ) -> tuple[Structure, Sequence[np.ndarray]] | None:
        """Shortcut to known values without zeros that does not visit all entries; None where there is none."""
        return None

    def convert(self, cls: type[S]) -> tuple[S, Regather]:
        """The same entries in another format, and the conversion of the values."""
        rows, cols, slots = self.entries()
        structure, sources = cls.from_entries(rows, cols, self.shape)
        return structure, Regather.composed(slots, sources)

    def transposed(self) -> tuple[Structure, Regather]:
        """The structure of the transpose, and the conversion of the values. Cost: one sort in linear time, once."""
        return self._transposed

    @cached_property
    def _transposed(self) -> tuple[Structure, Regather]:
        rows, cols, slots = self.entries()
        order = rows_first(cols, self.shape[1])
        structure, sources = type(self).from_entries(cols[order], rows[order], self.shape[::-1])
        return structure, Regather.composed(slots[order], sources)

    def diagonal(self, bk: Backend, values: Sequence[Array], systems: int | None) -> Array:
        """`(min(n, m),)`, 0 where nothing is stored; of a batch `(systems, min(n, m))`."""
        return self._to_diagonal(bk, values, systems)[0]

    @cached_property
    def _to_diagonal(self) -> Regather:
        rows, cols, slots = self.entries()
        on = rows == cols
        places = np.full(min(self.shape), -1, np.int32)
        places[rows[on]] = slots[on]
        return Regather((places,))

    def padding(self) -> tuple[np.ndarray | None, ...]:
        """For each value array where it holds entries (bool), None where everywhere."""
        if self.nnz == self.size:
            return (None,) * len(self.value_shapes)
        found = np.zeros(self.size, bool)
        found[self.entries().slots] = True
        ends = np.cumsum([math.prod(shape) for shape in self.value_shapes])[:-1]
        return tuple(p.reshape(s) for p, s in zip(np.split(found, ends), self.value_shapes, strict=True))

    def masked(self, bk: Backend, values: Sequence[Array]) -> tuple[Array, ...]:
        """The values with 0 in all padding."""
        masks = [p if p is None else bk.asarray(p, like=v) for p, v in zip(self.padding(), values, strict=True)]
        return tuple(v if p is None else bk.where(p, v, 0) for v, p in zip(values, masks, strict=True))

    def to_scipy(self, values: Sequence[np.ndarray]) -> sp.csr_array:
        """SciPy CSR array of known values."""
        rows, cols, slots = self.entries()
        flat = concatenated_values(get_backend("numpy"), values)
        return csr_array(flat[slots], cols, starts_of(rows, self.shape[0]), self.shape)

    @cached_property
    def by_columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Where the values of the entries are, column by column, their rows, and where each column starts."""
        rows, cols, slots = self.entries()
        found = csr_array(slots, cols, starts_of(rows, self.shape[0]), self.shape).tocsc()
        return found.data.astype(np.intp), found.indices, found.indptr  # NumPy gathers with these at once

    def compiled(self, values: Sequence[np.ndarray]) -> Any:
        """SciPy's matrix of this very format, sharing all arrays, whose product is compiled; None if it has none."""
        return None

    def on_diagonal(self, count: int) -> Structure | None:
        """The structure of this many copies on the diagonal, whose values follow each other; None if it has no such."""
        return None

    @cached_property
    def digest(self) -> bytes:
        """Content hash. Cost: one pass over the arrays, once."""
        state = hashlib.blake2b(f"{type(self).__name__} {self.shape}".encode(), digest_size=16)
        for part in self._static():
            if isinstance(part, np.ndarray):
                state.update(f"{part.dtype.str} {part.shape}".encode())
                state.update(np.ascontiguousarray(part).data)
            else:
                state.update(repr(part).encode())
        return state.digest()

    def __hash__(self) -> int:
        return hash(self.digest)

    def __eq__(self, other: object) -> bool:
        return self is other or (type(self) is type(other) and self.digest == other.digest)


# --- orders in which users give values ---

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
