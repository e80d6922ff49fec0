"""Sparse matrix products on arrays of values and indices (DIA, ELL, CSR, COO), and their gradients.

Vectors are rows: x is `(batch, m)` and the image `(batch, n)`. Values and vectors have one dtype. Indices are integer
arrays of the library or of NumPy, all in range; see `Indexing`. Nothing is conjugated. Values with one more axis in
front belong to the rows of x, one matrix to each.

The way for all libraries is here, made of the functions of `Indexing`. It gathers, multiplies and adds; one vector is
gathered as such, several are gathered together, as rows of the `(m, batch)` transpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from .arrays import Array, Integers
from .bilinear import Arrays, Bilinear
from .indexing import Indexing

# Rows of up to so many entries are summed term by term, which compilers fuse into one pass: XLA took 1.5 ms for five
# terms of 1024^2 numbers, and 50 ms for the sum over the axis of five.
_UNROLLED = 64
Place = tuple[int, int, int, int, int]  # of a diagonal in a product, see `diagonal_places`


class SparseKernels(Indexing):
    """Backend methods for sparse matrix-vector products and their gradients."""

    dtype: Callable[[Array], np.dtype]
    stack: Callable[[Sequence[Array]], Array]
    sum: Callable[..., Array]
    zeros: Callable[..., Array]

    def bilinear(
        self, form: Bilinear, values: Arrays, indices: Arrays, x: Array, transposed: bool = False
    ) -> Array:  # fmt: skip
        """`form.product` or `form.product_transposed`, with the derivatives by the values and by x of every order.

        Where the library differentiates: forward, reverse, and under its `vmap`, also of the values. The values, a
        tuple of arrays, and x `(batch, m)` have one dtype; the caller casts. `indices` is a tuple of integer arrays.
        """
        apply = form.product_transposed if transposed else form.product
        return apply(self, values, indices, x)

    # --- diagonals ------------------------------------------------------------------------------------------------

    def dia_product(
        self, diagonals: Array, offsets: Sequence[int], x: Array, n: int, transposed: bool = False
    ) -> Array:  # fmt: skip
        """y[i] = sum over d of diagonals[d, i] x[i + offsets[d]], with `diagonals` `(k, n)`; or the transposed product.

        What lies outside of x counts as 0, whatever the stored value is. The transpose multiplies a row of x for each
        row of the matrix, and n is how many columns that has.
        """
        parts = [
            self.pad(
                part_of(diagonals[..., d, :], lo + shift, hi + shift) * part_of(x, lo + step, hi + step),
                ((0, 0), (lo, n - hi)),
            )
            for d, lo, hi, shift, step in diagonal_places(offsets, n, int(x.shape[1]), transposed)
        ]
        return _total(parts) if parts else self.zeros((x.shape[0], n), self.dtype(x), x)

    def dia_added(self, y: Array, diagonals: Array, where: Sequence[Place], x: Array) -> Array | None:
        """`y + A x`, written to y, where that is quicker than the product and a sum; else None.

        Args:
            diagonals: `(k, n)`, one matrix for all rows of x and y.
            where: row ranges and shifts of the diagonals, see `diagonal_places`.
        """
        return None

    def prefers_diagonals(self, like: Array | None) -> bool:
        """Are products of long diagonals quicker than those of the same rows, on the device of `like`?"""
        return False

    def dia_sample(self, offsets: Sequence[int], y: Array, x: Array, each: bool = False) -> Array:
        """`(k, n)`: the sum over the batch of y[b, i] x[b, i + offsets[d]], and 0 outside of x.

        With `each` the terms of the sum, `(batch, k, n)`.
        """
        batch, n, m = int(x.shape[0]), int(y.shape[1]), int(x.shape[1])
        count = batch if each else 1
        found = [self.zeros((count, n), self.dtype(x), x)] * len(offsets)
        for d, o, lo, hi in inside(offsets, n, m):
            both = part_of(y, lo, hi) * part_of(x, lo + o, hi + o)
            rows = both if batch == count else self.sum(both, (0,))[None, :]
            found[d] = self.pad(rows, ((0, 0), (lo, n - hi)))
        terms = self.stack(found) if found else self.zeros((0, count, n), self.dtype(x), x)
        return self.permute_dims(terms, (1, 0, 2)) if each else terms[:, 0, :]

    # --- boxes of a grid ------------------------------------------------------------------------------------------

    def boxes_product(self, boxes: Sequence[Any], values: Arrays, x: Array, grid: Sequence[int]) -> Array | None:
        """y[:, *box.rows] += value x[:, *box.cols] for each box and its value; x `(batch, ...)`, y `(batch, *grid)`.

        See `Shifted` for boxes. Each value is broadcast to `(batch, *box.shape)`. None: other functions are no worse.
        """
        return None

    # --- rows of equal length -------------------------------------------------------------------------------------

    def ell_product(self, values: Array, cols: Integers, x: Array) -> Array:
        """y[i] = sum over d of values[d, i] x[cols[d, i]], with `values` and `cols` `(k, n)`.

        Padding has the value 0 and any column in range, best one of its row: 0 times a non-finite number is NaN.
        """
        k, n, batch = int(cols.shape[0]), int(cols.shape[1]), int(x.shape[0])
        if k == 0:
            return self.zeros((batch, n), self.dtype(x), x)
        if len(values.shape) == 3:
            if k > _UNROLLED:
                return self.sum(values * self.take_in_bounds(x, cols, 1), (1,))
            return _total(values[:, d, :] * self.take_in_bounds(x, cols[d, :], 1) for d in range(k))
        if batch == 1:
            if k > _UNROLLED:
                return self.sum(values * self.take_in_bounds(x[0, :], cols), (0,))[None, :]
            return _total(self._ell_terms(values, cols, x[0, :]))[None, :]
        by_row = self.permute_dims(x, (1, 0))
        if k > _UNROLLED:
            return self.permute_dims(self.sum(values[:, :, None] * self.take_in_bounds(by_row, cols), (0,)), (1, 0))
        return self.permute_dims(_total(self._ell_terms(values[:, :, None], cols, by_row)), (1, 0))

    def _ell_terms(self, values: Array, cols: Integers, x: Array) -> Iterable[Array]:
        """`values[d] * x[cols[d]]` for each d, one in memory at a time."""
        return (values[d, ...] * self.take_in_bounds(x, cols[d, :]) for d in range(int(cols.shape[0])))

    # --- entries --------------------------------------------------------------------------------------------------

    def entries_product(
        self, values: Array, rows: Integers, cols: Integers, x: Array, n: int, starts: Integers | None = None
    ) -> Array:
        """y[rows[e]] += values[e] x[cols[e]] for entries `(nnz,)` in any order; duplicates add up.

        `starts`, `(n + 1,)`, says that they are in the order of rows, and that row i begins at `starts[i]`.
        """
        if len(values.shape) == 2:
            return self.sum_entries(values * self.take_in_bounds(x, cols, 1), rows, n, starts is not None)
        if x.shape[0] == 1:
            return self.segment_sum(values * self.take_in_bounds(x[0, :], cols), rows, n, starts is not None)[None, :]
        gathered = values[:, None] * self.take_in_bounds(self.permute_dims(x, (1, 0)), cols)
        return self.permute_dims(self.segment_sum(gathered, rows, n, starts is not None), (1, 0))


def _total(parts: Iterable[Array]) -> Array:
    return reduce(add, parts)


def part_of(x: Array, start: int, end: int) -> Array:
    """A slice of the last axis; x itself for the full range, since torch's batching does not skip such a slice."""
    return x if start == 0 and end == x.shape[-1] else x[..., start:end]


def inside(offsets: Sequence[int], n: int, m: int) -> Iterator[tuple[int, int, int, int]]:
    """Index, offset, first and last row + 1 of each diagonal that lies inside an `(n, m)` matrix."""
    for d, offset in enumerate(offsets):
        o = int(offset)
        lo, hi = max(0, -o), min(n, m - o)
        if lo < hi:
            yield d, o, lo, hi


def diagonal_places(offsets: Sequence[int], n: int, m: int, transposed: bool) -> Iterator[Place]:
    """Row range and shifts of each diagonal in a product: image[i] += diagonal[i + shift] x[i + step].

    Yields its index, the first i, the last i + 1, shift and step.
    """
    if transposed:
        return ((d, lo + o, hi + o, -o, -o) for d, o, lo, hi in inside(offsets, m, n))
    return ((d, lo, hi, 0, o) for d, o, lo, hi in inside(offsets, n, m))


def clipped(where: Sequence[Place], start: int, end: int) -> Iterator[Place]:
    """`diagonal_places` restricted to a range of rows of the image, first and last + 1."""
    for d, first, last, shift, step in where:
        lo, hi = max(start, first), min(end, last)
        if lo < hi:
            yield d, lo, hi, shift, step


class CooEntries(NamedTuple):
    """Arrays of the library; duplicates add up, so that their order does not matter.

    Of a batch of matrices, whose shape is `(systems, n, m)`, either the entries of all, with `systems` to tell them
    apart, or, where a compiled program is to find out where they are, arrays `(systems, nnz)`.
    """

    values: Any  # (nnz,)
    rows: Any  # (nnz,) integers
    cols: Any  # (nnz,) integers
    shape: tuple[int, ...]
    systems: Any = None  # (nnz,) integers, of NumPy or the library
    given: tuple[Any, Any, tuple[int, ...]] | None = None  # rows, columns and shape of the user's values, if others


def row_starts(rows: np.ndarray, n: int) -> np.ndarray:
    """`(n + 1,)`: where each row begins among entries in the order of rows; int32 where it holds the numbers."""
    starts = np.searchsorted(rows, np.arange(n + 1, dtype=rows.dtype))
    return starts.astype(np.int32) if len(rows) < 2**31 else starts
