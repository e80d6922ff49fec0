"""DIA: diagonal format, which stores a few diagonals in full."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend, get_backend
from ...backends.host_math import cores
from ...backends.interface.kernels import Arrays, Bilinear, diagonal_places, inside
from .entries.checked import as_values, known_array
from .entries.integers import check_shape, check_size, csr_array, repeat_rows, starts_from
from .sparse_matrix import SparseMatrix
from .structure import Slots, Sources, Structure, ValueOrder

_BITS = 31  # of a word that stays positive


@dataclass(frozen=True)
class DiaForm(Bilinear):
    """Products of diagonals; indices: the entries of each row as bits of integers (`as_bits`), or nothing."""

    n: int
    m: int
    offsets: tuple[int, ...]

    def product(self, bk: Any, values: Arrays, indices: Arrays, x: Array) -> Array:
        return bk.dia_product(values[0], self.offsets, x, self.n)

    def product_transposed(self, bk: Any, values: Arrays, indices: Arrays, y: Array) -> Array:
        return bk.dia_product(values[0], self.offsets, y, self.m, transposed=True)

    def sample(self, bk: Any, indices: Arrays, y: Array, x: Array, each: bool = False) -> Arrays:
        found = bk.dia_sample(self.offsets, y, x, each)
        if not indices or not self.offsets:
            return (found,)
        present = [indices[0][d // _BITS] // 2 ** (d % _BITS) % 2 for d in range(len(self.offsets))]
        return (bk.where(bk.stack(present) > 0, found, 0),)


def as_bits(mask: np.ndarray) -> np.ndarray:
    """A mask `(k, n)` as int32 `(words, n)`: row d of it is bit d % 31 of word d // 31."""
    words = np.zeros((-(-len(mask) // _BITS), mask.shape[1]), np.int32)
    for d, row in enumerate(mask):
        words[d // _BITS] |= row * np.int32(1 << d % _BITS)
    return words


class Nonzero:
    """Lazy mask of the known values that are not 0."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values

    def __call__(self) -> np.ndarray:
        return self.values != 0


class DiaStructure(Structure):
    """Rising `offsets`; the value of row i, column i + offsets[d] is number i of diagonal d, `(k, n)`.

    `present` tells the entries among the places inside of the matrix: bool `(k, n)`, a function that finds it when it
    is needed, or None for all of them.
    """

    format: ClassVar[str] = "dia"
    gathers = False
    cuts_values: ClassVar[bool] = True

    def __init__(
        self,
        offsets: Sequence[int] | np.ndarray,
        shape: tuple[int, int],
        present: np.ndarray | Callable[[], np.ndarray] | None = None,
    ) -> None:
        super().__init__(shape)
        self.offsets = tuple(int(o) for o in offsets)
        check_size(len(self.offsets) * self.shape[0], "stored values")
        self._present = present

    @property
    def form(self) -> DiaForm:
        return DiaForm(*self.shape, self.offsets)

    @property
    def value_shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((len(self.offsets), self.shape[0]),)

    @cached_property
    def places(self) -> int:
        """Number of places of the diagonals inside of the matrix."""
        return sum(hi - lo for _, _, lo, hi in inside(self.offsets, *self.shape))

    @cached_property
    def present(self) -> np.ndarray | None:
        """`(k, n)` bool: where the entries are; None where every place inside of the matrix is one."""
        found = self._present
        if found is None:
            return None
        given = found() if callable(found) else found
        mask = np.zeros(given.shape, bool)
        for d, _, lo, hi in inside(self.offsets, *self.shape):
            mask[d, lo:hi] = given[d, lo:hi]
        return None if np.count_nonzero(mask) == self.places else mask

    @cached_property
    def nnz(self) -> int:
        return self.places if self.present is None else int(np.count_nonzero(self.present))

    @property
    def masks(self) -> tuple[np.ndarray, ...]:
        return () if self.present is None else (as_bits(self.present),)

    def padding(self) -> tuple[np.ndarray | None, ...]:
        return (self.present,)  # what lies outside of the matrix is never looked at

    def is_hermitian(self, values: Sequence[np.ndarray]) -> bool:
        """Bitwise comparison of each upper diagonal with the lower one of opposite offset."""
        (diagonals,), n = values, self.shape[0]
        opposite = {o: d for d, o in enumerate(self.offsets)}
        if n != self.shape[1] or any(-o not in opposite for o in self.offsets):
            return False
        with np.errstate(all="ignore"):
            for d, offset, lo, hi in inside(self.offsets, n, n):
                own, other = diagonals[d, lo:hi], diagonals[opposite[-offset], lo + offset : hi + offset]
                alone = offset == 0 and own.dtype.kind != "c"
                if offset < 0 or (np.isfinite(np.sum(own)) and (alone or np.array_equal(own, np.conj(other)))):
                    continue
                return False
        return True

    def diagonal(self, bk: Backend, values: Sequence[Array], systems: int | None) -> Array:
        k, lead = min(self.shape), () if systems is None else (systems,)
        if 0 not in self.offsets:
            return bk.zeros((*lead, k), bk.dtype(values[0]), values[0])
        return bk.copy(values[0][..., self.offsets.index(0), :k])

    def to_scipy(self, values: Sequence[np.ndarray]) -> sp.csr_array:
        if isinstance(self._present, Nonzero) and self._present.values is values[0]:
            starts, cols, found = compress_nonzero(self.offsets, self.shape, values[0])
            return csr_array(found, cols, starts, self.shape)
        return super().to_scipy(values)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_present": self.present}  # and no function that finds it

    def in_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        cols = rows[:, None] + np.asarray(self.offsets, np.int64)
        there = (cols >= 0) & (cols < self.shape[1])
        if self.present is not None:
            there &= self.present[:, rows].T
        at, diagonal = np.nonzero(there)
        return rows[at], cols[at, diagonal]

    def row_block(self, values: Sequence[np.ndarray], first: int, last: int) -> tuple[np.ndarray, ...]:
        parts, columns = [(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, values[0].dtype))], self.shape[1]
        for d, offset in enumerate(self.offsets):
            rows = np.arange(max(first, -offset), min(last, columns - offset), dtype=np.int64)
            rows = rows if self.present is None or not len(rows) else rows[self.present[d, rows]]
            parts.append((rows, rows + offset, values[0][d, rows]))
        return tuple(np.concatenate([part[k] for part in parts]) for k in range(3))

    def _find_entries(self) -> Slots:
        starts, cols, slots = compress(self.offsets, self.shape, self.present)
        return Slots(repeat_rows(starts), cols, slots)

    def _static(self) -> tuple[Any, ...]:
        return self.offsets, None if self.present is None else np.packbits(self.present)

    @classmethod
    def from_entries(cls, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> tuple[DiaStructure, Sources]:
        n = shape[0]
        which = np.subtract(cols, rows, dtype=np.int64) + (n - 1)
        used = np.flatnonzero(np.bincount(which, minlength=1)) if len(rows) else np.zeros(0, np.int64)
        check_size(len(used) * n, "stored values, as diagonals. Choose another format:")
        source = np.full((len(used), n), -1, np.int32)
        number = np.zeros(int(used[-1]) + 1 if len(used) else 0, np.int32)
        number[used] = np.arange(len(used), dtype=np.int32)
        source[number[which], rows] = np.arange(len(rows), dtype=np.int32)
        return cls(used - (n - 1), shape, source >= 0), (source,)

    def summary(self) -> str:
        near = ", ".join(str(o) for o in self.offsets[:9]) + (", ..." if len(self.offsets) > 9 else "")
        return f"{len(self.offsets)} diagonals ({near})"


class DIA(SparseMatrix):
    """Diagonals: row i, column i + offsets[d] holds `diagonals[d, i]`, `(k, n)` for n rows; the rest is ignored.

    Diagonals `(systems, k, n)` make a batch of matrices.

    A diagonal is multiplied as a whole: where a vector is infinite or NaN, so is the image in rows that have no entry
    there, but lie on a diagonal of others (as with SciPy's `dia_array`; CSR, CSC and COO multiply entries only).

    SciPy's `dia_array` counts along a diagonal by columns instead: there it is `data[d, i + offsets[d]]`. Offsets come
    in any order, none twice. The backend is that of the values.

    Raises:
        ValueError: the number of diagonals, their length or the offsets do not fit.
        TypeError: the offsets are no integers.

    Examples:
        >>> import numpy as np
        >>> from krylix.sparse import DIA
        >>> DIA(np.array([[2.0, 2.0, 2.0], [-1.0, -1.0, 0.0]]), offsets=[0, 1], shape=(3, 3)).toarray()
        array([[ 2., -1.,  0.],
               [ 0.,  2., -1.],
               [ 0.,  0.,  2.]])
    """

    structure_class = DiaStructure

    def __init__(self, diagonals: Any, offsets: Any, shape: Any) -> None:
        n, m = check_shape(shape)
        bk, values = as_values(diagonals, 2)
        steps = check_offsets(offsets, (n, m))
        if tuple(values.shape[-2:]) != (len(steps), n):
            raise ValueError(
                f"Diagonals of the shape {tuple(values.shape)} were given; expected {(len(steps), n)}: "
                f"one of {n} values, one per row, for each of {len(steps)} offsets."
            )
        order = np.argsort(steps)
        if len(np.unique(steps)) < len(steps):
            raise ValueError(f"The offsets {steps.tolist()} were given; expected each once. Add up the diagonals.")
        if np.any(order[1:] < order[:-1]):
            host = get_backend("numpy") if isinstance(values, np.ndarray) else bk
            values = host.take_in_bounds(values, order, len(values.shape) - 2)
        structure = DiaStructure(steps[order], (n, m))
        self._set(bk, structure, (values,))
        if np.any(order[1:] < order[:-1]):
            rows, cols = np.tile(np.arange(n), len(steps)), (np.arange(n) + steps[:, None]).ravel()
            self.value_order = ValueOrder.of(structure, rows, cols, (len(steps), n))

    def add_to(self, y: Array, x: Array) -> Array:
        structure: Any = self.structure
        found = None
        same = self.bk.dtype(x) == self.bk.dtype(y) == self.dtype
        if same and self.systems is None and self.shape[0] == self.shape[1]:
            where = list(diagonal_places(structure.offsets, *self.shape, False))
            found = self.bk.dia_added(y, self.arrays()[0], where, x)
        return super().add_to(y, x) if found is None else found


def check_offsets(offsets: Any, shape: tuple[int, int]) -> np.ndarray:
    """Offsets of diagonals as int64.

    Raises:
        TypeError: they are no integers.
        ValueError: they are no list, or one lies outside of the matrix.
    """
    found = known_array(offsets, "The offsets")
    if found.dtype.kind not in "iu" and found.size:
        raise TypeError(f"The offsets have the dtype {found.dtype}; expected integers.")
    if found.ndim != 1:
        raise ValueError(f"The offsets have the shape {found.shape}; expected one axis.")
    if found.size and (found.min() <= -max(shape[0], 1) or found.max() >= max(shape[1], 1)):
        raise ValueError(
            f"The offsets {found.tolist()} were given for a matrix of {shape}; "
            f"expected numbers from {1 - shape[0]} to {shape[1] - 1}."
        )
    return found.astype(np.int64)


# --- compressed rows without a sort, by transposing blocks that fit in the cache ---

_BLOCK = 16384  # rows


def compress(
    offsets: Sequence[int], shape: tuple[int, int], present: np.ndarray | None, diagonals: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Starts and columns (int32) of the rows of diagonals, and the values of their entries.

    Args:
        offsets: of the diagonals, rising.
        shape: `(n, m)`.
        present: `(k, n)` bool, where there are entries; None: everywhere inside of the matrix.
        diagonals: `(k, n)`; None: in place of its value each entry has the number of its place, int32.

    Cost: two passes over the places; 48 ms for five diagonals of a million.
    """
    mask, n = _all_inside(offsets, shape) if present is None else present, shape[0]
    counts = np.zeros(n, np.int32)
    for row in mask:
        counts += row
    nnz = check_size(int(counts.sum(dtype=np.int64)), "entries")
    starts, steps = starts_from(counts), np.asarray(offsets, np.int32)
    bases = np.arange(len(offsets), dtype=np.int32) * np.int32(n)
    cols, values = np.empty(nnz, np.int32), np.empty(nnz, np.int32 if diagonals is None else diagonals.dtype)

    def work(lo: int, hi: int) -> None:
        a, b = starts[lo], starts[hi]
        used: Any = mask[:, lo:hi].any(axis=1)
        if used.all():  # of a periodic grid some are empty but for its ends
            used = np.s_[:]
        here, rows = mask[:, lo:hi][used], np.arange(lo, hi, dtype=np.int32)[:, None]
        source = rows + bases[used] if diagonals is None else np.ascontiguousarray(diagonals[:, lo:hi][used].T)
        _keep(here.T, (source, values[a:b]), (rows + steps[used], cols[a:b]))

    cores.in_blocks(work, n, _BLOCK)
    return starts, cols, values


def compress_nonzero(
    offsets: Sequence[int], shape: tuple[int, int], diagonals: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`compress` of known diagonals without zeros."""
    present = np.zeros((len(offsets), shape[0]), bool)
    for d, _, lo, hi in inside(offsets, *shape):
        np.not_equal(diagonals[d, lo:hi], 0, out=present[d, lo:hi])
    return compress(offsets, shape, present, diagonals)


def _keep(here: np.ndarray, *pairs: tuple[np.ndarray, np.ndarray]) -> None:
    """Write what stands where `here` is, row by row: pairs of an array and what is written."""
    where = None if pairs and len(pairs[0][1]) == here.size else np.flatnonzero(here)
    for block, out in pairs:
        if where is None:
            out[:] = block.ravel()
        else:
            np.take(block.ravel(), where, out=out, mode="clip")  # which needs no buffer, as other modes do


def _all_inside(offsets: Sequence[int], shape: tuple[int, int]) -> np.ndarray:
    mask = np.zeros((len(offsets), shape[0]), bool)
    for d, _, lo, hi in inside(offsets, *shape):
        mask[d, lo:hi] = True
    return mask
