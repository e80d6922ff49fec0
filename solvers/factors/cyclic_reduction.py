"""Block cyclic reduction of block tridiagonal systems, which eliminates every second block until few are left."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from typing import NamedTuple

import numpy as np

from ...backends import Array, Backend
from ...sparse import Composed, storable

_NONE = 16  # rounding units per term of a pivot, below which it may be zero
_SHIFT = 100  # shift of a (nearly) singular last matrix, in rounding units of its rows
_LAST = 128  # unknowns of the last matrix, at most


class _Level(NamedTuple):
    """Numbers of kept and eliminated blocks of a level, and the position of the latter in the stored arrays."""

    kept: int
    gone: int
    first: int

    @property
    def slots(self) -> slice:
        return slice(self.first, self.first + self.gone)


def _levels(size: int, width: int) -> Iterator[_Level]:
    """Levels down to a dense matrix that needs no more storage than they do."""
    first, count = 0, -(-size // width)
    while count > 1 and count * width > min(_LAST, 2 * math.isqrt(size * width)):
        gone = count // 2
        yield _Level(count - gone, gone, first)
        first, count = first + gone, count - gone


@dataclass(eq=False, repr=False)
class BlockTridiagonal(Composed):
    """Matrix of `size` unknowns with blocks `(systems or 1, width, width, count)`."""

    parts = ("before", "on", "after")
    is_container = True

    bk: Backend
    before: Array
    on: Array
    after: Array
    size: int
    batch: bool = False

    def _settle(self) -> None:
        self.shape, self.dtype = (self.size, self.size), np.dtype(self._library_of(self.on).dtype(self.on))
        self.systems = int(self.on.shape[0]) if self.batch else None

    def apply(self, x: Array) -> Array:
        bk, (before, on, after) = self.bk, map(self.array, self.parts)
        b = as_blocks(bk, x, int(on.shape[1]))
        count = int(b.shape[-1])
        found = block_product(on, b) + block_product(before, _shifted(bk, b, count))
        return as_rows(bk, found + block_product(after, _shifted_back(bk, b, count)))[:, : self.size]

    def transpose(self) -> BlockTridiagonal:
        bk, count = self.bk, int(self.on.shape[-1])
        before, on, after = (bk.permute_dims(part, (0, 2, 1, 3)) for part in map(self.array, self.parts))
        return replace(self, before=_shifted(bk, after, count), on=on, after=_shifted_back(bk, before, count))

    def absolute(self) -> BlockTridiagonal:
        """The matrix of absolute values."""
        absolute: BlockTridiagonal = self._map(lambda A: A, self.bk.abs)
        return absolute


@storable("cyclic reduction")
@dataclass(eq=False, repr=False)
class CyclicReduction(Composed):
    """The inverse of a block tridiagonal matrix, of `count` blocks of `width` unknowns; the last block may have fewer.

    Attributes:
        pivots: inverses of the eliminated blocks, level by level, `(systems or 1, width, width, gone)`.
        down_before, down_after: couplings of the previous and next block to an eliminated one, in the reduction.
        up_before, up_after: couplings of an eliminated block to them, in back substitution.
        last: inverse of the last matrix, `(systems or 1, m, m)`.
        size: number of unknowns.
        batch: whether each system has its own matrix.

    Stores 5 width values for each unknown, and m^2 with `m = min(128, 2 sqrt(size width))`. Applying it takes twice as
    many operations, in 2 log2(count / m) passes.

    Source: Buzbee, Golub, Nielson, SIAM J. Numer. Anal. 7 (1970), section 2; Heller, SIAM J. Numer. Anal. 13 (1976).
    """

    parts = ("pivots", "down_before", "down_after", "up_before", "up_after", "last")
    is_container = True

    bk: Backend
    pivots: Array
    down_before: Array
    down_after: Array
    up_before: Array
    up_after: Array
    last: Array
    size: int
    batch: bool = False

    def __post_init__(self) -> None:
        *found, last = (tuple(map(int, getattr(self, name).shape)) for name in self.parts)
        systems, w = found[0][:2] if len(found[0]) == 4 else (0, 0)
        if w and self.size > 0 and (self.batch or systems == 1):
            levels = list(_levels(self.size, w))
            gone = sum(level.gone for level in levels)
            m = (-(-self.size // w) - gone) * w
            if set(found) == {(systems, w, w, gone)} and last == (systems, m, m):
                return super().__post_init__()
        raise ValueError(f"The parts of a cyclic reduction of {self.size} unknowns have the shapes {[*found, last]}.")

    def _settle(self) -> None:
        self.shape = self.size, self.size
        self.dtype = np.dtype(self._library_of(self.pivots).dtype(self.pivots))
        self.systems = int(self.pivots.shape[0]) if self.batch else None

    def transpose(self) -> CyclicReduction:
        turned = {name: self._turned(name) for name in self.parts[:-1]}
        down = {f"down_{side}": turned[f"up_{side}"] for side in ("before", "after")}
        up = {f"up_{side}": turned[f"down_{side}"] for side in ("before", "after")}
        last = self._library_of(self.last).matrix_transpose(self.last)
        return replace(self, pivots=turned["pivots"], **down, **up, last=last)

    def _turned(self, name: str) -> Array:
        array = self.__dict__[name]
        return self._library_of(array).permute_dims(array, (0, 2, 1, 3))

    def apply(self, x: Array) -> Array:
        bk, w = self.bk, int(self.pivots.shape[1])
        pivots, down_before, down_after, up_before, up_after, last = map(self.array, self.parts)
        levels, gone = list(_levels(self.size, w)), []
        b = as_blocks(bk, x, w)
        for level in levels:
            odd, b, at = b[..., 1::2], b[..., ::2], level.slots
            before, after = block_product(down_before[..., at], odd), block_product(down_after[..., at], odd)
            b = bk.materialize(b - _next_to(bk, before, after, level.kept))
            gone.append(odd)
        y = as_blocks(bk, bk.product(last if self.batch else last[0, ...], as_rows(bk, b)), w)
        for level, odd in zip(reversed(levels), reversed(gone)):
            at = level.slots
            coupled = block_product(up_before[..., at], y[..., : level.gone])
            coupled = coupled + block_product(up_after[..., at], _shifted_back(bk, y, level.gone))
            y = bk.materialize(_interleaved(bk, y, block_product(pivots[..., at], odd) - coupled))
        return as_rows(bk, y)[:, : self.size]


def reduced(matrix: BlockTridiagonal, given: np.dtype) -> CyclicReduction:
    """Eliminate every second block until few are left.

    Args:
        given: precision of the given entries.

    A pivot of the size of rounding errors is replaced by the square root of the rounding unit, relative to its row.
    Refinement then solves consistent systems, and recovers digits that the elimination lost.

    Cost: `8 width^2` operations for each entry, in log2(count) passes.

    Source: Li and Demmel, Making sparse Gaussian elimination scalable by static pivoting, SC 1998, for the pivots.
    """
    bk, before, blocks, after = matrix.bk, matrix.before, matrix.on, matrix.after
    eps, sizes = float(np.finfo(given).eps), _row_sizes(bk, before, blocks, after)
    found = [tuple(blocks[..., :0] for _ in range(5))]
    for level in _levels(matrix.size, int(blocks.shape[1])):
        inverse = _inverse(bk, blocks[..., 1::2], sizes[..., 1::2], eps)
        own_before, own_after = before[..., 1::2], after[..., 1::2]
        up_before, up_after = block_product(inverse, own_before), block_product(inverse, own_after)
        left = block_product(after[..., ::2][..., : level.gone], inverse)  # coupling of the previous block to this one
        right = block_product(before[..., 2::2], inverse[..., : level.kept - 1])
        right = bk.pad(right, [(0, 0)] * 3 + [(0, level.gone - level.kept + 1)])
        found.append((inverse, left, right, up_before, up_after))
        kept = blocks[..., ::2]
        sizes = _row_sizes(bk, kept)
        fill = block_product(left, own_before), block_product(right, own_after)
        blocks = bk.materialize(kept - _next_to(bk, *fill, level.kept))
        before = _shifted(bk, -block_product(right, own_before), level.kept)
        after = bk.pad(-block_product(left, own_after), [(0, 0)] * 3 + [(0, level.kept - level.gone)])
    last = _last_inverse(bk, _dense(bk, before, blocks, after), as_rows(bk, sizes), eps)
    a, b, c, d, e = (bk.concat(parts, 3) for parts in zip(*found))
    return CyclicReduction(bk, a, b, c, d, e, last, matrix.size, matrix.batch)


def _dense(bk: Backend, before: Array, blocks: Array, after: Array) -> Array:
    """`(systems or 1, m, m)`"""
    systems, w, _, count = map(int, blocks.shape)
    total = None
    for side, part in ((-1, before), (0, blocks), (1, after)):
        places = np.eye(count, k=side)[None, :, None, :, None]
        spread = bk.permute_dims(part, (0, 3, 1, 2))[:, :, :, None] * bk.asarray(places, bk.dtype(part), like=part)
        total = spread if total is None else total + spread
    return bk.reshape(total, (systems, count * w, count * w))


def _last_inverse(bk: Backend, matrix: Array, sizes: Array, eps: float) -> Array:
    """Inverse of `(systems or 1, m, m)`; `sizes` `(systems or 1, m)` bounds the terms of its rows."""
    m, dtype = int(matrix.shape[1]), bk.dtype(matrix)
    sizes = sizes_or_one(bk, sizes)
    scaled = matrix / bk.astype(sizes, dtype)[..., None]
    plain, shift = bk.linalg.inverse(scaled), bk.asarray(_SHIFT * eps * np.eye(m), dtype, like=matrix)
    blown = bk.negated(bk.max_abs(bk.reshape(plain, (-1, m * m))) * (_SHIFT * eps) < 0.1)  # also NaN
    return bk.where(blown[..., None], bk.linalg.inverse(scaled + shift), plain) / bk.astype(sizes, dtype)[:, None]


def as_blocks(bk: Backend, x: Array, w: int) -> Array:
    """`(batch, n)` -> `(batch, w, 1, count)`, padded with zeros."""
    rows, n = map(int, x.shape)
    count = -(-n // w)
    return bk.permute_dims(bk.reshape(bk.pad(x, [(0, 0), (0, count * w - n)]), (rows, count, w, 1)), (0, 2, 3, 1))


def as_rows(bk: Backend, blocks: Array) -> Array:
    """`(batch, w, 1, count)` -> `(batch, w count)`."""
    rows, w, _, count = map(int, blocks.shape)
    return bk.reshape(bk.permute_dims(blocks, (0, 3, 1, 2)), (rows, count * w))


def _next_to(bk: Backend, before: Array, after: Array, kept: int) -> Array:
    """Contributions of eliminated blocks to the kept ones before and after them."""
    gone, lead = int(before.shape[-1]), [(0, 0)] * (len(before.shape) - 1)
    return bk.pad(before, [*lead, (0, kept - gone)]) + _shifted(bk, after, kept)


def _shifted(bk: Backend, x: Array, kept: int) -> Array:
    """Shift blocks by one position, keeping `kept` of them."""
    return bk.pad(x[..., : kept - 1], [(0, 0)] * (len(x.shape) - 1) + [(1, 0)])


def _shifted_back(bk: Backend, x: Array, kept: int) -> Array:
    return bk.pad(x[..., 1:], [(0, 0)] * (len(x.shape) - 1) + [(0, kept + 1 - int(x.shape[-1]))])


def _interleaved(bk: Backend, even: Array, odd: Array) -> Array:
    *lead, kept = map(int, even.shape)
    count = kept + int(odd.shape[-1])
    odd = bk.pad(odd, [*[(0, 0)] * len(lead), (0, 2 * kept - count)])
    both = bk.concat([even[..., None], odd[..., None]], len(lead) + 1)
    return bk.reshape(both, (*lead, 2 * kept))[..., :count]


def block_product(A: Array, B: Array) -> Array:
    """`(systems or 1, w, w, count)` times `(systems or batch, w, columns, count)`, block by block."""
    w = int(A.shape[2])
    if w == 1:
        return A * B
    found = A[:, :, :1] * B[:, :1]
    for k in range(1, w):
        found = found + A[:, :, k : k + 1] * B[:, k : k + 1]
    return found


def _inverse(bk: Backend, blocks: Array, sizes: Array, eps: float) -> Array:
    """Batched Gauss-Jordan inverse without pivoting."""
    w, dtype = int(blocks.shape[1]), bk.dtype(blocks)
    other = bk.astype(sizes_or_one(bk, sizes) * eps**0.5, dtype)

    def regular(k: int) -> Array:
        pivot = blocks[:, k : k + 1, k : k + 1]
        may_be_zero = bk.abs(pivot) <= _NONE * w * eps * sizes[:, k : k + 1]
        return bk.where(may_be_zero, other[:, k : k + 1], pivot)

    if w == 1:
        return bk.materialize(1 / regular(0))
    identity = np.eye(w)[None, :, :, None]
    for k in range(w):
        is_row, is_column = (
            bk.asarray(unit == 1, like=blocks) for unit in (identity[:, :, k : k + 1], identity[:, k : k + 1])
        )
        pivot, column = regular(k), blocks[:, :, k : k + 1]
        row = bk.where(is_column, bk.full_like(pivot, 1), blocks[:, k : k + 1]) / pivot
        rest = bk.where(is_column, bk.zeros_like(column), blocks) - column * row
        blocks = bk.materialize(bk.where(is_row, row, rest))
    return blocks


def _row_sizes(bk: Backend, *parts: Array) -> Array:
    """`(systems or 1, width, 1, count)`: the largest entry of each row."""
    columns = [bk.abs(part[:, :, k : k + 1]) for part in parts for k in range(int(part.shape[2]))]
    return reduce(bk.maximum, columns)


def sizes_or_one(bk: Backend, sizes: Array) -> Array:
    """Sizes to divide by: 1 for rows of zeros."""
    return bk.where(sizes > 0, sizes, bk.full_like(sizes, 1))
