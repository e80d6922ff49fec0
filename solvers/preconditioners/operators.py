"""Operators around others: another precision, diagonal scalings, permutations, and a choice at run time."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...backends import Array, Backend
from ...backends.numpy.vectors import scaled
from ...sparse import Composed, Operator, storable
from ...sparse.formats.entries.scipy_form import csr_array
from .target import Target, suited

_PLAIN = 1e15  # up to it, and down to its inverse, numbers are far from overflow and underflow in single precision
_SINGLE = {"float64": np.dtype(np.float32), "complex128": np.dtype(np.complex64)}


def check_precision(precision: Any) -> None:
    """Check the `precision` of a cycle."""
    if precision not in (None, "single"):
        raise ValueError(f"precision={precision!r} was given; expected 'single', or None, for that of A.")


def inner_dtype(precision: str | None, dtype: np.dtype) -> np.dtype:
    """Dtype of a cycle for a matrix of `dtype`."""
    return _SINGLE.get(dtype.name, dtype) if precision == "single" else dtype


def precision_as_setting(precision: str | None) -> tuple[tuple[str, Any], ...]:
    """Pairs for the settings of a preconditioner."""
    return () if precision is None else (("precision", precision),)


def note_on_precision(M: Operator) -> str | None:
    """Note of a preconditioner that is partly in a lower precision."""
    return "single precision inside" if _has_recast(M) else None


def _has_recast(M: Operator) -> bool:
    parts = [getattr(M, name) for name in M.parts] if isinstance(M, Composed) else []
    return isinstance(M, Recast) or any(_has_recast(part) for part in parts if isinstance(part, Operator))


def recast(inner: Operator, dtype: np.dtype) -> Operator:
    """`inner` for vectors of `dtype`."""
    return inner if inner.dtype == dtype else Recast(inner, np.dtype(dtype).name)


@storable("in another precision")
@dataclass(eq=False, repr=False)
class Recast(Composed):
    """`factor inner` for vectors in the precision `given`, which is not that of `inner`.

    For a lower precision of `inner`, a vector whose largest number is beyond `_PLAIN` is divided by a nearby power of
    two first, and the image multiplied by it, so that only the numbers of one vector have to lie in its range.
    Derivatives of M @ r itself, which no solve takes, are not finite for such an r: tangents of another size would
    vanish. Methods take as many iterations, because rounding is small relative to the error of a preconditioner.

    Source: Goddeke, Strzodka and Turek, Performance and accuracy of hardware-oriented native-, emulated- and
    mixed-precision solvers in FEM simulations, Int. J. Parallel Emergent Distrib. Syst. 22 (2007), for multigrid in
    single precision inside of a double one.
    """

    passes_grids = True

    inner: Operator
    given: str
    factor: float = 1.0

    def __post_init__(self) -> None:
        if self.given not in ("float32", "float64", "complex64", "complex128"):
            raise ValueError(
                f"An operator for vectors of {self.given!r} was requested; expected a real or complex dtype."
            )
        super().__post_init__()
        if self.dtype.kind != self.inner.dtype.kind:
            raise ValueError(f"{self.inner!r} was to be applied to vectors of {self.given}.")

    def _settle(self) -> None:
        super()._settle()
        self.dtype = np.dtype(self.given)

    def apply(self, x: Array) -> Array:
        bk = self.bk
        if self.inner.dtype.itemsize > self.dtype.itemsize:
            return self.factor * bk.astype(self.inner.apply(bk.astype(x, self.inner.dtype)), self.dtype)
        lower = self._cast_unscaled(x)
        if lower is not None:
            return self._times_factor(bk.astype(self.inner.apply(lower), self.dtype))
        scale = self._scale(x)
        found = self.inner.apply(bk.materialize(bk.astype(bk.times(1 / scale, x), self.inner.dtype)))
        return bk.times(self.factor * scale, bk.astype(found, self.dtype))

    def between(self, left: Array, x: Array, right: Array) -> Array | None:
        """`left * self.apply(right * x)` where NumPy multiplies and casts in one pass; else None."""
        if not self.bk.on_host or self.inner.dtype.itemsize > self.dtype.itemsize:
            return None
        with np.errstate(over="ignore"):
            lower = scaled(right, x, self.inner.dtype)
        return self._times_factor(scaled(left, self.inner.apply(lower), self.dtype)) if self._in_range(lower) else None

    def _cast_unscaled(self, x: Array) -> Array | None:
        """NumPy vectors cast to the lower precision, where none needs scaling; else None."""
        if not self.bk.on_host:
            return None
        with np.errstate(over="ignore"):
            lower = self.bk.astype(x, self.inner.dtype)
        return lower if self._in_range(lower) else None

    def _in_range(self, lower: Array) -> bool:
        """Do all vectors fit the lower precision without scaling?"""
        size = self.bk.max_abs(lower)
        return bool(np.all((size > 2 / _PLAIN) & (size < _PLAIN / 2)))  # factor 2, because the scale is rounded

    def _times_factor(self, x: Array) -> Array:
        return x if self.factor == 1 else self.factor * x

    def _scale(self, x: Array) -> Array:
        """`(batch, 1)`: 1, or for vectors beyond `_PLAIN` a power of two, whose derivative is not finite."""
        bk, scale = self.bk, self.bk.constant(self.bk.binary_scale(x))
        beyond, one = (scale < 1 / _PLAIN) | (scale > _PLAIN), bk.full_like(scale, 1)
        if bk.has_derivatives and not hasattr(x, "cells"):  # Only solves keep rows as grids.
            first = bk.real(x[:, :1])
            root = bk.sqrt(
                bk.where(beyond, first - bk.constant(first), one)
            )  # The derivative of a root at 0 is infinite.
            scale = scale * (1 + bk.where(beyond, root, 0 * one))
        return bk.where(beyond, scale, one)

    def transpose(self) -> Operator:
        return replace(self, inner=self.inner.transpose())

    def astype(self, dtype: np.dtype) -> Operator:
        inner = self.inner
        if inner.dtype.kind != np.dtype(dtype).kind:
            inner = inner.astype(np.result_type(inner.dtype, np.complex64))
        return recast(inner, dtype) if self.factor == 1 else Recast(inner, np.dtype(dtype).name, self.factor)


@storable("scaled on both sides")
@dataclass(eq=False, repr=False)
class DiagonallyScaled(Composed):
    """`left inner right`, with diagonals `(1, n)`, or one per system `(systems, n)`."""

    parts = ("inner", "left", "right")
    passes_grids = True

    inner: Operator
    left: Array
    right: Array

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            rows, n = (int(k) for k in side.shape) if len(side.shape) == 2 else (0, 0)
            if n != self.inner.shape[0] or rows not in (1, self.inner.systems):
                raise ValueError(f"A diagonal of the shape {tuple(side.shape)} does not fit to {self.inner!r}.")
        super().__post_init__()

    def apply(self, x: Array) -> Array:
        left, right = self.array("left"), self.array("right")
        found = self.inner.between(left, x, right) if isinstance(self.inner, Recast) else None
        return left * self.inner.apply(right * x) if found is None else found

    def transpose(self) -> DiagonallyScaled:
        return DiagonallyScaled(self.inner.transpose(), self.right, self.left)


@storable("scaled on both sides, on a grid")
@dataclass(eq=False, repr=False)
class ScaledOnGrid(Composed):
    """`left inner right`, with diagonals `(1, *grid)`, which may be spread over devices as vectors are."""

    parts = ("inner", "left", "right")
    passes_grids = True

    inner: Operator
    left: Array
    right: Array
    grid: tuple[int, ...]

    def __post_init__(self) -> None:
        for side in (self.left, self.right):
            if tuple(map(int, side.shape)) != (1, *self.grid) or math.prod(self.grid) != self.inner.shape[0]:
                raise ValueError(
                    f"A diagonal of the shape {tuple(side.shape)} on a grid {self.grid} does not fit to {self.inner!r}."
                )
        super().__post_init__()

    def apply(self, x: Array) -> Array:
        right = self._times(self.array("right"), x)
        return self._times(self.array("left"), self.inner.apply(right))

    def _times(self, side: Array, x: Array) -> Array:
        return self.bk.as_rows(side * self.bk.cells(x, self.grid), x)

    def transpose(self) -> ScaledOnGrid:
        return ScaledOnGrid(self.inner.transpose(), self.right, self.left, self.grid)


@storable("in another order")
@dataclass(eq=False, repr=False)
class Permuted(Composed):
    """`Q^T inner Q` with the permutation matrix Q that has a one in row k and column `order[k]`.

    The order is in the positions of entries, which are never traced: it stays known where M is an argument of a
    compiled function.
    """

    parts = ("inner", "there", "back")

    inner: Operator
    there: Operator
    back: Operator

    @property
    def order(self) -> np.ndarray:
        there: Any = self.there
        return np.asarray(there.structure.entries().cols)

    def __post_init__(self) -> None:
        if not self.inner.shape == self.there.shape == self.back.shape:
            raise ValueError(f"An order of {self.there.shape[0]} unknowns does not fit to {self.inner!r}.")
        super().__post_init__()

    def apply(self, x: Array) -> Array:
        return self.back.apply(self.inner.apply(self.there.apply(x)))

    def on_backend(self, bk: Backend, like: Array | None) -> Operator | None:
        moved: Any = super().on_backend(bk, like)
        return moved and replace(moved, there=suited(moved.there, bk, like), back=suited(moved.back, bk, like))

    def transpose(self) -> Permuted:
        return Permuted(self.inner.transpose(), self.there, self.back)


def permuted(inner: Operator, order: np.ndarray, target: Target) -> Permuted:
    """Permuted operator: unknown k of `inner` is unknown `order[k]`."""
    n, places = len(order), np.argsort(order).astype(order.dtype)
    rows = np.arange(n + 1, dtype=np.int32)
    there, back = (target.matrix(csr_array(np.ones(n), cols, rows, (n, n))) for cols in (order, places))
    return Permuted(inner, there, back)


@storable("reordered")
@dataclass(eq=False, repr=False)
class Reordered(Composed):
    """`inner` between two permutations: `y[i] = (inner x[before])[after[i]]`; and the inverses of these.

    The rows and columns of `inner` may be in different orders. Gathers are faster than the products of `Permuted`, but
    their indices are traced where M is an argument of a compiled function.
    """

    parts = ("inner", "before", "before_back", "after", "after_back")

    inner: Operator
    before: Array
    before_back: Array
    after: Array
    after_back: Array

    def transpose(self) -> Reordered:
        return Reordered(self.inner.transpose(), self.after_back, self.after, self.before_back, self.before)

    def apply(self, x: Array) -> Array:
        before, after = self.array("before"), self.array("after")
        return self.bk.take_in_bounds(self.inner.apply(self.bk.take_in_bounds(x, before, 1)), after, 1)


def reordered(inner: Operator, rows: np.ndarray, cols: np.ndarray) -> Reordered:
    """Inverse of A, where `inner` is the inverse of A with row `rows[k]` as row k and column `cols[k]` as column k."""
    orders = [order.astype(np.int32) for order in (rows, np.argsort(rows), np.argsort(cols), cols)]
    return Reordered(inner, *(orders if inner.bk.compiled() else map(inner.bk.asarray, orders)))


@storable("one of two")
@dataclass(eq=False, repr=False)
class Either(Composed):
    """`first` where `chosen`, a real array `(1,)`, is positive, else `second`; only that one is applied."""

    parts = ("first", "second", "chosen")

    first: Operator
    second: Operator
    chosen: Array

    def __post_init__(self) -> None:
        if self.first.shape != self.second.shape or tuple(self.chosen.shape) != (1,):
            shapes = self.first.shape, self.second.shape, tuple(self.chosen.shape)
            raise ValueError(f"Two operators and a choice have the shapes {shapes}, which do not match.")
        super().__post_init__()

    def apply(self, x: Array) -> Array:
        return self.bk.compile_if_faster(_apply_chosen, ())(self, x)  # traced once for the many applications of a solve

    def transpose(self) -> Either:
        return Either(self.first.transpose(), self.second.transpose(), self.chosen)


def _apply_chosen(M: Either, x: Array) -> Array:
    return M.bk.cond(M.array("chosen")[0] > 0, M.first.apply, M.second.apply, x)
