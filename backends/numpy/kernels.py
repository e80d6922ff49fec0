"""Kernels of NumPy: entries, sparse products, Fourier transforms, recurrences, dense factorisations.

Sparse products are SciPy's compiled loops, and cache-blocked loops for diagonals and boxes of a grid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy
import scipy.sparse as sp
from scipy.linalg import lapack

from ..host_math import add_product, available, batched_inverse, cholesky_or_none, cores, lu_factor, rows_times
from ..interface.arrays import Array, Integers
from ..interface.kernels import (
    Arrays,
    CooEntries,
    Fourier,
    Kernels,
    Linalg,
    Place,
    clipped,
    diagonal_places,
    inside,
    row_starts,
)

_BYTES = 2**19  # of a part of the image: with less, threads wait for each other, with more it leaves the cache
_SMALL = 4096  # with less entries than this, making a matrix object of SciPy takes longer than multiplying
# Numbers of the image that are worked on at a time. A pass over all diagonals for each block, which stays in the cache,
# took 2.9 ms for five diagonals of 1024^2 numbers, and parts of a quarter of that 4.6 ms, as each begins to read anew.
BLOCK = 65536
_SPARSE_PRODUCTS = "bBhHiIlLqQfdFD"  # dtypes that SciPy's compiled products know
_FEW = 16384  # values; bincount then takes less time than making a matrix of SciPy


class NumpyKernels(Kernels):
    """Entries by NumPy's own functions, products by SciPy's compiled loops: vectors are read in place."""

    def dia_product(
        self, diagonals: Array, offsets: Sequence[int], x: Array, n: int, transposed: bool = False
    ) -> Array:  # fmt: skip
        return dia_product(diagonals, list(diagonal_places(offsets, n, x.shape[1], transposed)), x, n)

    def dia_added(self, y: Array, diagonals: Array, where: Sequence[Place], x: Array) -> Array | None:
        if not y.flags.c_contiguous:
            return None

        def work(start: int, end: int) -> None:
            for own, row in zip(y, x, strict=True):
                for d, lo, hi, shift, step in clipped(where, start, end):
                    add_product(diagonals[d, lo + shift : hi + shift], row[lo + step : hi + step], own[lo:hi])

        cores.in_blocks(work, y.shape[1], _BYTES // y.itemsize)
        return y

    def prefers_diagonals(self, like: Array | None) -> bool:
        return True

    def dia_sample(self, offsets: Sequence[int], y: Array, x: Array, each: bool = False) -> Array:
        batch, n = y.shape
        found = np.zeros((batch if each else 1, len(offsets), n), x.dtype)
        for d, o, lo, hi in inside(offsets, n, x.shape[1]):
            for row in range(batch):
                found[row if each else 0, d, lo:hi] += y[row, lo:hi] * x[row, lo + o : hi + o]
        return found if each else found[0]

    def boxes_product(self, boxes: Sequence[Any], values: Arrays, x: Array, grid: Sequence[int]) -> Array | None:
        return boxes_product(boxes, values, x, grid) if len(grid) else None

    def ell_product(self, values: Array, cols: Integers, x: Array) -> Array:
        if values.ndim == 3:
            return _one_by_one(lambda v, row: self.ell_product(v, cols, row), values, x, values.shape[2])
        if values.size < _SMALL:
            return np.ascontiguousarray(super().ell_product(values, cols, x))
        n = values.shape[1]
        starts = np.arange(n + 1, dtype=np.int32 if n < 2**31 - 1 else np.int64)
        parts = [self.entries_product(v, None, c, x, n, starts) for v, c in zip(values, cols, strict=True)]
        image = parts[0]
        for part in parts[1:]:
            image += part
        return image

    def entries_product(
        self, values: Array, rows: Integers, cols: Integers, x: Array, n: int, starts: Integers | None = None
    ) -> Array:
        if values.ndim == 2:
            return _one_by_one(lambda v, row: self.entries_product(v, rows, cols, row, n, starts), values, x, n)
        shape = (n, x.shape[1])
        if starts is not None:
            return _rows_times(sp.csr_array((values, cols, starts), shape), x)
        if values.size < _SMALL:
            return np.ascontiguousarray(super().entries_product(values, rows, cols, x, n))
        return _rows_times(sp.coo_array((values, (rows, cols)), shape), x)

    # --- moving entries -----------------------------------------------------------------------------------------------

    def take_in_bounds(self, x: Array, index: Integers, axis: int = 0) -> Array:
        return np.take(x, index, axis)

    def segment_sum(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        if values.ndim == 1 and values.dtype.char in "fd" and len(values) < _FEW:
            return np.bincount(ids, values, count).astype(values.dtype, copy=False)
        if values.dtype.char not in _SPARSE_PRODUCTS or not values.size:
            result = np.zeros((count, *values.shape[1:]), values.dtype)
            np.add.at(result, ids, values)
            return result
        nnz = len(values)
        if values.dtype.char == "f" and nnz < _FEW:  # as bincount does
            return self.segment_sum(values.astype(np.float64), ids, count, sorted).astype(np.float32)
        if values.ndim == 1:
            one_column = sp.coo_array((values, (ids, np.zeros(nnz, np.int32))), (count, 1))
            return np.reshape(one_column @ np.ones(1, values.dtype), (count,))  # SciPy: a number if count is 1
        # one entry per column, which is what CSC stores
        sums = sp.csc_array((np.ones(nnz, values.dtype), ids, np.arange(nnz + 1)), (count, nnz))
        return (sums @ values.reshape(nnz, -1)).reshape(count, *values.shape[1:])

    def _pad_with_zeros(self, x: Array, widths: Sequence[tuple[int, int]]) -> Array:
        padded = np.zeros([lo + n + hi for n, (lo, hi) in zip(x.shape, widths, strict=True)], x.dtype)
        padded[tuple(slice(lo, lo + n) for n, (lo, _) in zip(x.shape, widths))] = x
        return padded


def _one_by_one(product: Callable[[Array, Array], Array], values: Array, x: Array, n: int) -> Array:
    """Batched product: each row of x with its own values."""
    image = np.empty((len(x), n), x.dtype)
    for own, v, row in zip(image, values, x, strict=True):
        own[:] = product(v, row[None])[0]
    return image


def _rows_times(matrix: sp.sparray, x: np.ndarray) -> np.ndarray:
    if x.shape[0] == 1:
        return np.reshape(rows_times(matrix, x[0]), (1, -1))  # SciPy's COO gives a number if it has one row and column
    return np.ascontiguousarray(rows_times(matrix, x.T).T)


def symmetric_places(offsets: Sequence[int], n: int) -> list[Place]:
    """`diagonal_places` of a symmetric matrix: entries below the main diagonal are read above it."""
    numbers = {o: d for d, o in enumerate(offsets)}
    return [(numbers[abs(o)], lo, hi, min(o, 0), o) for _, o, lo, hi in inside(offsets, n, n)]


def dia_product(diagonals: np.ndarray, where: Sequence[Place], x: np.ndarray, n: int) -> np.ndarray:
    """DIA product `(batch, n)` over the ranges of `diagonal_places`."""
    image = np.empty((x.shape[0], n), x.dtype)
    shared = np.broadcast_to(diagonals, (x.shape[0], *diagonals.shape[-2:]))

    def work(start: int, end: int) -> None:
        for own, values, row in zip(image, shared, x, strict=True):
            new = True
            for d, lo, hi, shift, step in clipped(where, start, end):
                factors = values[d, lo + shift : hi + shift], row[lo + step : hi + step]
                if new and hi - lo == end - start:
                    np.multiply(*factors, out=own[lo:hi])
                else:
                    if new:
                        own[start:end] = 0
                    add_product(*factors, own[lo:hi])
                new = False
            if new:
                own[start:end] = 0

    cores.in_blocks(work, n, _BYTES // x.itemsize)
    return image


def boxes_product(boxes: Sequence[Any], values: Sequence[np.ndarray], x: np.ndarray, grid: Sequence[int]) -> np.ndarray:
    """See `Kernels.boxes_product`; parts are rows along the first axis of the grid."""
    image = np.empty((len(x), *grid), x.dtype)
    shared = [np.broadcast_to(value, (len(x), *box.shape)) for box, value in zip(boxes, values, strict=True)]
    line = max(len(x) * math.prod(grid[1:]), 1)

    def work(start: int, end: int) -> None:
        room = np.empty((end - start) * line, x.dtype)
        image[:, start:end] = 0
        for box, value in zip(boxes, shared, strict=True):
            top, (rows, *others) = box.lo[0], box.rows
            lo, hi = max(start, rows.start), min(end, rows.stop)
            if lo < hi:
                part, step = image[:, lo:hi, *others], box.start[0] - top
                product = room[: part.size].reshape(part.shape)
                np.multiply(value[:, lo - top : hi - top], x[:, lo + step : hi + step, *box.cols[1:]], out=product)
                np.add(part, product, out=part)

    cores.in_blocks(work, grid[0], max(BLOCK // line, 1))
    return image


# --- Fourier transforms and first-order recurrences: by SciPy, and row after row with columns in parallel -------------

_CORES = available()
_ONE_CORE = 32768  # numbers that one core transforms before others have begun
_TYPES = {"I": 1, "II": 2, "III": 3, "IV": 4}
COST_OF_STEP = 1e5
_LINE = 8192  # numbers of a row that stay in the cache until the next one


class NumpyFourier(Fourier):
    """Each line is transformed by one thread, so results do not depend on the number of threads."""

    cost = 2.4
    along_any_axis = True

    def forward(self, x: Array, axes: Sequence[int]) -> Array:
        function = scipy.fft.fftn if x.dtype.kind == "c" else scipy.fft.rfftn
        return function(x, axes=tuple(axes), workers=self.threads(x))

    def backward(self, x: Array, axes: Sequence[int], length: int | None) -> Array:
        if length is None:
            return scipy.fft.ifftn(x, axes=tuple(axes), workers=self.threads(x))
        lengths = [*(x.shape[axis] for axis in axes[:-1]), length]
        return scipy.fft.irfftn(x, lengths, tuple(axes), workers=self.threads(x))

    def parts(self, x: Array) -> tuple[Array, Array]:
        return x.real, x.imag

    def complex(self, real: Array, imaginary: Array) -> Array:
        image = np.empty(real.shape, np.result_type(real.dtype, np.complex64))
        image.real, image.imag = real, imaginary
        return image

    def trigonometric(self, kind: str, x: Array, axes: Sequence[int]) -> Array | None:
        family, number = kind.split("-")
        if number not in _TYPES:
            return None
        function = scipy.fft.dstn if family == "DST" else scipy.fft.dctn
        return function(x, _TYPES[number], axes=tuple(axes), norm="ortho", workers=self.threads(x))

    def threads(self, x: Array) -> int:
        """Number of threads for this array."""
        return _CORES if x.size > _ONE_CORE else 1


def recurrence(factors: np.ndarray, x: np.ndarray, backward: bool) -> np.ndarray:
    """See `Kernels.recurrence`."""
    found = x.astype(np.result_type(factors, x))  # a copy
    n, m = factors.shape
    order = range(n - 1, -1, -1) if backward else range(n)

    def work(first: int, last: int) -> None:
        for one in found:
            mine, own = list(one[:, first:last]), list(factors[:, first:last])
            room = np.empty(last - first, found.dtype)
            before = mine[order[0]] if n else room
            for i in order[1:]:
                np.multiply(own[i], before, out=room)
                before = mine[i]
                np.add(before, room, out=before)

    cores.in_blocks(work, m, _LINE)
    return found


# --- Dense factorisations in NumPy: LAPACK by way of SciPy ------------------------------------------------------------


class NumpyLinalg(Linalg):
    """One call of LAPACK for each matrix."""

    first_pivot = 0

    def lu_factor(self, matrix: Array) -> tuple[Array, ...]:
        return lu_factor(matrix)

    def _lu_columns(self, factors: tuple[Array, ...], columns: Array, transposed: bool) -> Array:
        lu, pivots = factors
        (solve,) = lapack.get_lapack_funcs(("getrs",), (lu,))
        if lu.ndim == 2:
            return solve(lu, pivots, columns, trans=int(transposed))[0]
        every = zip(lu, pivots, columns, strict=True)
        return np.array([solve(f, p, rhs, trans=int(transposed))[0] for f, p, rhs in every])

    def inverse(self, matrix: Array) -> Array:
        return batched_inverse(matrix)

    def _triangular_columns(self, matrix: Array, columns: Array, lower: bool) -> Array:
        (solve,) = lapack.get_lapack_funcs(("trtrs",), (matrix, columns))
        if matrix.ndim == 2:  # the transpose of a row-major matrix is what LAPACK reads without a copy
            return solve(matrix.T, columns, lower=not lower, trans=1)[0]
        found = [solve(m.T, rhs, lower=not lower, trans=1)[0] for m, rhs in zip(matrix, columns, strict=True)]
        return np.array(found, columns.dtype).reshape(columns.shape)

    def cholesky(self, matrix: Array) -> Array | None:
        return cholesky_or_none(matrix)

    def _cholesky_columns(self, factor: Array, columns: Array) -> Array:
        (solve,) = lapack.get_lapack_funcs(("potrs",), (factor, columns))
        # the transpose of a row-major matrix is what LAPACK reads without a copy
        upper = np.swapaxes(factor, -1, -2) if factor.dtype.kind == "f" else np.swapaxes(factor, -1, -2).conj()
        if factor.ndim == 2:
            return solve(upper, columns)[0]
        return np.array([solve(u, rhs)[0] for u, rhs in zip(upper, columns, strict=True)])

    def eigh(self, matrix: Array) -> tuple[Array, Array]:
        values, vectors = np.linalg.eigh(matrix)
        return values, vectors


# --- SciPy's sparse matrices: reading and making them -----------------------------------------------------------------


class NumpySparse:
    """SciPy's sparse arrays and matrices, of every format."""

    to_dense = "{}.toarray()"  # how users call it

    def accepts(self, x: Any) -> bool:
        """Is `x` a sparse matrix of this library?"""
        return sp.issparse(x)

    def dtype(self, x: Any) -> np.dtype:
        """NumPy dtype of the values."""
        return x.dtype

    def entries(self, x: Any) -> CooEntries:
        """The entries of a SciPy sparse array or matrix of any format, explicit zeros and duplicates included."""
        coo = x.tocoo()
        return CooEntries(coo.data, coo.row, coo.col, tuple(x.shape))

    def native(self, values: Array, rows: np.ndarray, cols: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
        """A `csr_array` of entries in the order of rows, then columns, without duplicates; shares their memory."""
        starts = row_starts(rows, shape[0])
        matrix = sp.csr_array((values, cols.astype(starts.dtype, copy=False), starts), shape)
        matrix.has_canonical_format = True
        return matrix
