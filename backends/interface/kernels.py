"""Kernels of a backend: moving entries, sparse products with derivatives, transforms, recurrences, factorisations.

Arrays have any number of axes and any dtype; what moves entries is linear, and differentiable where the library
differentiates. Integer arrays are int32 or int64, of the library or of NumPy; the latter are copied to the device of
the data.

In sparse products vectors are rows: x is `(batch, m)` and the image `(batch, n)`. Values and vectors have one dtype.
Indices are integer arrays of the library or of NumPy, all in range. Nothing is conjugated. Values with one more axis in
front belong to the rows of x, one matrix to each.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias

import numpy as np

from ..operations import mathematics
from .arrays import Array, Integers

# --- Bilinear maps, such as a sparse matrix-vector product, with derivatives of every order ---------------------------
# Multiplying a vector by a sparse matrix is such a map: `y = product(values, x)`. It comes with two others, which the
# scalar `sum(z * product(values, x))` gives when it is differentiated with respect to x and to the values: the
# transposed product `(values, z) -> x` and the sample `(z, x) -> values`. Each of the three is linear in each argument,
# and the derivatives of each are among the three, so that rules for them hold to every order, forward and backward:
#
#     map         arguments a, b    cotangent c     by a            by b
#     product     values, x         of the image    sample(c, x)    transposed(values, c)
#     transposed  values, z         of x            sample(z, c)    product(values, c)
#     sample      z, x              of the values   product(c, x)   transposed(c, z)

Arrays: TypeAlias = tuple[Array, ...]

PRODUCT, TRANSPOSED, SAMPLE = "product", "transposed", "sample"
# the maps that are the derivatives of each by its first and second argument
DERIVATIVES = {PRODUCT: (SAMPLE, TRANSPOSED), TRANSPOSED: (SAMPLE, PRODUCT), SAMPLE: (PRODUCT, TRANSPOSED)}


class Bilinear(ABC):
    """The three maps, of one structure. Static: it holds no arrays of a library, is hashable and equal by content.

    `values` and `indices` are tuples of arrays of the library `bk`; vectors are rows, `(batch, n)`. All floating
    numbers have one dtype. Nothing is conjugated. Where the arrays of values have one more axis in front, each row of
    the batch has its own.
    """

    each: ClassVar[bool] = False  # is the sample one for each row of the batch, and not their sum?

    @abstractmethod
    def product(self, bk: Any, values: Arrays, indices: Arrays, x: Array) -> Array:
        """`(batch, m)` -> `(batch, n)`: linear in the values and in x."""

    @abstractmethod
    def product_transposed(self, bk: Any, values: Arrays, indices: Arrays, y: Array) -> Array:
        """`(batch, n)` -> `(batch, m)`: the transpose of `product`."""

    @abstractmethod
    def sample(self, bk: Any, indices: Arrays, y: Array, x: Array, each: bool = False) -> Arrays:
        """The derivative of sum(y * product(values, x)) by each of the values.

        That is a sum over the batch, or with `each` its terms, one more axis in front: every row has its own values.
        """


@dataclass(frozen=True)
class Each(Bilinear):
    """The batched maps: values have a leading axis, one matrix per row of the vectors."""

    each: ClassVar[bool] = True

    form: Bilinear  # of one matrix

    def product(self, bk: Any, values: Arrays, indices: Arrays, x: Array) -> Array:
        return self.form.product(bk, values, indices, x)

    def product_transposed(self, bk: Any, values: Arrays, indices: Arrays, y: Array) -> Array:
        return self.form.product_transposed(bk, values, indices, y)

    def sample(self, bk: Any, indices: Arrays, y: Array, x: Array, each: bool = True) -> Arrays:
        return self.form.sample(bk, indices, y, x, each)


def evaluate_bilinear(bk: Any, form: Bilinear, kind: str, indices: Arrays, a: Arrays, b: Arrays) -> Arrays:
    """Evaluate one of the three maps. Arguments and results are tuples; a vector is a tuple of one."""
    if kind == SAMPLE:
        return tuple(form.sample(bk, indices, a[0], b[0]))
    apply = form.product if kind == PRODUCT else form.product_transposed
    return (apply(bk, a, indices, b[0]),)


def transposed_arguments(kind: str, by: int, a: Sequence[Array], b: Sequence[Array], c: Sequence[Array]) -> Any:
    """The vector-Jacobian product for argument `by` (0: a, 1: b) and cotangent c: a map and its two arguments."""
    other = DERIVATIVES[kind][by]
    if kind == SAMPLE:
        return other, c, (b, a)[by]
    if by == 1:
        return other, a, c
    return other, *((c, b) if kind == PRODUCT else (b, c))


# --- Methods of a backend ---------------------------------------------------------------------------------------------


# Rows of up to so many entries are summed term by term, which compilers fuse into one pass: XLA took 1.5 ms for five
# terms of 1024^2 numbers, and 50 ms for the sum over the axis of five.
_UNROLLED = 64
Place = tuple[int, int, int, int, int]  # of a diagonal in a product, see `diagonal_places`


class Kernels(ABC):
    """Backend methods that move entries, multiply sparse matrices and solve first-order recurrences."""

    xp: Any
    materialize: Callable[[Array], Array]
    _composed: Callable[[str], Callable[..., Array]]
    dtype: Callable[[Array], np.dtype]
    stack: Callable[[Sequence[Array]], Array]
    sum: Callable[..., Array]
    zeros: Callable[..., Array]
    asarray: Callable[..., Array]
    astype: Callable[..., Array]

    @abstractmethod
    def take_in_bounds(self, x: Array, index: Integers, axis: int = 0) -> Array:
        """`x` at the positions `index` along an axis, which the axes of `index` replace.

        Every position must be at least 0 and below the length of the axis: this is not checked.
        """

    @abstractmethod
    def segment_sum(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        """`(nnz, ...)` -> `(count, ...)`: sum of the values with equal `ids` `(nnz,)`; 0 for empty segments.

        Every id must be at least 0 and below `count`; `sorted` promises that they do not fall. Neither is checked.
        """

    def sum_entries(self, values: Array, ids: Integers, count: int, sorted: bool = False) -> Array:
        """`segment_sum` along the last axis: `(nnz,)` -> `(count,)`, or `(batch, nnz)` -> `(batch, count)`."""
        if len(values.shape) == 1:
            return self.segment_sum(values, ids, count, sorted)
        if values.shape[0] == 1:
            return self.segment_sum(values[0, ...], ids, count, sorted)[None, :]
        return self.permute_dims(self.segment_sum(self.permute_dims(values, (1, 0)), ids, count, sorted), (1, 0))

    def pad(self, x: Array, widths: Sequence[tuple[int, int]], mode: str = "constant", value: Any = 0) -> Array:
        """`x` with zeros around it: `(before, after)` of each axis, none negative; others as in `operations.shapes`."""
        plain = mode == "constant" and type(value) is int and value == 0 and len(widths) == len(x.shape)
        for before, after in widths:
            plain = plain and before >= 0 and after >= 0
        if plain:
            return self._pad_with_zeros(x, widths)
        return self._composed("pad")(x, widths, mode, value)

    @abstractmethod
    def _pad_with_zeros(self, x: Array, widths: Sequence[tuple[int, int]]) -> Array: ...

    def pad_materialized(self, x: Array, before: int, after: int) -> Array:
        """`(rows, n)` zero-padded before and after each row, and materialized as by `Backend.materialize`."""
        return self.materialize(self.pad(x, [(0, 0), (before, after)]))

    def window(self, x: Array, start: Sequence[int], shape: Sequence[int]) -> Array:
        """The box of `shape` that begins at `start`, along the last axes of `x`; what lies outside of `x` is 0."""
        inside, widths = [], []
        for s, n, m in zip(start, shape, x.shape[len(x.shape) - len(shape) :], strict=True):
            before, first = min(max(-s, 0), n), min(max(s, 0), m)
            count = max(min(s + n, m) - first, 0)
            inside.append(slice(first, first + count))
            widths.append((before, n - before - count))
        return self.pad(x[(..., *inside)], [(0, 0)] * (len(x.shape) - len(shape)) + widths)

    def concat(self, arrays: Sequence[Array], axis: int | None = 0) -> Array:
        """Concatenate arrays along an axis, or flat ones."""
        return self.xp.concat(arrays, axis=axis)

    def add_box(self, x: Array, lo: Sequence[int], part: Array) -> Array:
        """`x` with `part`, which has as many axes, added to the box of its shape that begins at `lo`."""
        widths = [(first, int(n) - first - int(k)) for first, n, k in zip(lo, x.shape, part.shape, strict=True)]
        cut = [axis for axis, width in enumerate(widths) if width != (0, 0)]
        if len(cut) != 1:
            return x + self.pad(part, widths)
        axis, (first, last) = cut[0], widths[cut[0]]  # one pass over x, and no zeros
        bounds = (0, first, int(x.shape[axis]) - last, int(x.shape[axis]))
        pieces = [x[(slice(None),) * axis + (slice(a, b),)] for a, b in pairwise(bounds)]
        kept = [piece for piece, width in ((pieces[0], first), (pieces[1] + part, 1), (pieces[2], last)) if width]
        return self.concat(kept, axis)

    def permute_dims(self, x: Array, axes: Sequence[int]) -> Array:
        """`x` with its axes in another order: axis i of the result is axis `axes[i]` of `x`."""
        return self.xp.permute_dims(x, tuple(axes))

    def flip(self, x: Array, axis: int | Sequence[int] | None = None) -> Array:
        """`x` with the order along some axes, or all, reversed."""
        return self.xp.flip(x, axis=tuple(axis) if isinstance(axis, list) else axis)

    def bilinear(
        self, form: Bilinear, values: Arrays, indices: Arrays, x: Array, transposed: bool = False
    ) -> Array:  # fmt: skip
        """`form.product` or `form.product_transposed`, with the derivatives by the values and by x of every order.

        Where the library differentiates: forward, reverse, and under its `vmap`, also of the values. The values, a
        tuple of arrays, and x `(batch, m)` have one dtype; the caller casts. `indices` is a tuple of integer arrays.
        """
        apply = form.product_transposed if transposed else form.product
        return apply(self, values, indices, x)

    # --- diagonals ----------------------------------------------------------------------------------------------------

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

    # --- boxes of a grid ----------------------------------------------------------------------------------------------

    def boxes_product(self, boxes: Sequence[Any], values: Arrays, x: Array, grid: Sequence[int]) -> Array | None:
        """y[:, *box.rows] += value x[:, *box.cols] for each box and its value; x `(batch, ...)`, y `(batch, *grid)`.

        See `Shifted` for boxes. Each value is broadcast to `(batch, *box.shape)`. None: other functions are no worse.
        """
        return None

    # --- rows of equal length -----------------------------------------------------------------------------------------

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

    # --- entries ------------------------------------------------------------------------------------------------------

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

    # --- recurrences: recursive doubling, log2(n) passes over the array -----------------------------------------------

    @property
    def cost_of_step(self) -> float:
        """Measured cost of one step along the axis of `recurrence`, in `Fourier.cost`'s units; infinite for doubling.

        It is added to the cost of the arithmetic.
        """
        return math.inf

    def recurrence(self, factors: Array, x: Array, backward: bool = False) -> Array:
        """`y_i = x_i + factors_i y_(i-1)` along axis 1 of `(batch, n, m)`; backward from `y_(i+1)`.

        Args:
            factors: `(n, m)`; the first, or backward the last of them, are of no effect.
        """
        n = int(x.shape[1])
        found, factors = x, self.astype(factors, self.dtype(x))[None]
        reach = 1
        while reach < n:
            found = self._added(found, factors, found, reach, backward)
            if 2 * reach < n:
                factors = self._added(None, factors, factors, reach, backward)
            reach *= 2
        return found

    def _added(self, to: Array | None, factors: Array, of: Array, reach: int, backward: bool) -> Any:
        """`to_i + factors_i of_(i - reach)`, with zeros beyond the ends and for `to` None."""
        n = int(of.shape[1])
        edge, rest = (slice(n - reach, n), slice(n - reach)) if backward else (slice(reach), slice(reach, n))
        there = slice(reach, n) if backward else slice(n - reach)
        inner = factors[:, rest] * of[:, there]
        outer = 0 * factors[:, edge] if to is None else to[:, edge]
        inner = inner if to is None else to[:, rest] + inner
        return self.concat([inner, outer] if backward else [outer, inner], 1)


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


class Fourier(ABC):
    """Transforms of real arrays keep half of the frequencies of the last axis; the others are their conjugates."""

    cost: ClassVar[float]  # of a pass of a transform over its numbers, in rows of a product with a matrix; measured
    along_any_axis: ClassVar[bool] = False  # are transforms along all axes as quick as along the last one?

    @abstractmethod
    def forward(self, x: Array, axes: Sequence[int]) -> Array:
        """The transform along one to three axes, the last of which has `n // 2 + 1` frequencies where x is real."""

    @abstractmethod
    def backward(self, x: Array, axes: Sequence[int], length: int | None) -> Array:
        """The inverse of `forward` of complex arrays, or of real ones whose last axis had this length."""

    @abstractmethod
    def parts(self, x: Array) -> tuple[Array, Array]:
        """The real and the imaginary part of a complex array."""

    @abstractmethod
    def complex(self, real: Array, imaginary: Array) -> Array:
        """Made of its two parts."""

    def trigonometric(self, kind: str, x: Array, axes: Sequence[int]) -> Array | None:
        """The library's own orthonormal transform into sines or cosines, as "DST-I"; None where it has none."""
        return None


# --- Dense factorisations and solves with them: `backend.linalg`, as `linalg` of the array API standard ---------------
# Every library has its own LAPACK, or a compiler's form of it; none of these can be written with other operations.


class Linalg(ABC):
    """Right-hand sides and solutions are rows of `(batch, n)`; those of `operations.mathematics` are columns."""

    first_pivot: ClassVar[int | None] = None  # first row index of LU's interchanges; None: a permutation
    _backend: Any = None  # of which it is an attribute

    def __get__(self, backend: Any, owner: type) -> Linalg:
        if backend is not None:
            self._backend = backend
        return self

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Operations for users, which are names of the backend, too: only what the class has not comes here."""
            if name not in mathematics.NAMES:
                raise AttributeError(f"bk.linalg has no {name!r}; bk.xp.linalg has the names of the standard.")
            return getattr(self._backend, name)

    @abstractmethod
    def lu_factor(self, matrix: Array) -> tuple[Array, ...]:
        """Pivoted LU of `(..., n, n)`; the first array holds U in its upper triangle. Accepts singular matrices."""

    def lu_solve(self, factors: tuple[Array, ...], b: Array, transposed: bool = False) -> Array:
        """Solve with factors of `(n, n)` or `(batch, n, n)`, or with the transpose, for each row of `(batch, n)`."""
        return self._by_columns(factors[0], b, lambda columns: self._lu_columns(factors, columns, transposed))

    @abstractmethod
    def _lu_columns(self, factors: tuple[Array, ...], columns: Array, transposed: bool) -> Array:
        """`lu_solve` for columns `(n, batch)` of one matrix, or `(batch, n, 1)` of several."""

    @abstractmethod
    def inverse(self, matrix: Array) -> Array:
        """Inverses of `(batch, n, n)`; unspecified, possibly not finite, for singular matrices."""

    def solve_triangular(self, matrix: Array, b: Array, lower: bool) -> Array:
        """Solve with a triangle of `(n, n)` or `(batch, n, n)` for each row of `(batch, n)`; no zeros on diagonals."""
        return self._by_columns(matrix, b, lambda columns: self._triangular_columns(matrix, columns, lower))

    @abstractmethod
    def _triangular_columns(self, matrix: Array, columns: Array, lower: bool) -> Array:
        """`solve_triangular` for columns `(n, batch)` of one matrix, or `(batch, n, 1)` of several."""

    @abstractmethod
    def cholesky(self, matrix: Array) -> Array | None:
        """Lower Cholesky factor of `(..., n, n)`, or None if some matrix is not positive definite or not known yet."""

    def cholesky_solve(self, factor: Array, b: Array) -> Array:
        """Solve with a lower factor `(n, n)` or `(batch, n, n)` for each row of `(batch, n)`."""
        return self._by_columns(factor, b, lambda columns: self._cholesky_columns(factor, columns))

    @abstractmethod
    def _cholesky_columns(self, factor: Array, columns: Array) -> Array:
        """`cholesky_solve` for columns `(n, batch)` of one matrix, or `(batch, n, 1)` of several."""

    @abstractmethod
    def eigh(self, matrix: Array) -> tuple[Array, Array]:
        """Eigenvalues `(k,)`, rising, and eigenvectors `(k, k)` in columns of a finite Hermitian matrix `(k, k)`."""

    def _by_columns(self, factor: Array, b: Array, solve: Callable[[Array], Array]) -> Array:
        """One matrix solves for all rows of b at once, each of several for its own."""
        if len(factor.shape) == 2:
            return self._turned(solve(self._turned(b)))
        return solve(b[..., None])[..., 0]

    def _turned(self, rows: Array) -> Array:
        """The transpose of `(batch, n)`."""
        return rows.T
