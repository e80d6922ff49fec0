"""Block tridiagonal inverse of a matrix on a small grid, by block elimination: on the host with sparse couplings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend
from ...backends.host_math import batched_inverse, inverse_of_definite
from ...sparse import Composed, storable
from ...sparse.formats.entries.integers import csr_array, row_strides
from ...sparse.formats.entries.values import take_or_zero
from ...sparse.operators.couplings import Couplings, Shift

_SHIFT = 100  # relative shift of the diagonal in rounding units, for singular matrices


@storable("block tridiagonal inverse")
@dataclass(eq=False, repr=False)
class BlockTridiagonalInverse(Composed):
    """Inverse of `(L + D) D^-1 (D + U)`: D holds the pivot blocks (Schur complements), L and U the off-diagonal ones.

    Attributes:
        pivots: the inverses of D, `(systems or 1, blocks, m, m)`.
        lower, upper: the couplings to the block before, and after, `(systems or 1, blocks, width, m)`.
        grid, periodic, shifts: of the couplings; they determine all positions.
        batch: whether each system has its own matrix.

    Stores little more than m values for each unknown, and multiplies twice with each, one block after the other.

    Source: Golub and Van Loan, Matrix Computations, 4th ed., section 4.5.1.
    """

    parts = ("pivots", "lower", "upper")
    is_container = True

    bk: Backend
    pivots: Array
    lower: Array
    upper: Array
    grid: tuple[int, ...]
    periodic: tuple[bool, ...]
    shifts: tuple[tuple[int, ...], ...]
    batch: bool = False

    def __post_init__(self) -> None:
        axes = {len(self.grid), len(self.periodic), *map(len, self.shifts)}
        if len(axes) > 1 or min(self.grid, default=1) < 1 or math.prod(self.grid) > 10**6:
            raise ValueError(f"There are no blocks of the grid {self.grid} with the couplings {self.shifts}.")
        blocks = self._blocks
        expected = [(blocks.count, blocks.size, blocks.size), blocks.lower.shape, blocks.upper.shape]
        found = [tuple(map(int, part.shape)) for part in (self.pivots, self.lower, self.upper)]
        rows = {shape[0] for shape in found}
        if [shape[1:] for shape in found] != expected or len(rows) > 1 or not (self.batch or rows == {1}):
            raise ValueError(f"The parts of a block tridiagonal inverse are {found}; expected {expected} per system.")
        super().__post_init__()

    @property
    def _blocks(self) -> Blocks:
        return block_layout(self.grid, self.periodic, self.shifts)

    def _settle(self) -> None:
        n = math.prod(self.grid)
        self.shape, self.dtype = (n, n), np.dtype(self._library_of(self.pivots).dtype(self.pivots))
        self.systems = int(self.pivots.shape[0]) if self.batch else None

    def transpose(self) -> BlockTridiagonalInverse:
        library, blocks = self._library_of(self.lower), self._blocks
        return replace(
            self,
            pivots=library.matrix_transpose(self.pivots),
            lower=mirrored(library, self.upper, blocks.lower_mirror),
            upper=mirrored(library, self.lower, blocks.upper_mirror),
        )

    def apply(self, x: Array) -> Array:
        bk, blocks, count, size = self.bk, self._blocks, self._blocks.count, self._blocks.size
        pivots, lower, upper = map(self.array, self.parts)
        b = take_or_zero(bk, x, blocks.order)

        def step(pivot: Array, side: Array, columns: Any, b: Array, last: Array) -> tuple[Array, Array]:
            left = b - _coupled(bk, side, columns, last)
            return left, _product(bk, pivot, left)

        last = 0 * b[:, :size]
        if bk.is_eager:
            kept = [b[:, i * size : (i + 1) * size] for i in range(count)]
            for i in range(count):
                kept[i], last = step(pivots[:, i], lower[:, i], blocks.lower[i], kept[i], last)
            last = 0 * last
            for i in reversed(range(count)):
                _, last = step(pivots[:, i], upper[:, i], blocks.upper[i], kept[i], last)
                kept[i] = last
            return bk.take_in_bounds(bk.concat(kept, 1), blocks.position, 1)

        # One loop for forward and back substitution costs one step of compile time.
        width = max(blocks.lower.shape[1], blocks.upper.shape[1])
        columns = np.concatenate([_padded(np.pad, side, width) for side in (blocks.lower, blocks.upper)])
        sides = bk.concat([_padded(bk.pad, side, width) for side in (lower, upper)], 1)

        def body(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            k, last, kept = state
            forward = k < count
            i, side = bk.where(forward, k, 2 * count - 1 - k), bk.where(forward, k, 3 * count - 1 - k)
            own = _at(bk, bk.reshape(kept, (int(kept.shape[0]), count, size)), i, 1)
            left, last = step(_at(bk, pivots, i, 1), _at(bk, sides, side, 1), _at(bk, columns, side, 0), own, last)
            return k + 1, last, bk.put_block(kept, i * size, bk.where(forward, left, last))

        found = bk.for_loop(2 * count, body, (bk.asarray(np.zeros(1, np.int32), like=b), last, b))[2]
        return bk.take_in_bounds(found, blocks.position, 1)


def _padded(pad: Callable[..., Any], side: Any, width: int) -> Any:
    """Couplings or columns `(..., width, m)`, with zeros for missing ones."""
    missing = width - int(side.shape[-2])
    return pad(side, [*[(0, 0)] * (len(side.shape) - 2), (0, missing), (0, 0)]) if missing else side


def _coupled(bk: Backend, side: Array, columns: Array, last: Array) -> Array:
    """Product `S y` of couplings `(systems or 1, width, m)` with columns `(width, m)` of the previous block."""
    width, size = map(int, columns.shape)
    near = bk.take_in_bounds(last, bk.reshape(columns, (width * size,)), 1)
    return bk.sum(side * bk.reshape(near, (int(last.shape[0]), width, size)), 1)


def _product(bk: Backend, matrix: Array, x: Array) -> Array:
    return bk.product(matrix[0] if int(matrix.shape[0]) == 1 else matrix, x)


def _at(bk: Backend, x: Any, i: Any, axis: int) -> Array:
    """`x[i]`, or `x[:, i]`, for a Python integer or the index of a compiled loop, `(1,)`."""
    if isinstance(i, int):
        return x[i] if axis == 0 else x[:, i]
    shape = tuple(map(int, x.shape))
    return bk.reshape(bk.take_in_bounds(bk.asarray(x, like=i), i, axis), (*shape[:axis], *shape[axis + 1 :]))


def scanned(bk: Backend, step: Callable[[Any, Array], Array], first: Array, count: int) -> Array:
    """Return all results `(rows, count, m)` of the recurrence `step(i, previous result)`."""
    if bk.is_eager:
        found, last = [], first
        for i in range(count):
            last = step(i, last)
            found.append(last)
        return bk.permute_dims(bk.stack(found), (1, 0, 2))
    rows, m = map(int, first.shape)

    def body(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        i, last, buffer = state
        last = step(i, last)
        return i + 1, last, bk.put_block(buffer, i * m, last)

    start = bk.asarray(np.zeros(1, np.int32), like=first), first, bk.zeros((rows, count * m), bk.dtype(first), first)
    found = bk.for_loop(count, body, start)[2]
    return bk.reshape(found, (rows, count, m))


def mirrored(bk: Backend, sides: Array, positions: np.ndarray) -> Array:
    """Transposed couplings, `(systems or 1, *positions.shape)`."""
    return take_or_zero(bk, bk.reshape(sides, (int(sides.shape[0]), -1)), positions)


def block_tridiagonal_inverse(A: Couplings, shift: float = 0.0, hermitian: bool = False) -> tuple[Array, Array, Array]:
    """Factorise a matrix of stencil coefficients. Zero rows (obstacles) count as rows of the identity.

    `shift` is a relative shift of the diagonal, for A that are singular to less than working precision.

    Cost: the inverse of each block, and a few products of arrays of its size.
    """
    bk, shifts = A.bk, A.shifts
    blocks = block_layout(A.grid, A.periodic, shifts)
    systems = A.systems or 1
    empty = A.diagonal == 0  # the whole row is zero
    values = {**A.values, A.here: bk.where(empty, bk.full_like(A.diagonal, 1), A.diagonal)}
    parts = [bk.reshape(values[s], (int(values[s].shape[0]), -1)) for s in shifts]
    flat = bk.concat([bk.broadcast_to(p, (systems, int(p.shape[1]))) for p in parts], 1)
    lower, upper = (take_or_zero(bk, flat, source) for source in (blocks.lower_source, blocks.upper_source))
    back = mirrored(bk, upper, blocks.lower_mirror)
    m, factor = blocks.size, 1 + max(_SHIFT * float(np.finfo(bk.dtype(flat)).eps), shift)
    if bk.on_host:
        return inverse_pivots(blocks, flat, factor, lower, back, hermitian), lower, upper
    within = _within(bk, blocks, flat, factor)

    def step(i: Any, last: Array) -> Array:
        index = bk.reshape(_at(bk, blocks.lower, i, 0), (-1,))

        def coupled(side: Array, matrix: Array) -> Array:
            near = bk.reshape(bk.take_in_bounds(matrix, index, 1), (systems, blocks.lower.shape[1], m, m))
            return bk.sum(_at(bk, side, i, 1)[..., None] * near, 1)

        left = coupled(lower, bk.reshape(last, (systems, m, m)))
        product = bk.matrix_transpose(coupled(back, bk.matrix_transpose(left)))
        pivot = bk.reshape(_at(bk, within, i, 1), (systems, m, m)) - product
        return bk.reshape(bk.linalg.inverse(pivot), (systems, m * m))

    first = bk.zeros((systems, m * m), bk.dtype(flat), flat)
    pivots = bk.reshape(scanned(bk, step, first, blocks.count), (systems, blocks.count, m, m))
    return pivots, lower, upper


def _within(bk: Backend, blocks: Blocks, flat: Array, factor: float) -> Array:
    """Diagonal blocks `(systems, count, m * m)`, with ones for padding, so that they are regular."""
    m, dtype = blocks.size, bk.dtype(flat)
    regular = np.ones(m * m, dtype)
    regular[:: m + 1] = factor
    dense = take_or_zero(bk, flat, blocks.within) * bk.asarray(regular, like=flat)
    empty = np.flatnonzero(blocks.order < 0)
    if not len(empty):
        return dense
    spare = np.zeros((blocks.count * m, m), dtype)
    spare[empty, empty % m] = 1
    return dense + bk.asarray(spare.reshape(1, blocks.count, m * m), like=flat)


def inverse_pivots(
    blocks: Blocks, flat: np.ndarray, factor: float, lower: np.ndarray, back: np.ndarray, hermitian: bool
) -> np.ndarray:
    """`(systems, count, m, m)`: inverses of `D_i - L_i (D_(i-1) - ...)^-1 U_(i-1)`; not finite where one is singular.

    Args:
        flat: the coefficients of all points `(systems, n)`, which `blocks.within` indexes.
        factor: of the diagonals of all D.
        lower, back: L and the transpose of U, `(systems, count, width, m)` in the columns `blocks.lower`.
        hermitian: is Cholesky factorisation of the pivots tried?
    """
    systems, m = len(flat), blocks.size
    found = np.empty((systems, blocks.count, m, m), flat.dtype)
    diagonal, spare = slice(None, None, m + 1), blocks.order.reshape(blocks.count, m) < 0
    for s in range(systems):
        for i, (places, sources) in enumerate(blocks.entries_within):
            D = np.zeros(m * m, flat.dtype)
            D[places] = flat[s, sources]
            D[diagonal] *= factor
            D[diagonal][spare[i]] = 1
            pivot = D.reshape(m, m)
            if i:
                left = _rows(lower[s, i], blocks.lower[i]) @ found[s, i - 1]
                pivot -= (_rows(back[s, i], blocks.lower[i]) @ left.T).T
            definite = inverse_of_definite(pivot) if hermitian else None
            found[s, i] = batched_inverse(pivot[None])[0] if definite is None else definite
    return found


def _rows(values: np.ndarray, columns: np.ndarray) -> sp.csr_array:
    """Couplings `(width, m)` as a sparse matrix."""
    width, m = columns.shape
    starts = np.arange(0, width * m + 1, width, dtype=np.int32)
    entries, cols = (np.ascontiguousarray(part.T).reshape(-1) for part in (values, columns))
    return csr_array(entries, cols, starts, (m, m))


# --- positions

Grid = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Blocks:
    """Index arrays of a partition into `count` blocks of `size` positions; -1 is padding.

    Attributes:
        order: the unknown at each position, `(count * size,)`.
        position: the position of each unknown, int32 `(n,)`.
        within: sources of the couplings within blocks, `(count, size * size)`. Sources are indices into the couplings
            of all points, shift after shift; -1 stands for zero.
        lower, upper: columns of each row in the previous and in the next block, `(count, width, size)`.
        lower_source, upper_source: sources of these couplings; -1 where there is none.
        lower_mirror, upper_mirror: position of the transposed coupling in the arrays of the other side.
    """

    count: int
    size: int
    order: np.ndarray
    position: np.ndarray
    within: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    lower_source: np.ndarray
    upper_source: np.ndarray
    lower_mirror: np.ndarray
    upper_mirror: np.ndarray

    @cached_property
    def entries_within(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Positions of the entries of each block in the m x m matrix, and their sources."""
        found = [np.flatnonzero(one >= 0) for one in self.within]
        return [(places, one[places]) for places, one in zip(found, self.within)]


def numbers_of_blocks(grid: Grid, periodic: tuple[bool, ...]) -> int:
    """Number of entries of the inverses of all blocks."""
    return min(_layout(grid, periodic, axis)[2] for axis in range(len(grid)))


def _layout(grid: Grid, periodic: tuple[bool, ...], axis: int) -> tuple[int, int, int]:
    """Number, size and entries of blocks of planes across an axis; two planes each if it is periodic."""
    n, rest = grid[axis], math.prod(grid) // max(grid[axis], 1)
    count, size = ((n + 1) // 2, 2 * rest) if periodic[axis] and n > 2 else (n, rest)
    return count, size, count * size**2


@lru_cache(maxsize=16)
def block_layout(grid: Grid, periodic: tuple[bool, ...], shifts: tuple[Shift, ...]) -> Blocks:
    """Partition across the axis that needs the least memory."""
    axis = min(range(len(grid)), key=lambda k: _layout(grid, periodic, k)[2])
    count, size, _ = _layout(grid, periodic, axis)
    n, strides = math.prod(grid), row_strides(grid)
    unknowns = np.arange(n, dtype=np.int64)
    index = [unknowns // stride % length for stride, length in zip(strides, grid)]
    plane = index[axis]
    rest = unknowns // (strides[axis] * grid[axis]) * strides[axis] + unknowns % strides[axis]
    block = np.minimum(plane, grid[axis] - 1 - plane) if size * grid[axis] > n and count < grid[axis] else plane
    slot = rest + np.where(plane > block, size // 2, 0)
    position = block * size + slot
    order = np.full(count * size, -1, np.int64)
    order[position] = unknowns
    within, sides = np.full(count * size * size, -1, np.int32), {-1: [], 1: []}  # type: ignore[var-annotated]
    for k, shift in enumerate(shifts):
        there, valid = np.zeros(n, np.int64), np.ones(n, bool)
        for s, i, length, stride, ring in zip(shift, index, grid, strides, periodic):
            valid &= ring | ((i + s >= 0) & (i + s < length))
            there += (i + s) % length * stride
        here, there = unknowns[valid], there[valid]
        step = block[there] - block[here]
        same = step == 0
        within[position[here[same]] * size + slot[there[same]]] = k * n + here[same]
        for side, found in sides.items():
            at = step == side
            found.append((position[here[at]], slot[there[at]], k * n + here[at]))
    lower, lower_source = _packed(sides[-1], count, size)
    upper, upper_source = _packed(sides[1], count, size)
    mirrors = _mirrors(lower, lower_source >= 0, upper, upper_source >= 0)
    return Blocks(
        count, size, order, position.astype(np.int32), within.reshape(count, size * size),
        lower, upper, lower_source, upper_source, *mirrors,
    )  # fmt: skip


def _packed(found: list[tuple[np.ndarray, ...]], count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Columns and sources `(count, width, size)` of couplings that are listed by offset."""
    filled = np.zeros(count * size, np.int64)
    chosen = []
    for places, columns, sources in found:
        if len(places):
            chosen.append((filled[places].copy(), places, columns, sources))
            filled[places] += 1
    width = max(int(filled.max(initial=0)), 1)
    both = np.zeros((count, width, size), np.int32), np.full((count, width, size), -1, np.int32)
    for layer, places, columns, sources in chosen:
        both[0][places // size, layer, places % size] = columns
        both[1][places // size, layer, places % size] = sources
    return both


def _mirrors(
    lower: np.ndarray, in_lower: np.ndarray, upper: np.ndarray, in_upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Positions of the transposes of lower couplings among the upper ones, and the reverse."""
    size = lower.shape[2]

    def keys(columns: np.ndarray, present: np.ndarray, from_later: bool) -> tuple[np.ndarray, np.ndarray]:
        block, layer, row = np.nonzero(present)
        column = columns[block, layer, row].astype(np.int64)
        first, second = (column, row) if from_later else (row, column)  # in the earlier and in the later block
        earlier = block - 1 if from_later else block
        return (earlier * size + first) * size + second, np.flatnonzero(present)

    (key, place), (other, there) = keys(lower, in_lower, True), keys(upper, in_upper, False)
    by, by_other = np.argsort(key), np.argsort(other)
    mirrors = np.full(lower.size, -1, np.int32), np.full(upper.size, -1, np.int32)
    mirrors[0][place[by]] = there[by_other]
    mirrors[1][there[by_other]] = place[by]
    return mirrors[0].reshape(lower.shape), mirrors[1].reshape(upper.shape)
