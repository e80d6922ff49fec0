"""Orthogonal projections that remove null vectors from rows `(batch, n)`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...backends import Array, Backend, real_dtype
from ...sparse import Composed, Operator, storable


def projected_twice(projection: Operator, x: Array) -> Array:
    """Project x twice: once leaves the rounding errors of a large component, which may be all of the rest."""
    return projection.apply(projection.apply(x))


@storable("without null vectors")
@dataclass(eq=False, repr=False)
class WithoutVectors(Composed):
    """`v - Z Z^H v`, where the columns of Z are the orthonormal rows of `basis`, padded with zeros.

    `basis` is `(k, n)`, or `(systems or 1, k, n)` where systems differ. Cost: 2 k n multiplications.
    """

    parts = ("basis",)
    is_container = True

    bk: Backend
    basis: Array

    def _settle(self) -> None:
        *systems, _, n = map(int, self.basis.shape)
        self.shape, self.dtype = (n, n), np.dtype(self._library_of(self.basis).dtype(self.basis))
        self.systems = systems[0] if systems and systems[0] > 1 else None

    def apply(self, x: Array) -> Array:
        bk, rows = self.bk, self.array("basis")
        rows = bk.astype(rows, np.result_type(self.dtype, bk.dtype(x)))
        rows = rows[0, ...] if len(rows.shape) == 3 and self.systems is None else rows
        return x - bk.product(bk.matrix_transpose(rows), bk.stack_dots(bk.conj(rows), x))

    def transpose(self) -> WithoutVectors:
        return self.conj()  # type: ignore[return-value]


@dataclass(eq=False, repr=False)
class WithoutConstants(Composed):
    """v minus its mean on each region, a set of unknowns.

    `labels` `(n,)` are the regions of the unknowns, or `(systems, n)` where systems differ. `weights` `(regions,)` are
    one over their sizes, 0 for a region whose mean is kept. Cost: a sum and a difference of vectors.
    """

    parts = ("labels", "weights")
    is_container = True

    bk: Backend
    labels: Array
    weights: Array

    def _settle(self) -> None:
        n = int(self.labels.shape[-1])
        self.shape, self.dtype = (n, n), np.dtype(self._library_of(self.weights).dtype(self.weights))

    @property
    def keeps_grids(self) -> bool:  # type: ignore[override]
        return int(self.weights.shape[-1]) == 1

    def apply(self, x: Array) -> Array:
        bk, labels, weights = self.bk, self.array("labels"), self.array("weights")
        shape, count = tuple(x.shape), int(weights.shape[-1])
        weights = bk.astype(weights, real_dtype(bk.dtype(x)))
        if count == 1:
            return x - bk.sum(bk.times(weights, x), 1, keepdims=True)
        if len(labels.shape) == 2:  # regions of all systems have different labels
            size = int(labels.shape[0]) * int(labels.shape[1])
            labels, x = bk.reshape(labels, (size,)), bk.reshape(x, (-1, size))
        shares = bk.take_in_bounds(weights, labels, 0)  # multiplied first, because sums may overflow
        counted = bk.where(shares == 0, bk.zeros_like(x), bk.astype(shares, bk.dtype(x)) * x)  # 0 times NaN is NaN
        means = bk.sum_entries(counted, labels, count)
        return bk.reshape(x - bk.take_in_bounds(means, labels, 1), shape)

    def transpose(self) -> WithoutConstants:
        return self


@dataclass(eq=False, repr=False)
class WithoutConstantsInside(Composed):
    """v minus its mean over the unknowns `inside`, on these, and zero on the others.

    `inside` `(systems or 1, n)` has ones and zeros. `weights` `(systems or 1, 1)` is one over the number of ones, or 0
    where the mean is kept. `active` `(systems or 1, 1)` is 0 where v is unchanged. Cost: a sum and a difference of
    vectors.
    """

    parts = ("inside", "weights", "active")
    is_container = True
    keeps_grids = True

    bk: Backend
    inside: Array
    weights: Array
    active: Array

    def _settle(self) -> None:
        n = int(self.inside.shape[-1])
        self.shape, self.dtype = (n, n), np.dtype(self._library_of(self.inside).dtype(self.inside))

    def apply(self, x: Array) -> Array:
        bk, dtype = self.bk, self.bk.dtype(x)
        inside, weights = (bk.astype(bk.astype(self.array(name), real_dtype(dtype)), dtype) for name in self.parts[:2])
        if bk.known_cut(inside) is not None and bk.known_cut(x) is None:
            x = bk.as_rows(bk.flat(x), inside)

        def projected(x: Array) -> Array:
            kept = inside * x
            return kept - inside * bk.sum(weights * kept, 1, keepdims=True)

        return bk.cond(bk.any(self.array("active") > 0), projected, lambda x: x, x)

    def as_container(self) -> Operator:
        known = any(isinstance(self.__dict__[name], np.ndarray) for name in self.parts)
        return super().as_container() if known else self  # rows may be stored as grids

    def transpose(self) -> WithoutConstantsInside:
        return self


@dataclass(eq=False, repr=False)
class Projected(Composed):
    """`P M P`, a preconditioner restricted to the complement of the null space."""

    parts = ("projection", "inner")
    passes_grids = True

    projection: Operator
    inner: Operator

    def apply(self, x: Array) -> Array:
        return self.projection.apply(self.inner.apply(self.projection.apply(x)))

    def transpose(self) -> Projected:
        return self._map(lambda A: A.transpose())
