"""Block tridiagonal inverse of a matrix on a small grid, by block elimination: on the host with sparse couplings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from ...backends import Array, Backend
from ...backends.lapack import batched_inverse, inverse_of_definite
from ...sparse import Composed, storable
from ...sparse.formats.entries.regather import take_or_zero
from ...sparse.formats.entries.scipy_form import csr_array
from ...sparse.operators.couplings import Couplings
from .planes import Blocks, block_layout

_SHIFT = 100  # times the rounding unit, of the diagonal: for singular matrices


@storable("block tridiagonal inverse")
@dataclass(eq=False, repr=False)
class BlockTridiagonalInverse(Composed):
    """Inverse of `(L + D) D^-1 (D + U)`: D holds the pivot blocks (Schur complements), L and U the off-diagonal ones.

    Attributes:
        pivots: the inverses of D, `(systems or 1, blocks, m, m)`.
        lower, upper: the couplings to the block before, and after, `(systems or 1, blocks, width, m)`.
        grid, periodic, shifts: of the couplings, from which all positions follow.
        batch: is there one matrix for each system?

    Stores m numbers and a few more for each unknown, and multiplies twice with each; one block after the other.

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
        bk, blocks, rows = self.bk, self._blocks, int(x.shape[0])
        b = take_or_zero(bk, x, blocks.order)
        found = self._by_list(b) if bk.is_eager else self._by_loop(b)
        return bk.take(bk.reshape(found, (rows, blocks.count * blocks.size)), blocks.position.astype(np.int32), 1)

    def _by_list(self, b: Array) -> Array:
        bk, blocks, rows = self.bk, self._blocks, int(b.shape[0])
        left = bk.reshape(b, (rows, blocks.count, blocks.size))
        kept, last = [left[:, i] for i in range(blocks.count)], 0 * left[:, 0]
        lower, upper, pivots = (self.array(name) for name in ("lower", "upper", "pivots"))
        for i in range(blocks.count):
            kept[i] = kept[i] - _taken(bk, lower[:, i], blocks.lower[i], last)
            last = _product(bk, pivots[:, i], kept[i])
        last = 0 * last
        for i in reversed(range(blocks.count)):
            last = _product(bk, pivots[:, i], kept[i] - _taken(bk, upper[:, i], blocks.upper[i], last))
            kept[i] = last
        return bk.permute_dims(bk.stack(kept), (1, 0, 2))

    def _by_loop(self, b: Array) -> Array:
        """Forward and back substitution by a compiled loop, which costs one step of compile time."""
        bk, blocks, pivots = self.bk, self._blocks, self.array("pivots")
        count, size = blocks.count, blocks.size
        width = max(blocks.lower.shape[1], blocks.upper.shape[1])
        columns = np.concatenate([_as_wide(columns, width) for columns in (blocks.lower, blocks.upper)])
        sides = bk.concat([_widened(bk, self.array(name), width) for name in ("lower", "upper")], 1)

        def body(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            k, last, kept = state
            forward = k < count
            i = bk.where(forward, k, 2 * count - 1 - k)
            side = bk.where(forward, k, 3 * count - 1 - k)
            own = _at(bk, bk.reshape(kept, (int(kept.shape[0]), count, size)), i, 1)
            left = own - _taken(bk, _at(bk, sides, side, 1), _at(bk, columns, side, 0), last)
            last = _product(bk, _at(bk, pivots, i, 1), left)
            return k + 1, last, bk.put_block(kept, i * size, bk.where(forward, left, last))

        start = bk.asarray(np.zeros(1, np.int32), like=b), 0 * b[:, :size], b
        return bk.for_loop(2 * count, body, start)[2]


def _as_wide(columns: np.ndarray, width: int) -> np.ndarray:
    """Positions `(count, width, m)`, padded for couplings of zero."""
    return np.pad(columns, [(0, 0), (0, width - columns.shape[1]), (0, 0)])


def _widened(bk: Backend, sides: Array, width: int) -> Array:
    """Couplings `(systems or 1, count, width, m)`, padded with zeros."""
    missing = width - int(sides.shape[2])
    return bk.pad(sides, [(0, 0), (0, 0), (0, missing), (0, 0)]) if missing else sides


def _taken(bk: Backend, side: Array, columns: Array, last: Array) -> Array:
    """Product `S y` of couplings `(systems or 1, width, m)` with columns `(width, m)` of the previous block."""
    width, size = map(int, columns.shape)
    near = bk.take(last, bk.reshape(columns, (width * size,)), 1)
    return bk.sum(side * bk.reshape(near, (int(last.shape[0]), width, size)), 1)


def _product(bk: Backend, matrix: Array, x: Array) -> Array:
    return bk.product(matrix[0] if int(matrix.shape[0]) == 1 else matrix, x)


def _at(bk: Backend, x: Any, i: Any, axis: int) -> Array:
    """`x[i]`, or `x[:, i]`, for a Python integer or the index of a compiled loop, `(1,)`."""
    if isinstance(i, int):
        return x[i] if axis == 0 else x[:, i]
    shape = tuple(map(int, x.shape))
    return bk.reshape(bk.take(bk.asarray(x, like=i), i, axis), (*shape[:axis], *shape[axis + 1 :]))


def scanned(bk: Backend, step: Callable[[Any, Array], Array], first: Array, count: int) -> Array:
    """Scan: all results `(rows, count, m)` of `step(i, previous result)`."""
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
    """Factorise a matrix of stencil coefficients; zero rows (obstacles) count as rows of the identity.

    Args:
        shift: of the diagonal, in parts of it, where A may be singular up to more than rounding.
        hermitian: is it known to be?

    Cost: the inverse of each block, and a few products of arrays of its size.
    """
    bk, shifts = A.bk, A.shifts
    blocks = block_layout(A.grid, A.periodic, shifts)
    systems = A.systems or 1
    empty = A.diagonal == 0  # and all else in such a row
    values = {**A.values, A.here: bk.where(empty, bk.full_like(A.diagonal, 1), A.diagonal)}
    parts = [bk.reshape(values[s], (int(values[s].shape[0]), -1)) for s in shifts]
    flat = bk.concat([bk.broadcast_to(p, (systems, int(p.shape[1]))) for p in parts], 1)
    lower, upper = (take_or_zero(bk, flat, source) for source in (blocks.lower_source, blocks.upper_source))
    back = mirrored(bk, upper, blocks.lower_mirror)
    m = blocks.size
    if bk.on_host:
        return inverse_pivots(blocks, flat, _regular(bk.dtype(flat), shift), lower, back, hermitian), lower, upper
    within = _within(bk, blocks, flat, shift)

    def step(i: Any, last: Array) -> Array:
        index, width = _at(bk, blocks.lower, i, 0), blocks.lower.shape[1]
        inverse = bk.reshape(last, (systems, m, m))
        own = _at(bk, lower, i, 1)[..., None]
        left = bk.sum(own * bk.reshape(bk.take(inverse, bk.reshape(index, (-1,)), 1), (systems, width, m, m)), 1)
        turned = bk.reshape(bk.take(bk.matrix_transpose(left), bk.reshape(index, (-1,)), 1), (systems, width, m, m))
        product = bk.matrix_transpose(bk.sum(_at(bk, back, i, 1)[..., None] * turned, 1))
        pivot = bk.reshape(_at(bk, within, i, 1), (systems, m, m)) - product
        return bk.reshape(bk.linalg.inverse(pivot), (systems, m * m))

    first = bk.zeros((systems, m * m), bk.dtype(flat), flat)
    pivots = bk.reshape(scanned(bk, step, first, blocks.count), (systems, blocks.count, m, m))
    return pivots, lower, upper


def _regular(dtype: np.dtype, shift: float) -> float:
    """Factor of the diagonals: 1 + shift."""
    return 1 + max(_SHIFT * float(np.finfo(dtype).eps), shift)


def _within(bk: Backend, blocks: Blocks, flat: Array, shift: float) -> Array:
    """Diagonal blocks `(systems, count, m * m)`, with ones for padding, so that they are regular."""
    m, dtype = blocks.size, bk.dtype(flat)
    regular = np.ones(m * m, dtype)
    regular[:: m + 1] = _regular(dtype, shift)
    dense = take_or_zero(bk, flat, blocks.within) * bk.asarray(regular, like=flat)
    empty = np.flatnonzero(blocks.order < 0)
    if not len(empty):
        return dense
    spare = np.zeros((blocks.count * m, m), dtype)
    spare[empty, empty % m] = 1
    return dense + bk.asarray(spare.reshape(1, blocks.count, m * m), like=flat)


def inverse_pivots(
    blocks: Blocks, flat: np.ndarray, regular: float, lower: np.ndarray, back: np.ndarray, hermitian: bool
) -> np.ndarray:
    """`(systems, count, m, m)`: inverses of `D_i - L_i (D_(i-1) - ...)^-1 U_(i-1)`; not finite where one is singular.

    Args:
        flat: the coefficients of all points `(systems, n)`, which `blocks.within` indexes.
        regular: factor of the diagonals of all D.
        lower: L, `(systems, count, width, m)` in the columns `blocks.lower`.
        back: the transpose of U, likewise.
        hermitian: is the matrix, so that the pivots of a definite one are inverted by Cholesky's factors?

    Cost: per block the inverse, and 2 width m^2 operations.
    """
    systems, m = len(flat), blocks.size
    found = np.empty((systems, blocks.count, m, m), flat.dtype)
    diagonal, spare = slice(None, None, m + 1), blocks.order.reshape(blocks.count, m) < 0
    for s in range(systems):
        for i, (places, sources) in enumerate(blocks.entries_within):
            D = np.zeros(m * m, flat.dtype)
            D[places] = flat[s, sources]
            D[diagonal] *= regular
            D[diagonal][spare[i]] = 1
            pivot = D.reshape(m, m)
            if i:
                left = _rows(lower[s, i], blocks.lower[i]) @ found[s, i - 1]
                pivot -= (_rows(back[s, i], blocks.lower[i]) @ left.T).T
            definite = inverse_of_definite(pivot) if hermitian else None
            found[s, i] = batched_inverse(pivot[None])[0] if definite is None else definite
    return found


def _rows(values: np.ndarray, columns: np.ndarray) -> sp.csr_array:
    """Split `(width, m)` into its rows."""
    width, m = columns.shape
    starts = np.arange(0, width * m + 1, width, dtype=np.int32)
    entries, cols = (np.ascontiguousarray(part.T).reshape(-1) for part in (values, columns))
    return csr_array(entries, cols, starts, (m, m))
